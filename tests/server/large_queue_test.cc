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

#include "server/device/large/large_runner.h"
#include "server/large/large_job.h"
#include "server/large/large_pipeline.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_large_engine.h"
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
    for (const auto& controls : gpus) controls->open();
    host->open();
    for (const auto& call : calls) call->end();
    calls.clear();
    pipeline.reset();
  }
  void make(const std::vector<int64_t>& memory, LargeLimits options = {}) {
    options.chunk_bytes = 64;
    std::vector<LargeDevice> devices;
    for (size_t i = 0; i < memory.size(); ++i) {
      gpus.push_back(std::make_shared<LargeControls>());
      devices.push_back({"gpu:" + std::to_string(i), memory[i],
                         std::make_unique<FakeLargeEngine>(gpus.back(), [](const LargePlan& plan) {
                           return LargeWorkspace{0, static_cast<uint64_t>(10 * plan.problem.rows)};
                         })});
    }
    devices.push_back({"host", 0, std::make_unique<FakeLargeEngine>(host, LargeWorkspace{kWorking, 0})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder);
  }
  LargeCall& begin() {
    calls.push_back(std::make_shared<LargeCall>());
    calls.back()->begin(pipeline.get());
    return *calls.back();
  }
  LargeCall& committed(int64_t rows, char fill = 5) {
    LargeCall& call = begin();
    call.upload(rows, 2, fill);
    call.commit();
    return call;
  }
  // Takes all of the call; returns the device that computed it.
  static std::string device_of(LargeCall& call) {
    const std::optional<LargeSummary> summary = call.finish();
    return summary ? summary->device : call.await_end().message;
  }
  LargeLoad load_of(const std::string& device) { return pipeline->stats().of_device.at(device); }
  static LargeOutcome lost() {
    LargeOutcome outcome;
    outcome.status = LargeStatus::kFault;
    outcome.detail = "planted";
    outcome.device_lost = true;
    return outcome;
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<LargeControls>> gpus;
  std::shared_ptr<LargeControls> host = std::make_shared<LargeControls>();
  std::unique_ptr<LargePipeline> pipeline;
  std::vector<std::shared_ptr<LargeCall>> calls;
};

TEST_F(LargeQueueTest, FourEqualMatricesRunAtOnceOnFourGpus) {
  make({1000, 1000, 1000, 1000});
  for (const auto& gpu : gpus) gpu->close();
  for (int i = 0; i < 4; ++i) begin();
  std::vector<std::thread> clients;
  for (const auto& call : calls) {
    clients.emplace_back([&call] {
      EXPECT_EQ(call->upload(kBig, 2).device, "gpu:0,gpu:1,gpu:2,gpu:3");
      call->commit();
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& gpu : gpus) gpu->await_begun(1);  // none ends before all have begun: the gates are closed
  EXPECT_EQ(pipeline->stats().load.running, 4);
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
  for (const auto& gpu : gpus) gpu->open();
  std::vector<std::string> computed;
  for (const auto& call : calls) computed.push_back(device_of(*call));
  EXPECT_THAT(computed, UnorderedElementsAre("gpu:0", "gpu:1", "gpu:2", "gpu:3"));
  EXPECT_EQ(host->begun(), 0);
}

TEST_F(LargeQueueTest, TheHostStaysIdleHoweverLongTheQueueOfAGpuIs) {
  make({1000});
  gpus[0]->close();
  std::vector<LargeCall*> all;
  for (char fill = 1; fill <= 5; ++fill) {
    all.push_back(&committed(kBig, fill));
    gpus[0]->await_begun(1);
  }
  EXPECT_EQ(load_of("gpu:0").waiting, 4);
  EXPECT_EQ(load_of("gpu:0").running, 1);
  EXPECT_EQ(load_of("host").waiting, 0) << "it may take none of them";
  gpus[0]->open();
  for (LargeCall* call : all) EXPECT_EQ(device_of(*call), "gpu:0");
  EXPECT_THAT(gpus[0]->order(), ElementsAre(1, 2, 3, 4, 5)) << "first come, first served";
  EXPECT_EQ(host->begun(), 0);
}

TEST_F(LargeQueueTest, WhatFitsNoGpuGoesToTheHost) {
  make({100});
  LargeCall& call = begin();
  EXPECT_EQ(call.upload(kBig, 2).device, "host");
  call.commit();
  EXPECT_EQ(device_of(call), "host");
}

TEST_F(LargeQueueTest, AMatrixThatFitsOneDeviceDoesNotBlockTheOthers) {
  make({1000, 100});
  gpus[0]->close();
  gpus[1]->close();
  LargeCall& first = begin();
  EXPECT_EQ(first.upload(kBig, 2).device, "gpu:0");
  first.commit();
  gpus[0]->await_begun(1);
  LargeCall& second = committed(kBig);
  LargeCall& third = committed(kSmall);
  gpus[1]->await_begun(1);  // the third, which has passed the second
  LargeCall& fourth = committed(kSmall);
  EXPECT_EQ(load_of("gpu:0").waiting, 2) << "the second and the fourth";
  EXPECT_EQ(load_of("gpu:1").waiting, 1) << "the fourth";
  EXPECT_EQ(pipeline->stats().load.waiting, 2) << "each counts once";
  gpus[1]->open();
  EXPECT_EQ(device_of(third), "gpu:1");
  EXPECT_EQ(device_of(fourth), "gpu:1");
  gpus[0]->open();
  EXPECT_EQ(device_of(first), "gpu:0");
  EXPECT_EQ(device_of(second), "gpu:0");
}

TEST_F(LargeQueueTest, ALostDeviceGivesItsWorkBackToTheQueue) {
  make({1000, 100});
  gpus[0]->close();
  gpus[0]->answer(lost());
  gpus[1]->close();
  LargeCall& first = committed(kBig);
  gpus[0]->await_begun(1);
  LargeCall& other = committed(kSmall);
  gpus[1]->await_begun(1);
  LargeCall& second = committed(kBig);
  EXPECT_EQ(load_of("gpu:0").waiting, 1);
  gpus[0]->open();
  EXPECT_EQ(device_of(first), "host");
  EXPECT_EQ(device_of(second), "host");
  EXPECT_EQ(host->begun(), 2);
  LargeCall& third = begin();
  EXPECT_EQ(third.upload(kBig, 2).device, "host");
  LargeCall& small = begin();
  EXPECT_EQ(small.upload(kSmall, 2).device, "gpu:1") << "the other GPU is healthy";
  gpus[1]->open();
  EXPECT_EQ(device_of(other), "gpu:1");
  EXPECT_EQ(gpus[0]->begun(), 1) << "it takes nothing more";
}

TEST_F(LargeQueueTest, AMatrixThatADeviceFailsGoesToTheNext) {
  make({1000, 1000});
  gpus[0]->close();
  gpus[1]->close();
  LargeOutcome fault;
  fault.status = LargeStatus::kFault;
  gpus[0]->answer(fault);
  LargeCall& one = committed(kBig, 1);
  LargeCall& two = committed(kBig, 2);
  for (const auto& gpu : gpus) gpu->await_begun(1);
  const int failing = gpus[0]->order()[0];
  LargeCall& three = committed(kBig, 3);
  gpus[0]->open();  // fails its first, then the third: its first is for the other GPU now
  gpus[0]->await_ended(2);
  gpus[1]->open();
  for (LargeCall* call : {&one, &two, &three}) EXPECT_EQ(device_of(*call), "gpu:1");
  EXPECT_EQ(gpus[1]->order().size(), 3u);
  EXPECT_THAT(gpus[0]->order(), ElementsAre(failing, 3));
}

TEST_F(LargeQueueTest, WithoutAnyDeviceLeftTheQueueIsTold) {
  LargeLimits options;
  options.max_bytes = operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking) - 1;
  make({1000}, options);  // on the host a big one has no room for the working memory
  gpus[0]->close();
  gpus[0]->answer(lost());
  LargeCall& small = committed(kSmall);
  gpus[0]->await_begun(1);
  LargeCall& big = begin();
  EXPECT_EQ(big.upload(kBig, 2).device, "gpu:0");
  big.commit();
  gpus[0]->open();
  EXPECT_EQ(device_of(small), "host");
  big.finish();
  const Error error = big.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(error.message.find("planted"), std::string::npos);
}

TEST_F(LargeQueueTest, WhoLeavesTheQueueLetsTheOthersGoOn) {
  make({1000});
  gpus[0]->close();
  LargeCall& first = committed(kBig, 1);
  gpus[0]->await_begun(1);
  LargeCall& second = committed(kBig, 2);
  LargeCall& third = committed(kBig, 3);
  second.end();
  EXPECT_EQ(second.await_end().reason, Reason::kCancelled);
  EXPECT_EQ(load_of("gpu:0").waiting, 1);
  gpus[0]->open();
  EXPECT_EQ(device_of(first), "gpu:0");
  EXPECT_EQ(device_of(third), "gpu:0");
  EXPECT_THAT(gpus[0]->order(), ElementsAre(1, 3));
}

TEST_F(LargeQueueTest, DrainingFinishesTheQueue) {
  make({1000, 1000});
  for (const auto& gpu : gpus) gpu->close();
  for (int i = 0; i < 4; ++i) committed(kBig);
  LargeCall& uploading = begin();
  uploading.upload(kBig, 2);
  for (const auto& gpu : gpus) gpu->await_begun(1);
  pipeline->start_drain();
  std::vector<std::thread> clients;
  for (const auto& call : calls) {
    clients.emplace_back([&call, last = call.get() == &uploading] {
      if (last) call->commit();
      EXPECT_TRUE(call->finish().has_value());
    });
  }
  for (const auto& gpu : gpus) gpu->open();
  EXPECT_TRUE(pipeline->drain(absl::Hours(1)));
  for (std::thread& client : clients) client.join();
}

// --- memory -------------------------------------------------------------------------------------

TEST_F(LargeQueueTest, MemoryIsReservedInSteps) {
  make({100});  // a big matrix goes to the host
  host->close();
  const auto reserved = [this] { return pipeline->stats().inflight_bytes; };
  LargeCall& first = begin();
  first.upload(kBig, 2);
  EXPECT_EQ(reserved(), operand_of(kBig));
  first.commit();
  host->await_begun(1);
  const int64_t computing = operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  EXPECT_EQ(reserved(), computing);
  committed(kBig);
  EXPECT_EQ(reserved(), computing + operand_of(kBig) + results_of(kBig)) << "it waits: no working memory";
}

// The operands fill the memory, and all matrices are committed before any can be computed.
TEST_F(LargeQueueTest, UploadsThatFillTheMemoryAreAllComputed) {
  constexpr int kMatrices = 6;
  LargeLimits options;
  options.max_requests = kMatrices;  // a step reserves no place
  options.idle_timeout = absl::InfiniteDuration();
  options.max_bytes = kMatrices * operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  make({100, 100, 100}, options);  // too small for them, so the host computes
  for (int i = 0; i < kMatrices; ++i) begin().upload(kBig, 2);
  LargeCall& refused = begin();
  refused.open(kSmall, 2);
  EXPECT_EQ(refused.await_end().code, absl::StatusCode::kResourceExhausted);
  EXPECT_GT(refused.await_end().retry_after, absl::ZeroDuration());
  std::vector<std::thread> clients;
  std::atomic<int> finished{0};
  for (int i = 0; i < kMatrices; ++i) {
    clients.emplace_back([&, i] {
      calls[static_cast<size_t>(i)]->commit();
      EXPECT_EQ(device_of(*calls[static_cast<size_t>(i)]), "host");
      ++finished;
    });
  }
  while (finished < kMatrices) {
    EXPECT_LE(pipeline->stats().inflight_bytes, options.max_bytes);
    clock.advance(LargePipeline::kPeriod);
    std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(host->begun(), kMatrices);
}

// Results that nobody takes keep their memory; the next matrix waits for it and does not fail.
TEST_F(LargeQueueTest, AMatrixWaitsForTheMemoryOfResultsThatAreNotTaken) {
  LargeLimits options;
  options.max_bytes = 2 * operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking);
  make({}, options);
  LargeCall& first = committed(kBig);
  std::optional<LargeReply> chunk;
  while (!chunk || !std::holds_alternative<LargeResultChunk>(*chunk)) chunk = first.write();
  LargeCall& second = begin();
  second.upload(kBig, 2);
  second.commit();
  for (int i = 0; i < 4; ++i) clock.advance(LargePipeline::kPeriod);
  EXPECT_EQ(pipeline->stats().load.waiting, 1);
  EXPECT_FALSE(second.finished());
  first.finish();
  chunk.reset();
  clock.advance(LargePipeline::kPeriod);
  EXPECT_EQ(device_of(second), "host");
}

TEST_F(LargeQueueTest, ADeviceThatFailsAMatrixGivesTheLentMemoryBack) {
  make({1000});
  LargeOutcome fault;
  fault.status = LargeStatus::kOutOfMemory;
  gpus[0]->answer(fault);
  host->close();
  LargeCall& call = committed(kBig);
  host->await_begun(1);
  EXPECT_EQ(pipeline->stats().inflight_bytes, operand_of(kBig) + results_of(kBig) + static_cast<int64_t>(kWorking));
  host->answer(fault);
  host->open();
  call.finish();
  EXPECT_EQ(call.await_end().code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(call.await_end().message,
            "the device host has too little free memory for this matrix; send it again later, or send a smaller one");
}

}  // namespace
}  // namespace svdserve::server
