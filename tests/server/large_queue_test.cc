// Several devices and one queue: which device computes which matrix, and what memory it has reserved by then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/large/factor_runner.h"
#include "server/large/large_job.h"
#include "server/large/large_pipeline.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_factor_engine.h"
#include "tests/server/large_call.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// GPUs of the given memory, each with controls of its own, and the host. A matrix of r rows takes 10 r of a GPU.
class LargeQueueTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSmall = 4, kBig = 40;  // rows; all have two columns
  static constexpr uint64_t kWorking = 1000;       // on the host, if that computes
  static int64_t operand_of(int64_t rows) { return rows * 2 * 8; }
  static int64_t results_of(int64_t rows) { return operand_of(rows) + 2 * 8 + 2 * 2 * 8; }

  ~LargeQueueTest() override {
    for (const auto& controls : gpus) controls->Open();
    host->Open();
    for (const auto& call : calls) call->End();
    calls.clear();
    pipeline.reset();
  }
  void Make(const std::vector<int64_t>& memory, LargeOptions options = {}) {
    options.chunk_bytes = 64;
    std::vector<FactorDevice> devices;
    for (size_t i = 0; i < memory.size(); ++i) {
      gpus.push_back(std::make_shared<FactorControls>());
      devices.push_back({"gpu:" + std::to_string(i), memory[i],
                         std::make_unique<FakeFactorEngine>(gpus.back(), [](const FactorPlan& plan) {
                           return FactorMemory{0, static_cast<uint64_t>(10 * plan.problem.rows)};
                         })});
    }
    devices.push_back({"host", 0, std::make_unique<FakeFactorEngine>(host, FactorMemory{kWorking, 0})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder);
  }
  LargeCall& Begin() {
    calls.push_back(std::make_shared<LargeCall>());
    calls.back()->Begin(pipeline.get());
    return *calls.back();
  }
  LargeCall& Committed(int64_t rows, char fill = 5) {
    LargeCall& call = Begin();
    call.Upload(rows, 2, fill);
    call.Commit();
    return call;
  }
  // Takes all of the call; returns the device that computed it.
  static std::string DeviceOf(LargeCall& call) {
    const std::optional<LargeSummary> summary = call.Finish();
    return summary ? summary->device : call.AwaitEnd().message;
  }
  FactorLoad LoadOf(const std::string& device) { return pipeline->stats().of_device.at(device); }
  static FactorOutcome Lost() {
    FactorOutcome outcome;
    outcome.status = FactorStatus::kFault;
    outcome.detail = "planted";
    outcome.device_lost = true;
    return outcome;
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FactorControls>> gpus;
  std::shared_ptr<FactorControls> host = std::make_shared<FactorControls>();
  std::unique_ptr<LargePipeline> pipeline;
  std::vector<std::shared_ptr<LargeCall>> calls;
};

TEST_F(LargeQueueTest, FourEqualMatricesRunAtOnceOnFourGpus) {
  Make({1000, 1000, 1000, 1000});
  for (const auto& gpu : gpus) gpu->Close();
  for (int i = 0; i < 4; ++i) Begin();
  std::vector<std::thread> clients;
  for (const auto& call : calls) {
    clients.emplace_back([&call] {
      EXPECT_EQ(call->Upload(kBig, 2).device, "gpu:0,gpu:1,gpu:2,gpu:3");
      call->Commit();
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& gpu : gpus) gpu->AwaitBegun(1);  // none ends before all have begun: the gates are closed
  EXPECT_EQ(pipeline->stats().load.running, 4);
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
  for (const auto& gpu : gpus) gpu->Open();
  std::vector<std::string> computed;
  for (const auto& call : calls) computed.push_back(DeviceOf(*call));
  EXPECT_THAT(computed, UnorderedElementsAre("gpu:0", "gpu:1", "gpu:2", "gpu:3"));
  EXPECT_EQ(host->begun(), 0);
}

TEST_F(LargeQueueTest, TheHostStaysIdleHoweverLongTheQueueOfAGpuIs) {
  Make({1000});
  gpus[0]->Close();
  std::vector<LargeCall*> all;
  for (char fill = 1; fill <= 5; ++fill) {
    all.push_back(&Committed(kBig, fill));
    gpus[0]->AwaitBegun(1);
  }
  EXPECT_EQ(LoadOf("gpu:0").waiting, 4);
  EXPECT_EQ(LoadOf("gpu:0").running, 1);
  EXPECT_EQ(LoadOf("host").waiting, 0) << "it may take none of them";
  gpus[0]->Open();
  for (LargeCall* call : all) EXPECT_EQ(DeviceOf(*call), "gpu:0");
  EXPECT_THAT(gpus[0]->order(), ElementsAre(1, 2, 3, 4, 5)) << "first come, first served";
  EXPECT_EQ(host->begun(), 0);
}

TEST_F(LargeQueueTest, WhatFitsNoGpuGoesToTheHost) {
  Make({100});
  LargeCall& call = Begin();
  EXPECT_EQ(call.Upload(kBig, 2).device, "host");
  call.Commit();
  EXPECT_EQ(DeviceOf(call), "host");
}

TEST_F(LargeQueueTest, AMatrixThatFitsOneDeviceDoesNotBlockTheOthers) {
  Make({1000, 100});
  gpus[0]->Close();
  gpus[1]->Close();
  LargeCall& first = Begin();
  EXPECT_EQ(first.Upload(kBig, 2).device, "gpu:0");
  first.Commit();
  gpus[0]->AwaitBegun(1);
  LargeCall& second = Committed(kBig);
  LargeCall& third = Committed(kSmall);
  gpus[1]->AwaitBegun(1);  // the third, which has passed the second
  LargeCall& fourth = Committed(kSmall);
  EXPECT_EQ(LoadOf("gpu:0").waiting, 2) << "the second and the fourth";
  EXPECT_EQ(LoadOf("gpu:1").waiting, 1) << "the fourth";
  EXPECT_EQ(pipeline->stats().load.waiting, 2) << "each counts once";
  gpus[1]->Open();
  EXPECT_EQ(DeviceOf(third), "gpu:1");
  EXPECT_EQ(DeviceOf(fourth), "gpu:1");
  gpus[0]->Open();
  EXPECT_EQ(DeviceOf(first), "gpu:0");
  EXPECT_EQ(DeviceOf(second), "gpu:0");
}

TEST_F(LargeQueueTest, ALostDeviceGivesItsWorkBackToTheQueue) {
  Make({1000, 100});
  gpus[0]->Close();
  gpus[0]->Answer(Lost());
  gpus[1]->Close();
  LargeCall& first = Committed(kBig);
  gpus[0]->AwaitBegun(1);
  LargeCall& other = Committed(kSmall);
  gpus[1]->AwaitBegun(1);
  LargeCall& second = Committed(kBig);
  EXPECT_EQ(LoadOf("gpu:0").waiting, 1);
  gpus[0]->Open();
  EXPECT_EQ(DeviceOf(first), "host");
  EXPECT_EQ(DeviceOf(second), "host");
  EXPECT_EQ(host->begun(), 2);
  LargeCall& third = Begin();
  EXPECT_EQ(third.Upload(kBig, 2).device, "host");
  LargeCall& small = Begin();
  EXPECT_EQ(small.Upload(kSmall, 2).device, "gpu:1") << "the other GPU is healthy";
  gpus[1]->Open();
  EXPECT_EQ(DeviceOf(other), "gpu:1");
  EXPECT_EQ(gpus[0]->begun(), 1) << "it takes nothing more";
}

TEST_F(LargeQueueTest, AMatrixThatADeviceFailsGoesToTheNext) {
  Make({1000, 1000});
  gpus[0]->Close();
  gpus[1]->Close();
  FactorOutcome fault;
  fault.status = FactorStatus::kFault;
  gpus[0]->Answer(fault);
  LargeCall& one = Committed(kBig, 1);
  LargeCall& two = Committed(kBig, 2);
  for (const auto& gpu : gpus) gpu->AwaitBegun(1);
  const int failing = gpus[0]->order()[0];
  LargeCall& three = Committed(kBig, 3);
  gpus[0]->Open();  // fails its first, then the third: its first is for the other GPU now
  gpus[0]->AwaitEnded(2);
  gpus[1]->Open();
  for (LargeCall* call : {&one, &two, &three}) EXPECT_EQ(DeviceOf(*call), "gpu:1");
  EXPECT_EQ(gpus[1]->order().size(), 3u);
  EXPECT_THAT(gpus[0]->order(), ElementsAre(failing, 3));
}

TEST_F(LargeQueueTest, WithoutAnyDeviceLeftTheQueueIsTold) {
  LargeOptions options;
  options.max_bytes = operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking) - 1;
  Make({1000}, options);  // on the host a big one has no room for the working memory
  gpus[0]->Close();
  gpus[0]->Answer(Lost());
  LargeCall& small = Committed(kSmall);
  gpus[0]->AwaitBegun(1);
  LargeCall& big = Begin();
  EXPECT_EQ(big.Upload(kBig, 2).device, "gpu:0");
  big.Commit();
  gpus[0]->Open();
  EXPECT_EQ(DeviceOf(small), "host");
  big.Finish();
  const Error error = big.AwaitEnd();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(error.message.find("planted"), std::string::npos);
}

TEST_F(LargeQueueTest, WhoLeavesTheQueueLetsTheOthersGoOn) {
  Make({1000});
  gpus[0]->Close();
  LargeCall& first = Committed(kBig, 1);
  gpus[0]->AwaitBegun(1);
  LargeCall& second = Committed(kBig, 2);
  LargeCall& third = Committed(kBig, 3);
  second.End();
  EXPECT_EQ(second.AwaitEnd().reason, Reason::kCancelled);
  EXPECT_EQ(LoadOf("gpu:0").waiting, 1);
  gpus[0]->Open();
  EXPECT_EQ(DeviceOf(first), "gpu:0");
  EXPECT_EQ(DeviceOf(third), "gpu:0");
  EXPECT_THAT(gpus[0]->order(), ElementsAre(1, 3));
}

TEST_F(LargeQueueTest, DrainingFinishesTheQueue) {
  Make({1000, 1000});
  for (const auto& gpu : gpus) gpu->Close();
  for (int i = 0; i < 4; ++i) Committed(kBig);
  LargeCall& uploading = Begin();
  uploading.Upload(kBig, 2);
  for (const auto& gpu : gpus) gpu->AwaitBegun(1);
  pipeline->StartDrain();
  std::vector<std::thread> clients;
  for (const auto& call : calls) {
    clients.emplace_back([&call, last = call.get() == &uploading] {
      if (last) call->Commit();
      EXPECT_TRUE(call->Finish().has_value());
    });
  }
  for (const auto& gpu : gpus) gpu->Open();
  EXPECT_TRUE(pipeline->Drain(absl::Hours(1)));
  for (std::thread& client : clients) client.join();
}

// --- memory -------------------------------------------------------------------------------------

TEST_F(LargeQueueTest, MemoryIsReservedInSteps) {
  Make({100});  // a big matrix goes to the host
  host->Close();
  const auto reserved = [this] { return pipeline->stats().inflight_bytes; };
  LargeCall& first = Begin();
  first.Upload(kBig, 2);
  EXPECT_EQ(reserved(), operand_of(kBig));
  first.Commit();
  host->AwaitBegun(1);
  const int64_t computing = operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  EXPECT_EQ(reserved(), computing);
  Committed(kBig);
  EXPECT_EQ(reserved(), computing + operand_of(kBig) + results_of(kBig)) << "it waits: no working memory";
}

// The operands fill the memory, and all matrices are committed before any can be computed.
TEST_F(LargeQueueTest, UploadsThatFillTheMemoryAreAllComputed) {
  constexpr int kMatrices = 6;
  LargeOptions options;
  options.max_requests = kMatrices;  // a step reserves no place
  options.idle_timeout = absl::InfiniteDuration();
  options.max_bytes = kMatrices * operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  Make({100, 100, 100}, options);  // too small for them, so the host computes
  for (int i = 0; i < kMatrices; ++i) Begin().Upload(kBig, 2);
  LargeCall& refused = Begin();
  refused.Open(kSmall, 2);
  EXPECT_EQ(refused.AwaitEnd().code, absl::StatusCode::kResourceExhausted);
  EXPECT_GT(refused.AwaitEnd().retry_after, absl::ZeroDuration());
  std::vector<std::thread> clients;
  std::atomic<int> finished{0};
  for (int i = 0; i < kMatrices; ++i) {
    clients.emplace_back([&, i] {
      calls[static_cast<size_t>(i)]->Commit();
      EXPECT_EQ(DeviceOf(*calls[static_cast<size_t>(i)]), "host");
      ++finished;
    });
  }
  while (finished < kMatrices) {
    EXPECT_LE(pipeline->stats().inflight_bytes, options.max_bytes);
    clock.Advance(LargePipeline::kPeriod);
    std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(host->begun(), kMatrices);
}

// Results that nobody takes keep their memory; the next matrix waits for it and does not fail.
TEST_F(LargeQueueTest, AMatrixWaitsForTheMemoryOfResultsThatAreNotTaken) {
  LargeOptions options;
  options.max_bytes = 2 * operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  Make({}, options);
  LargeCall& first = Committed(kBig);
  std::optional<LargeReply> chunk;
  while (!chunk || !std::holds_alternative<LargeResultChunk>(*chunk)) chunk = first.Write();
  LargeCall& second = Begin();
  second.Upload(kBig, 2);
  second.Commit();
  for (int i = 0; i < 4; ++i) clock.Advance(LargePipeline::kPeriod);
  EXPECT_EQ(pipeline->stats().load.waiting, 1);
  EXPECT_FALSE(second.finished());
  first.Finish();
  chunk.reset();
  clock.Advance(LargePipeline::kPeriod);
  EXPECT_EQ(DeviceOf(second), "host");
}

TEST_F(LargeQueueTest, ADeviceThatFailsAMatrixGivesTheLentMemoryBack) {
  Make({1000});
  FactorOutcome fault;
  fault.status = FactorStatus::kOutOfMemory;
  gpus[0]->Answer(fault);
  host->Close();
  LargeCall& call = Committed(kBig);
  host->AwaitBegun(1);
  EXPECT_EQ(pipeline->stats().inflight_bytes, operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking));
  host->Answer(fault);
  host->Open();
  call.Finish();
  EXPECT_EQ(call.AwaitEnd().code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(call.AwaitEnd().message,
            "the device host has too little memory for this matrix now; send it again later, or a smaller one");
}

}  // namespace
}  // namespace svdserve::server
