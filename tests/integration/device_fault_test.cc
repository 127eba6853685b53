// GPUs that fail and hang, through the real server with the fake CUDA back end (fake_cuda.h). Readiness, the policy of
// --on-device-lost, a reply to every request, and gangs of GPUs. The bits that the fake computes mean nothing, so only the status of
// an answer is looked at.
#include <gmock/gmock.h>
#include <grpc/health/v1/health.grpc.pb.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/running_server.h"
#include "tests/support/wire.h"
#include "wire/crc32c.h"

namespace svdserve::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The environment of the servers that start while this lives: `gpus` fake GPUs, whose faults Say() switches on.
class FakeGpus {
 public:
  explicit FakeGpus(int gpus) : file_(absl::StrCat(::testing::TempDir(), "/device_fault_test_", getpid())) {
    Say("");
    Set("LD_LIBRARY_PATH", std::filesystem::path(SVDSERVE_FAKE_CUDA_DRIVER).parent_path().string());
    Set("SVDSERVE_CUDA_PLUGIN", SVDSERVE_FAKE_CUDA_PLUGIN);
    Set("SVDSERVE_FAKE_CUDA_DEVICES", absl::StrCat(gpus));
    Set("SVDSERVE_FAKE_CUDA_FAULT_FILE", file_);
  }
  ~FakeGpus() {
    for (const std::string& name : names_) unsetenv(name.c_str());
    std::filesystem::remove(file_);
  }

  // Such as "launch:1:sticky"; nothing: from now on all is well.
  void Say(const std::string& fault) const {
    std::ofstream(file_ + ".new") << fault;
    std::filesystem::rename(file_ + ".new", file_);
  }
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  const std::string file_;
  std::vector<std::string> names_;
};

// Work that a GPU takes as long as there is one: the bits of such matrices are not the same on the host.
v1::DecomposeRequest work_of_a_gpu() { return random_request(33, 33, 2); }

bool is_device_fault(const grpc::Status& status) { return details_of(status).reason == "DEVICE_FAULT"; }

bool is_serving(const std::shared_ptr<grpc::Channel>& channel) {
  using grpc::health::v1::HealthCheckResponse;
  grpc::ClientContext context;
  HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  return status.ok() && response.status() == HealthCheckResponse::SERVING;
}

// Clients that call until they are told to stop, or the server has gone. Each call is answered: with results, with a
// fault of a device, or, by a server that drains or has gone, with UNAVAILABLE or CANCELLED.
class Callers {
 public:
  explicit Callers(const std::string& address, int threads = 3) {
    for (int t = 0; t < threads; ++t) threads_.emplace_back([this, address] { Call(connect(address)); });
  }
  ~Callers() { Stop(); }

  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int ok() const { return ok_; }
  int faults() const { return faults_; }
  int unavailable() const { return unavailable_; }

 private:
  void Call(const std::shared_ptr<grpc::Channel>& channel) {
    const v1::DecomposeRequest large = work_of_a_gpu(), small = random_request(4, 4, 3);
    for (int i = 0; !stop_; ++i) {
      v1::DecomposeResponse response;
      const grpc::Status status = decompose(channel, i % 2 == 0 ? large : small, &response);
      if (status.ok()) {
        ++ok_;
      } else if (is_device_fault(status)) {
        ++faults_;
      } else {
        EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED))
            << status.error_message();
        ++unavailable_;
        return;
      }
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> ok_{0}, faults_{0}, unavailable_{0};
  std::vector<std::thread> threads_;
};

std::vector<std::string> flags(std::initializer_list<std::string> more) {
  std::vector<std::string> all = {"--calibration-time=0s", "--threads=1", "--cuda-lanes=1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void expect_ready(const RunningServer& server, bool ready) {
  EXPECT_EQ(server.get("/readyz").code, ready ? 200 : 503);
  EXPECT_EQ(server.metric("svdserve_ready"), ready ? 1 : 0);
}

TEST(DeviceFaultTest, ALostGpuTurnsReadinessOffAndEveryRequestIsServed) {
  FakeGpus gpus(2);
  RunningServer server(flags({}));
  const auto channel = connect(server.address());
  EXPECT_EQ(server.metric("svdserve_devices"), 3);
  EXPECT_EQ(server.metric("svdserve_degraded"), 0);
  EXPECT_TRUE(wait_until([&] { return is_serving(channel); }));
  Callers callers(server.address());
  EXPECT_TRUE(wait_until([&] { return callers.ok() > 20; }));
  expect_ready(server, true);
  gpus.Say("launch:1:sticky");
  EXPECT_TRUE(wait_until([&] { return server.get("/readyz").code == 503; }));
  EXPECT_TRUE(wait_until([&] { return !is_serving(channel); }));
  const int before = callers.ok();
  EXPECT_TRUE(wait_until([&] { return callers.ok() > before + 20; }));
  callers.Stop();
  EXPECT_EQ(callers.faults() + callers.unavailable(), 0);  // the host has taken what the GPUs failed
  EXPECT_EQ(server.metric("svdserve_degraded"), 1);
  EXPECT_EQ(server.metric("svdserve_device_hangs_total"), 0);
  EXPECT_GE(server.metric("svdserve_device_losses_total"), 1);
  EXPECT_EQ(server.get("/livez").code, 200);
  EXPECT_THAT(server.log(), HasSubstr("fakeErrorSticky: the context is dead"));
}

TEST(DeviceFaultTest, UnderDegradeTheServerStaysReady) {
  FakeGpus gpus(1);
  RunningServer server(flags({"--on-device-lost=degrade"}));
  const auto channel = connect(server.address());
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, work_of_a_gpu(), &response).ok());
  EXPECT_EQ(response.device(), "cuda:0");
  gpus.Say("wait:1:sticky");
  ASSERT_TRUE(decompose(channel, work_of_a_gpu(), &response).ok());
  EXPECT_EQ(response.device(), "host:0");
  expect_ready(server, true);
  EXPECT_EQ(server.metric("svdserve_degraded"), 1);
}

TEST(DeviceFaultTest, UnderExitTheServerDrainsAndAnotherOneServes) {
  FakeGpus gpus(2);
  {
    RunningServer server(flags({"--on-device-lost=exit", "--drain-delay=200ms"}));
    Callers callers(server.address());
    EXPECT_TRUE(wait_until([&] { return callers.ok() > 20; }));
    gpus.Say("copy_to_host:1:sticky");
    EXPECT_EQ(server.wait(), 3) << server.log();
    callers.Stop();
    EXPECT_EQ(callers.faults(), 0);
    EXPECT_THAT(server.log(), HasSubstr("event=stop_requested reason=\"a GPU was lost\" status=3"));
    EXPECT_THAT(server.log(), HasSubstr("event=stopped\n"));
  }
  gpus.Say("");
  RunningServer restarted(flags({"--on-device-lost=exit"}));
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(restarted.address()), work_of_a_gpu(), &response).ok());
  EXPECT_THAT(response.device(), HasSubstr("cuda:"));
  expect_ready(restarted, true);
}

TEST(DeviceFaultTest, AHangIsFoundAndItsMemoryKeptUntilTheGpuAnswers) {
  FakeGpus gpus(1);
  RunningServer server(flags({"--watchdog-timeout=2s"}));
  auto channel = connect(server.address());
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, work_of_a_gpu(), &response).ok());
  gpus.Say("wait:1:hang");
  const grpc::Status hung = decompose(channel, work_of_a_gpu(), &response);
  EXPECT_EQ(hung.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(hung.error_message(), "device cuda:0 did not respond and was taken out of service");
  EXPECT_TRUE(is_device_fault(hung));
  EXPECT_GT(details_of(hung).retry_seconds, 0);
  expect_ready(server, false);
  EXPECT_EQ(server.metric("svdserve_device_hangs_total", {"device=\"cuda:0\""}), 1);
  ASSERT_TRUE(decompose(channel, work_of_a_gpu(), &response).ok());
  EXPECT_EQ(response.device(), "host:0");
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == 1; }));  // the one that hangs
  gpus.Say("");
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == 0; }));
  EXPECT_EQ(server.metric("svdserve_inflight_bytes"), 0);
  EXPECT_TRUE(wait_until([&] { return server.log().find("event=device_answered_late") != std::string::npos; }));
  channel.reset();  // an idle client is slow to notice that the server goes
  EXPECT_EQ(server.stop(), 0);
  EXPECT_THAT(server.log(), Not(HasSubstr("event=ended_at_once")));
}

TEST(DeviceFaultTest, UnderExitAServerWhoseGpuHangsEndsWithoutIt) {
  FakeGpus gpus(1);
  RunningServer server(flags({"--on-device-lost=exit", "--watchdog-timeout=2s"}));
  Callers callers(server.address());
  EXPECT_TRUE(wait_until([&] { return callers.ok() > 20; }));
  gpus.Say("copy_to_device:1:hang");
  EXPECT_EQ(server.wait(), 3) << server.log();
  callers.Stop();
  EXPECT_LE(callers.faults(), 3);  // of the batch that hung
  EXPECT_THAT(server.log(), HasSubstr("event=ended_at_once reason=\"a device did not stop its work\" status=3"));
}

// It is found by nobody before SIGTERM, and holds it up no longer than --drain-timeout says.
TEST(DeviceFaultTest, AHangDoesNotHoldUpTheEnd) {
  FakeGpus gpus(1);
  RunningServer server(flags({"--watchdog-timeout=1h", "--drain-timeout=500ms"}));
  gpus.Say("launch:1:hang");
  grpc::Status status;
  std::thread caller([&] {
    v1::DecomposeResponse response;
    status = decompose(connect(server.address()), work_of_a_gpu(), &response);
  });
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_device_outstanding_batches") == 1; }));
  EXPECT_EQ(server.stop(), 0) << server.log();
  caller.join();
  EXPECT_EQ(details_of(status).reason, "DRAINING") << status.error_message();
  EXPECT_THAT(server.log(), HasSubstr("event=ended_at_once"));
}

// At start a GPU without memory is refused, and the log says so. Later, operands go without pinned memory.
TEST(DeviceFaultTest, EveryAllocationMayFail) {
  constexpr int kAtStart = 3;                                       // slots of the one lane
  const v1::DecomposeRequest pinned = random_request(33, 33, 200);  // of 1.7 MB, for which a block is pinned
  for (const auto& [call, times] : {std::pair("allocate", 3 * kAtStart), {"allocate_pinned", 2 * kAtStart + 2}}) {
    for (int n = 1; n <= times; ++n) {
      SCOPED_TRACE(absl::StrCat(call, " ", n));
      FakeGpus gpus(1);
      gpus.Set("SVDSERVE_FAKE_CUDA_FAULT", absl::StrCat(call, ":", n, ":memory"));
      RunningServer server(flags({}));
      const auto channel = connect(server.address());
      v1::DecomposeResponse response;
      for (int i = 0; i < 2; ++i) {
        const grpc::Status status = decompose(channel, pinned, &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
      const bool refused = n <= (call == std::string("allocate") ? 3 : 2) * kAtStart;
      EXPECT_EQ(server.log().find("event=device_refused reason=\"cuda:0: fakeErrorMemory: out of memory") !=
                    std::string::npos,
                refused);
      EXPECT_EQ(response.device(), refused ? "host:0" : "cuda:0");
      expect_ready(server, true);
      EXPECT_EQ(server.metric("svdserve_device_pool_bytes") > 0, !refused);
      EXPECT_EQ(server.metric("svdserve_pinned_limit_bytes") > 0, !refused);
    }
  }
}

TEST(DeviceFaultTest, AGpuThatHasNoMemoryForABatchServesOn) {
  FakeGpus gpus(1);
  RunningServer server(flags({}));
  const auto channel = connect(server.address());
  EXPECT_EQ(server.metric("svdserve_pinned_bytes"), 0);
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, random_request(33, 33, 200), &response).ok());
  EXPECT_EQ(response.device(), "cuda:0");
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_pinned_bytes", {"state=\"in_use\""}) == 0; }));
  EXPECT_EQ(server.metric("svdserve_pinned_bytes", {"state=\"kept\""}), 7 << 18);  // of 1.66 MiB
  gpus.Say("clear:1:memory");
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "of-a-fault");
  const v1::DecomposeRequest request = random_request(33, 33, 200);
  ASSERT_TRUE(v1::SvdService::NewStub(channel)->Decompose(&context, request, &response).ok());
  EXPECT_EQ(response.device(), "host:0");
  EXPECT_EQ(server.metric("svdserve_device_faults_total", {"device=\"cuda:0\""}), 1);
  EXPECT_THAT(server.log(), ::testing::ContainsRegex("event=device_fault device=cuda:0 .* calls=of-a-fault"));
  EXPECT_EQ(server.metric("svdserve_degraded"), 0);  // it failed one batch and serves on
  expect_ready(server, true);
}

// Sends a large matrix of zeros. The summary, or one without a device where the call fails.
v1::LargeSummary decompose_large(const std::shared_ptr<grpc::Channel>& channel, v1::PivotStrategy strategy) {
  grpc::ClientContext context;
  const auto stub = v1::SvdService::NewStub(channel);
  const auto stream = stub->DecomposeLarge(&context);
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(v1::DATA_TYPE_F64);
  open.set_memory_order(v1::MEMORY_ORDER_COLUMN_MAJOR);
  open.set_rows(40);
  open.set_cols(40);
  open.mutable_options()->set_pivot_strategy(strategy);
  EXPECT_TRUE(stream->Write(request));
  v1::LargeChunk& chunk = *request.mutable_chunk();
  chunk.set_data(std::string(40 * 40 * sizeof(double), '\0'));
  chunk.set_crc32c(crc32c(0, chunk.data().data(), chunk.data().size()));
  EXPECT_TRUE(stream->Write(request));
  request.mutable_commit();
  EXPECT_TRUE(stream->Write(request));
  v1::LargeSummary summary;
  v1::DecomposeLargeResponse response;
  while (stream->Read(&response)) {
    if (response.has_summary()) summary = response.summary();
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return summary;
}

TEST(DeviceFaultTest, AGangOfGpusTakesALargeMatrix) {
  FakeGpus gpus(2);
  gpus.Set("SVDSERVE_FAKE_CUDA_LARGE", "1");
  const std::string waits = "svdserve_gang_wait_seconds_count";
  {
    RunningServer server(flags({"--large-gpus=4"}));
    EXPECT_THAT(server.log(), HasSubstr("--large-gpus=4, but 2 GPUs compute large matrices"));
    const auto channel = connect(server.address());
    const v1::LargeSummary together = decompose_large(channel, v1::PIVOT_STRATEGY_RECURSIVE);
    EXPECT_EQ(together.device(), "cuda:0,cuda:1");
    EXPECT_EQ(together.members(), 2);
    EXPECT_EQ(server.metric(waits, {"members=\"2\""}), 1);
    EXPECT_EQ(server.metric("svdserve_running_gangs"), 0);
    // A strategy that is not for a gang: each of the GPUs fails it by itself.
    const v1::LargeSummary alone = decompose_large(channel, v1::PIVOT_STRATEGY_ROUND_ROBIN);
    EXPECT_EQ(alone.device(), "host:0");
    EXPECT_EQ(alone.members(), 1);
    EXPECT_EQ(server.metric(waits, {"members=\"2\""}), 1);
    EXPECT_EQ(server.metric("svdserve_device_faults_total", {"device=\"cuda:1\""}), 1);
  }
  RunningServer server(flags({}));
  EXPECT_EQ(decompose_large(connect(server.address()), v1::PIVOT_STRATEGY_RECURSIVE).device(), "host:0");
  EXPECT_EQ(server.metric(waits, {"members=\"2\""}), 0) << "by default there are no gangs";
}

}  // namespace
}  // namespace svdserve::testing
