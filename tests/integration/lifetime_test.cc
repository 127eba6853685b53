// Deadlines, cancellation and shutdown through a real server: answers at once, nothing held back, nothing lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using std::chrono::milliseconds;

bool ledger_is_empty(const RunningServer& server) {
  return server.metric("svdserve_inflight_requests") == 0 && server.metric("svdserve_inflight_bytes") == 0;
}

TEST(LifetimeTest, ADeadlineActsWhileTheDeviceComputes) {
  RunningServer server({"--threads=1", "--simd=scalar"});
  const auto channel = connect(server.address());
  const auto expired = [&] {
    return server.metric("svdserve_requests_total", {"status=\"DEADLINE_EXCEEDED\""}) +
           server.metric("svdserve_requests_total", {"status=\"CANCELLED\""});
  };
  // On a busy machine a short deadline passes before the message has arrived: then a longer one is tried.
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, random_request(2, 2, 1), &response).ok());  // the connection is there
  for (milliseconds limit(100); expired() == 0 && limit < std::chrono::seconds(60); limit *= 2) {
    const grpc::Status status = decompose(channel, slow_request(4000), &response, limit);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
    wait_until([&] { return expired() > 0; }, milliseconds(200));
  }
  EXPECT_GE(expired(), 1);
  // The device lets go between matrices: the ledger empties and the next request is computed.
  EXPECT_TRUE(wait_until([&] { return ledger_is_empty(server); }));
  EXPECT_TRUE(decompose(channel, random_request(2, 2, 1), &response).ok());
}

TEST(LifetimeTest, ACancelledCallFreesTheDeviceAndTheQueue) {
  RunningServer server({"--threads=1", "--simd=scalar"});
  const v1::DecomposeRequest slow = slow_request(1500);
  constexpr int kCalls = 6;
  std::vector<grpc::ClientContext> contexts(kCalls);
  std::vector<std::thread> callers;
  std::atomic<int> cancelled{0}, others{0};
  const auto stub = v1::SvdService::NewStub(connect(server.address()));
  for (grpc::ClientContext& context : contexts) {
    callers.emplace_back([&] {
      v1::DecomposeResponse response;
      const grpc::Status status = stub->Decompose(&context, slow, &response);
      if (status.error_code() == grpc::StatusCode::CANCELLED) ++cancelled;
      if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) ++others;
    });
  }
  // One on the device, at least one in the queue behind it.
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") >= 2; }));
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(others, 0);
  EXPECT_TRUE(wait_until([&] { return ledger_is_empty(server); }));
  EXPECT_EQ(server.metric("svdserve_queued_requests"), 0);
}

TEST(LifetimeTest, AThousandStreamsCancelledAtRandomMomentsLeakNothing) {
  RunningServer server({"--max-stream-requests=8"});
  constexpr int kStreams = 1000, kThreads = 8;
  const v1::DecomposeRequest small = random_request(4, 4, 10), large = slow_request(60);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto stub = v1::SvdService::NewStub(connect(server.address()));
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = t; i < kStreams; i += kThreads) {
        grpc::ClientContext context;
        const auto stream = stub->DecomposeStream(&context);
        const unsigned writes = random() % 12, reads = random() % 4, idle = random() % 3;
        v1::DecomposeStreamRequest request;
        for (unsigned w = 0; w < writes; ++w) {
          request.set_request_id(w);
          *request.mutable_request() = random() % 3 == 0 ? large : small;
          if (!stream->Write(request)) break;
        }
        v1::DecomposeStreamResponse response;
        for (unsigned r = 0; r < std::min(reads, writes); ++r) stream->Read(&response);
        if (idle == 1) stream->WritesDone();
        if (idle == 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        context.TryCancel();
        stream->Finish();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(wait_until([&] { return ledger_is_empty(server); }));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_open_streams") == 0; }));
  EXPECT_EQ(server.metric("svdserve_queued_requests"), 0);
  EXPECT_GT(server.metric("svdserve_requests_total"), 100);
}

TEST(LifetimeTest, SigtermUnderLoadLosesNoAcceptedRequest) {
  RunningServer server({"--drain-delay=100ms"});
  const v1::DecomposeRequest request = slow_request(40);
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0}, refused{0}, lost{0};
  Callers callers(8, server.address(), request, stop, [&](const grpc::Status& status) {
    if (status.ok()) {
      ++answered;
    } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      ++refused;  // drained, or the server is gone: never accepted
      stop = true;
    } else {
      ++lost;
      ADD_FAILURE() << status.error_code() << ": " << status.error_message();
    }
  });
  // A stream with requests in flight while the signal comes.
  grpc::ClientContext context;
  const auto stub = v1::SvdService::NewStub(connect(server.address()));
  const auto stream = stub->DecomposeStream(&context);
  v1::DecomposeStreamRequest numbered;
  *numbered.mutable_request() = slow_request(400);
  constexpr int kInFlight = 5;
  for (int i = 0; i < kInFlight; ++i) {
    numbered.set_request_id(static_cast<uint64_t>(i));
    ASSERT_TRUE(stream->Write(numbered));
  }
  EXPECT_TRUE(wait_until([&] {
    return answered > 20 && server.metric("svdserve_admitted_bytes_total") > 0 &&
           server.metric("svdserve_phase_seconds_count", {"phase=\"total\""}) > 20 &&
           server.metric("svdserve_requests_total", {"rpc=\"DecomposeStream\"", "status=\"OK\""}) > 0;
  }));
  server.signal(SIGTERM);
  int stream_answers = 0;
  v1::DecomposeStreamResponse response;
  while (stream->Read(&response)) {
    // Requests read before the drain are answered; later ones are refused by name.
    if (response.status().code() == 0) {
      ++stream_answers;
    } else {
      EXPECT_EQ(details_of(response.status()).reason, "DRAINING");
    }
  }
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  EXPECT_EQ(details_of(ended).reason, "DRAINING");
  EXPECT_GT(stream_answers, 0);
  callers.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(server.wait(), 0) << server.log();
  EXPECT_THAT(server.log(), ::testing::HasSubstr("event=stopped\n"));
}

TEST(LifetimeTest, DuringTheDrainDelayTheServerServesButIsNotReady) {
  // On a busy machine the shortest delay may be over before the questions are: then it says nothing.
  for (const int delay : {2, 10, 50}) {
    RunningServer server({"--drain-delay=" + std::to_string(delay) + "s"});
    const auto channel = connect(server.address());
    v1::DecomposeResponse response;
    ASSERT_TRUE(decompose(channel, random_request(2, 2, 1), &response).ok());
    EXPECT_EQ(server.get("/readyz").code, 200);
    const auto began = std::chrono::steady_clock::now();
    server.signal(SIGTERM);
    const bool not_ready = wait_until([&] { return server.get("/readyz").code == 503; }, std::chrono::seconds(delay));
    const int alive = server.get("/livez").code;
    const grpc::Status served = decompose(channel, random_request(2, 2, 1), &response);
    const bool in_time = std::chrono::steady_clock::now() - began < std::chrono::seconds(delay);
    EXPECT_EQ(server.wait(), 0);
    if (!in_time && delay < 50) continue;
    EXPECT_TRUE(not_ready);
    EXPECT_EQ(alive, 200);
    EXPECT_TRUE(served.ok()) << served.error_message();
    break;
  }
}

TEST(LifetimeTest, ADrainThatTakesTooLongGivesUpInTime) {
  RunningServer server({"--threads=1", "--simd=scalar", "--drain-timeout=200ms"});
  const auto channel = connect(server.address());
  grpc::Status status;
  std::thread caller([&] {
    v1::DecomposeResponse response;
    status = decompose(channel, slow_request(7900), &response);
  });
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == 1; }));
  EXPECT_EQ(server.stop(), 0);
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_THAT(server.log(), ::testing::HasSubstr("drain_timeout"));
}

TEST(LifetimeTest, ATermSignalThatIsRepeatedAtOnceDrainsAsOne) {
  // On a busy machine more than a second may pass between the two: then that test says nothing.
  for (int i = 0; i < 5; ++i) {
    RunningServer server({"--drain-delay=200ms"});
    const auto began = std::chrono::steady_clock::now();
    server.signal(SIGTERM);
    server.signal(SIGTERM);
    const int code = server.wait();
    if (code != 0 && std::chrono::steady_clock::now() - began > std::chrono::seconds(1)) continue;
    EXPECT_EQ(code, 0) << server.log();
    EXPECT_THAT(server.log(), ::testing::HasSubstr("event=stopped\n"));
    break;
  }
}

TEST(LifetimeTest, WithoutTlsAHangupChangesNothing) {
  RunningServer server;
  server.signal(SIGHUP);
  EXPECT_TRUE(
      wait_until([&] { return server.log().find("event=signal_ignored signal=1 reason=") != std::string::npos; }));
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(2, 2, 1), &response).ok());
  EXPECT_EQ(server.stop(), 0);
}

// Address sanitizer needs terabytes of address space.
#ifndef __SANITIZE_ADDRESS__
TEST(LifetimeTest, WithoutMemoryTheStartFailsInOneLine) {
  for (const char* limit : {"160000", "200000"}) {
    const ProgramResult result = run_program(
        {"/bin/bash", "-c",
         std::string("export OPENBLAS_NUM_THREADS=1; ulimit -v ") + limit + "; exec timeout 100 \"$0\" \"$@\"",
         server_binary(), "--listen=127.0.0.1:0", "--metrics-listen="});
    EXPECT_EQ(result.exit_code, 1) << limit << ": " << result.output;
    EXPECT_THAT(result.output, ::testing::HasSubstr("svdserve: cannot start: ")) << limit;
  }
}
#endif

TEST(LifetimeTest, ASecondSignalStopsAtOnce) {
  RunningServer server({"--drain-delay=30s"});
  server.signal(SIGTERM);
  EXPECT_TRUE(wait_until([&] { return server.get("/readyz").code == 503; }));
  server.signal(SIGINT);
  EXPECT_EQ(server.wait(), 128 + SIGINT);
}

}  // namespace
}  // namespace svdserve::testing
