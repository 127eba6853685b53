// More than the server can take: refused at once by reason, with when to try again; memory bounded; probes answered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "tests/support/running_server.h"
#include "tests/support/silent_calls.h"
#include "tests/support/wire.h"
#include "wire/metadata.h"

namespace svdserve::testing {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Address sanitizer keeps freed memory back, and multiplies the rest: resident sizes mean nothing there.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kMemoryIsMeasured = false;
#else
constexpr bool kMemoryIsMeasured = true;
#endif

void expect_overload(const grpc::Status& status, const std::string& reason) {
  const ErrorDetails details = details_of(status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(details.reason, reason);
  EXPECT_EQ(details.domain, "svdserve");
  EXPECT_GT(details.retry_seconds, 0);
}

// Keeps the device of a server busy until it is destroyed.
class BusyCall {
 public:
  explicit BusyCall(const RunningServer& server) : channel_(connect(server.address())) {
    caller_ = std::thread([this] {
      v1::DecomposeResponse response;
      v1::SvdService::NewStub(channel_)->Decompose(&context_, slow_request(7000), &response);
    });
    EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") >= 1; }));
  }
  ~BusyCall() {
    context_.TryCancel();
    caller_.join();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::thread caller_;
};

// The server's answer to `request` while its device is busy. On a busy machine the device may be done before the
// request arrives: then again.
grpc::Status ask_while_busy(const RunningServer& server, const v1::DecomposeRequest& request) {
  const auto channel = connect(server.address());
  grpc::Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    BusyCall busy(server);
    v1::DecomposeResponse response;
    status = decompose(channel, request, &response);
  }
  return status;
}

// A busy call is one batch there, so that nothing slips in between.
std::vector<std::string> slow_server(const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"--threads=1", "--simd=scalar", "--max-batch-bytes=60MiB"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

TEST(LoadTest, TooManyRequestsAreRefused) {
  RunningServer server(slow_server({"--max-inflight-requests=1"}));
  expect_overload(ask_while_busy(server, random_request(2, 2, 1)), "OVERLOADED_REQUESTS");
}

// They wait for room, in vain, and are refused before their message is read.
TEST(LoadTest, WhoWaitsTooLongForMemoryIsTold) {
  RunningServer server(
      slow_server({"--max-message-bytes=60MiB", "--max-inflight-bytes=60MiB", "--queue-timeout=50ms"}));
  expect_overload(ask_while_busy(server, random_request(32, 32, 1000)), "QUEUE_TIMEOUT");
  EXPECT_EQ(server.get("/readyz").code, 200);
}

// The answer comes before the deadline does, and says that the server, not the network, gave up.
TEST(LoadTest, DeadlineThatCannotBeMetIsRefusedAtOnce) {
  RunningServer server(slow_server({"--calibration-time=10s"}));  // as long as it needs, on a busy machine
  const auto channel = connect(server.address());
  const v1::DecomposeRequest request = slow_request(7000);
  ErrorDetails details;
  // On a busy machine a short deadline passes before the message has arrived: then a longer one is tried.
  for (std::chrono::milliseconds limit(400);
       details.reason != "DEADLINE_UNREACHABLE" && limit < std::chrono::seconds(60); limit = limit * 3 / 2) {
    BusyCall busy(server);
    if (!wait_until([&] { return server.metric("svdserve_device_outstanding_batches") >= 1; })) continue;
    v1::DecomposeResponse response;
    details = details_of(decompose(channel, request, &response, limit));
  }
  EXPECT_EQ(details.reason, "DEADLINE_UNREACHABLE");
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::DEADLINE_EXCEEDED));
  EXPECT_EQ(details.retry_seconds, -1);
  EXPECT_EQ(server.metric("svdserve_refused_requests_total", {"reason=\"DEADLINE_UNREACHABLE\""}), 1);
}

TEST(LoadTest, ARequestIsNoLongerThanItsClientAnnounces) {
  RunningServer server;
  const auto channel = connect(server.address());
  const v1::DecomposeRequest request = random_request(4, 4, 100);
  const auto status_of = [&](size_t announced) {
    grpc::ClientContext context;
    context.AddMetadata(kRequestBytesKey, std::to_string(announced));
    v1::DecomposeResponse response;
    return v1::SvdService::NewStub(channel)->Decompose(&context, request, &response);
  };
  EXPECT_TRUE(status_of(request.ByteSizeLong()).ok());
  EXPECT_TRUE(status_of(request.ByteSizeLong() + 1).ok());
  for (const size_t announced : {size_t{0}, request.ByteSizeLong() - 1}) {
    const ErrorDetails details = details_of(status_of(announced));
    EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
    EXPECT_EQ(details.field, kRequestBytesKey);
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
}

// Calls of a client behind a proxy, one after another on the same connection.
class CallsOf {
 public:
  CallsOf(const RunningServer& server, std::string client)
      : silent_(connect(server.address())), client_(std::move(client)) {
    EXPECT_TRUE(silent_.wait_until_connected());
  }

  // Begins a call that announces a request of no bytes, and sends none.
  void begin_silent() {
    silent_.begin("/svdserve.v1.SvdService/Decompose", [&](grpc::ClientContext* context) { prepare(context, 0); });
  }
  void cancel_silent() { silent_.cancel(); }
  grpc::Status decompose(const v1::DecomposeRequest& request, std::chrono::milliseconds limit) {
    grpc::ClientContext context;
    prepare(&context, request.ByteSizeLong());
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::DecomposeResponse response;
    return v1::SvdService::NewStub(silent_.channel())->Decompose(&context, request, &response);
  }

 private:
  void prepare(grpc::ClientContext* context, size_t announced) const {
    context->AddMetadata("x-forwarded-for", client_);
    context->AddMetadata(kRequestBytesKey, std::to_string(announced));
  }

  SilentCalls silent_;
  const std::string client_;
};

TEST(LoadTest, WhatOneClientMaySendBeyondItsAnnouncementsIsBounded) {
  // Each silent call may turn out to have a message of 1 MiB, so one client has two of them read at a time.
  constexpr int kSilent = 12;
  RunningServer server({"--max-inflight-bytes=4MiB", "--max-batch-bytes=1MiB", "--max-message-bytes=1MiB",
                        "--max-peer-percent=50", "--stream-idle-timeout=24h", "--trusted-proxies=127.0.0.1"});
  CallsOf first(server, "192.0.2.1"), second(server, "192.0.2.2");
  for (int i = 0; i < kSilent; ++i) first.begin_silent();
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == kSilent; }));
  const v1::DecomposeRequest request = random_request(2, 2, 1);
  EXPECT_TRUE(second.decompose(request, std::chrono::minutes(4)).ok());
  EXPECT_EQ(first.decompose(request, std::chrono::seconds(1)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // The call that gave up has left the line, and so have those that are cancelled.
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == kSilent; }));
  first.cancel_silent();
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
  EXPECT_TRUE(first.decompose(request, std::chrono::minutes(4)).ok());
}

TEST(LoadTest, UnderFullOverloadProbesAnswerAndTheRestIsServed) {
  RunningServer server({"--max-inflight-requests=4"});
  const v1::DecomposeRequest request = slow_request(30);
  std::atomic<bool> stop{false};
  std::atomic<int> served{0}, refused{0}, others{0};
  Callers callers(12, server.address(), request, stop, [&](const grpc::Status& status) {
    if (status.ok()) {
      ++served;
    } else if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      if (++refused == 1) expect_overload(status, "OVERLOADED_REQUESTS");
    } else {
      ++others;
    }
  });
  EXPECT_TRUE(wait_until([&] { return served > 30 && refused > 30; }));
  // The fastest, since this machine may have more to do than the server: a probe that waits for requests always does.
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(server.get("/readyz").code, 200);
    fastest = std::min(fastest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(fastest, std::chrono::seconds(2));
  EXPECT_EQ(server.get("/metrics").code, 200);
  stop = true;
  callers.join();
  EXPECT_EQ(others, 0);
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
}

TEST(LoadTest, ManyConnectionsWithLargeMessagesStayWithinTheirMemory) {
  constexpr int64_t kLedger = 64 * kMiB;
  RunningServer server({"--max-inflight-bytes=64MiB", "--queue-timeout=1h"});
  constexpr int kConnections = 64;
  v1::DecomposeRequest request = slow_request(2047);  // 16 MiB
  request.mutable_options()->set_method(v1::METHOD_BIDIAGONAL);
  std::atomic<int64_t> peak{0};
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      peak = std::max<int64_t>(peak, server.resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::mutex mu;
  std::map<int, int> codes;
  std::map<int, std::string> messages;
  std::vector<std::thread> callers;
  for (int t = 0; t < kConnections; ++t) {
    callers.emplace_back([&] {
      const auto channel = connect(server.address());
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(2));
      v1::DecomposeResponse response;
      const grpc::Status status = decompose(channel, request, &response);
      const std::lock_guard lock(mu);
      ++codes[status.error_code()];
      messages[status.error_code()] = status.error_message();
    });
  }
  for (std::thread& caller : callers) caller.join();
  stop = true;
  watcher.join();
  std::printf("peak resident %.0f MiB;", static_cast<double>(peak) / kMiB);
  for (const auto& [code, n] : codes) std::printf("\n  %d answers of code %d: %s", n, code, messages[code].c_str());
  std::printf("\n");
  if (kMemoryIsMeasured) {
    EXPECT_LE(peak, kLedger + 256 * kMiB);
  }
  // Each waits for its room; nothing is refused and no connection is cut.
  EXPECT_EQ(codes[grpc::StatusCode::OK], kConnections);
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(4, 4, 1), &response).ok());
}

// The quota on received bytes must not stand in the way of one message of the largest size.
TEST(LoadTest, TheLargestMessageGetsThrough) {
  RunningServer server;
  v1::DecomposeRequest request = slow_request(8191);
  request.mutable_options()->set_method(v1::METHOD_BIDIAGONAL);
  ASSERT_GT(request.ByteSizeLong(), 63u * kMiB);
  const auto channel = connect(server.address());
  for (int i = 0; i < 3; ++i) {
    v1::DecomposeResponse response;
    const grpc::Status status = decompose(channel, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_code() << ": " << status.error_message();
  }
}

}  // namespace
}  // namespace svdserve::testing
