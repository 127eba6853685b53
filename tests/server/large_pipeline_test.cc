#include "server/large/large_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/large/factor_runner.h"
#include "server/large/large_job.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_factor_engine.h"
#include "tests/server/large_call.h"

namespace svdserve::server {
namespace {

class LargePipelineTest : public ::testing::Test {
 protected:
  static constexpr int64_t kOperand = 4 * 2 * 8, kResults = kOperand + 2 * 8 + 2 * 2 * 8, kWorking = 1000;

  LargePipelineTest() { Make({}); }
  ~LargePipelineTest() override {
    controls->Open();
    for (const auto& call : calls) call->End();
    calls.clear();
    pipeline.reset();
  }
  void Make(LargeOptions options, int64_t device_memory = 0, uint64_t device_bytes = 0,
            DeviceMonitor* monitor = nullptr) {
    pipeline.reset();
    options.chunk_bytes = chunk_bytes;
    std::vector<FactorDevice> devices;
    devices.push_back(
        {"fake:0", device_memory, std::make_unique<FakeFactorEngine>(controls, FactorMemory{kWorking, device_bytes})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder, monitor);
  }
  LargeCall& Begin() {
    calls.push_back(std::make_shared<LargeCall>());
    calls.back()->Begin(pipeline.get());
    return *calls.back();
  }
  // A call whose operand is there.
  LargeCall& Uploaded(char fill = 5) {
    LargeCall& call = Begin();
    call.Open();
    call.Write();
    for (int64_t at = 0; at < kOperand; at += 16) call.Chunk(at, 16, fill);
    return call;
  }
  LargeCall& Committed() {
    LargeCall& call = Uploaded();
    call.Commit();
    return call;
  }
  void ExpectEnd(LargeCall& call, absl::StatusCode code, Reason reason, const std::string& field) {
    const Error error = call.AwaitEnd();
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_STREQ(name(error.reason), name(reason)) << error.message;
    EXPECT_EQ(error.field, field);
    ExpectAllGivenBack();
  }
  // Another thread may be about to let go of the last of it.
  void ExpectAllGivenBack() {
    const auto some_left = [this] {
      const LargeStats now = pipeline->stats();
      return now.inflight_requests > 0 || now.inflight_bytes > 0;
    };
    for (int i = 0; i < 60000 && some_left(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(pipeline->stats().inflight_bytes, 0);
    EXPECT_EQ(pipeline->stats().inflight_requests, 0);
  }
  void ExpectInvalid(LargeCall& call, Reason reason, const std::string& field) {
    ExpectEnd(call, absl::StatusCode::kInvalidArgument, reason, field);
  }

  int64_t chunk_bytes = 16;
  FakeClock clock;
  CountingRecorder recorder;
  std::shared_ptr<FactorControls> controls = std::make_shared<FactorControls>();
  std::unique_ptr<LargePipeline> pipeline;
  std::vector<std::shared_ptr<LargeCall>> calls;
};

TEST_F(LargePipelineTest, TheWholeLifeOfAFactor) {
  LargeCall& call = Begin();
  EXPECT_EQ(call.reads(), 1);
  call.Open();
  const auto accepted = std::get<LargeAccepted>(*call.Write());
  EXPECT_EQ(accepted.chunk_bytes, 16);
  EXPECT_EQ(accepted.operand_bytes, kOperand);
  EXPECT_EQ(accepted.result_bytes, kResults);
  EXPECT_EQ(accepted.device, "fake:0");
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand);
  clock.Advance(absl::Seconds(2));
  for (const int64_t at : {48, 0, 32, 16}) call.Chunk(at, 16);  // in any order
  EXPECT_EQ(call.reads(), 6);
  controls->Close();
  call.Commit();
  controls->AwaitBegun(1);
  EXPECT_EQ(pipeline->stats().load.running, 1);
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand + kResults + kWorking);
  const auto queued = std::get<LargeProgress>(*call.Write());  // at once
  EXPECT_EQ(queued.elapsed, absl::Seconds(2));
  clock.Advance(absl::Seconds(3));
  FactorProgress now;
  now.stage = FactorStage::kSweep;
  now.sweep = 3;
  now.fraction = 0.5;
  controls->Report(now);
  now.fraction = 0.25;  // it never falls
  controls->Report(now);
  while (true) {  // what was known when the last was written, then the newest
    const auto progress = std::get<LargeProgress>(*call.Write());
    clock.Advance(absl::Seconds(1));
    if (progress.factor.sweep == 0) continue;
    EXPECT_FALSE(progress.queued);
    EXPECT_EQ(progress.factor.stage, FactorStage::kSweep);
    EXPECT_EQ(progress.factor.fraction, 0.5);
    break;
  }
  controls->Open();
  std::string results[kFactorResults];
  LargeSummary summary;
  while (std::optional<LargeReply> reply = call.Write()) {
    if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply)) {
      std::string& result = results[static_cast<size_t>(chunk->result)];
      EXPECT_EQ(chunk->offset, static_cast<int64_t>(result.size()));
      EXPECT_LE(chunk->bytes, 16u);
      result.append(chunk->data, chunk->bytes);
    } else if (const auto* last = std::get_if<LargeSummary>(&*reply)) {
      summary = *last;
    }
  }
  EXPECT_TRUE(call.AwaitEnd().ok());
  EXPECT_EQ(results[0], std::string(16, 6));
  EXPECT_EQ(results[1], std::string(kOperand, 7));
  EXPECT_EQ(results[2], std::string(32, 8));
  EXPECT_EQ(summary.plan.left_columns, 2);
  EXPECT_EQ(summary.outcome.sweeps, 7);
  EXPECT_EQ(summary.timing.upload, absl::Seconds(2));
  EXPECT_GE(summary.timing.compute, absl::Seconds(4));
  call.CloseReads();
  ExpectAllGivenBack();
  const CountingRecorder::Factors counted = recorder.factors();
  EXPECT_EQ(counted.accepted_bytes, kOperand + kResults + kWorking);
  EXPECT_EQ(counted.received_bytes, kOperand);
  EXPECT_EQ(counted.sent_bytes, kResults);
  EXPECT_EQ(counted.sweeps, 7);
  EXPECT_EQ(counted.phases.at(LargePhase::kUpload), std::vector<absl::Duration>{absl::Seconds(2)});
  EXPECT_EQ(counted.phases.size(), 4u);
  EXPECT_TRUE(counted.failures.empty());
}

// --- bad input ----------------------------------------------------------------------------------

TEST_F(LargePipelineTest, AChunkThatOverlaps) {
  LargeCall& call = Begin();
  call.Open();
  call.Write();
  call.Chunk(0, 16);
  call.Chunk(8, 16);
  ExpectInvalid(call, Reason::kChunkOverlap, "chunk.offset");
  EXPECT_EQ(recorder.factors().failures, std::vector<Reason>{Reason::kChunkOverlap});
}

TEST_F(LargePipelineTest, AChunkBeyondTheOperand) {
  for (const int64_t offset : {int64_t{kOperand}, int64_t{kOperand - 8}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    LargeCall& call = Begin();
    call.Open();
    call.Write();
    call.Chunk(offset, 16);
    ExpectInvalid(call, Reason::kChunkOutOfRange, "chunk.offset");
  }
}

TEST_F(LargePipelineTest, AnEmptyChunkAndOneThatIsTooLong) {
  for (const size_t bytes : {0, 17}) {
    LargeCall& call = Begin();
    call.Open();
    call.Write();
    call.Chunk(0, bytes);
    ExpectInvalid(call, Reason::kInvalidField, "chunk.data");
  }
}

TEST_F(LargePipelineTest, AChunkWhoseChecksumIsWrong) {
  LargeCall& call = Begin();
  call.Open();
  call.Write();
  call.Chunk(0, 16, 5, kChecksum + 1);
  ExpectEnd(call, absl::StatusCode::kDataLoss, Reason::kChunkCorrupted, "chunk.crc32c");
}

TEST_F(LargePipelineTest, CommitOrTheEndBeforeTheLastByte) {
  for (const bool commit : {false, true}) {
    LargeCall& call = Begin();
    call.Open();
    call.Write();
    call.Chunk(0, 16);
    call.Chunk(32, 16);
    if (commit) {
      call.Commit();
    } else {
      call.CloseReads();
    }
    ExpectInvalid(call, Reason::kUploadIncomplete, "commit");
    EXPECT_NE(call.AwaitEnd().message.find("32 are there: the first that is not is byte 16"), std::string::npos);
  }
}

TEST_F(LargePipelineTest, MessagesOutOfTurn) {
  LargeCall& chunk_first = Begin();
  chunk_first.Chunk(0, 16);
  ExpectInvalid(chunk_first, Reason::kUnexpectedMessage, "chunk");
  LargeCall& commit_first = Begin();
  commit_first.Commit();
  ExpectInvalid(commit_first, Reason::kUnexpectedMessage, "commit");
  LargeCall& nothing = Begin();
  nothing.CloseReads();
  ExpectInvalid(nothing, Reason::kUnexpectedMessage, "open");
  LargeCall& twice = Begin();
  twice.Open();
  twice.Write();
  twice.Open();
  ExpectInvalid(twice, Reason::kUnexpectedMessage, "open");
}

TEST_F(LargePipelineTest, AnythingAfterCommit) {
  controls->Close();
  for (int message = 0; message < 3; ++message) {
    LargeCall& call = Committed();
    call.Write();
    controls->AwaitBegun(message + 1);
    if (message == 0) call.Chunk(0, 16);
    if (message == 1) call.Commit();
    if (message == 2) call.Open();
    controls->AwaitEnded(message + 1);
    EXPECT_EQ(controls->cancelled(), message + 1);
    const Error error = call.AwaitEnd();
    EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(error.reason, Reason::kUnexpectedMessage);
  }
}

TEST_F(LargePipelineTest, ScatteredChunksHaveABound) {
  LargeCall& call = Begin();
  call.Open(4096, 1);
  call.Write();
  int64_t at = 0;
  while (!call.finished() && at < 4096 * 8) {
    call.Chunk(at, 1);
    at += 2;
  }
  ExpectInvalid(call, Reason::kChunkScattered, "chunk.offset");
  EXPECT_GT(at, 2 * 1024);
}

TEST_F(LargePipelineTest, SignaturesAreLookedAt) {
  LargeCall& good = Begin();
  good.Open(4, 2, std::string("\x01\xff", 2));
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*good.Write()));
  good.Break();
  for (const std::string& wrong :
       {std::string(1, '\1'), std::string(3, '\1'), std::string("\1\0", 2), std::string("\1\2", 2)}) {
    LargeCall& call = Begin();
    call.Open(4, 2, wrong);
    ExpectInvalid(call, Reason::kInvalidField, "open.signature");
  }
}

TEST_F(LargePipelineTest, ShapesAreLookedAt) {
  for (const auto& [rows, cols, field] :
       std::vector<std::tuple<int64_t, int64_t, std::string>>{{0, 1, "open.rows"},
                                                              {1, 0, "open.cols"},
                                                              {-1, 1, "open.rows"},
                                                              {kMaxFactorDimension + 1, 1, "open.rows"},
                                                              {1, INT64_MAX, "open.cols"}}) {
    LargeCall& call = Begin();
    call.Open(rows, cols);
    ExpectInvalid(call, Reason::kInvalidField, field);
  }
}

// --- admission ----------------------------------------------------------------------------------

TEST_F(LargePipelineTest, AFactorBeyondMemoryIsToldWhatWouldFit) {
  LargeOptions options;
  options.max_bytes = kWorking + 4 * 100 * 100 * 8;
  Make(options);
  LargeCall& call = Begin();
  call.Open(1000, 1000);
  ExpectInvalid(call, Reason::kFactorTooLarge, "open.rows");
  // A, U and V^H of order n, and n values: 115^2 3 + 115 <= 40000 < 116^2 3 + 116.
  EXPECT_NE(call.AwaitEnd().message.find("a matrix of 115 x 115 would fit"), std::string::npos)
      << call.AwaitEnd().message;
  LargeCall& fits = Begin();
  fits.Open(115, 115);
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*fits.Write()));
}

TEST_F(LargePipelineTest, AFactorBeyondTheDevicesMemoryIsRefused) {
  Make({}, 1 << 20, (1 << 20) + 1);
  LargeCall& call = Begin();
  call.Open();
  ExpectInvalid(call, Reason::kFactorTooLarge, "open.rows");
}

TEST_F(LargePipelineTest, WhatIsTakenIsRefusedForNow) {
  LargeOptions options;
  options.max_bytes = kOperand + kResults + kWorking;
  Make(options);
  LargeCall& first = Begin();
  first.Open();
  first.Write();
  LargeCall& second = Begin();
  second.Open();
  const Error error = second.AwaitEnd();
  EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  first.Break();
  LargeCall& third = Begin();
  third.Open();
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*third.Write()));
}

TEST_F(LargePipelineTest, OneAfterTheOther) {
  controls->Close();
  LargeCall& first = Committed();
  controls->AwaitBegun(1);
  LargeCall& second = Committed();
  EXPECT_EQ(pipeline->stats().load.waiting, 1);
  EXPECT_EQ(pipeline->stats().load.running, 1);
  const auto of_device = pipeline->stats().of_device;
  ASSERT_EQ(of_device.size(), 1u);
  EXPECT_EQ(of_device.at("fake:0").waiting, 1);
  EXPECT_EQ(of_device.at("fake:0").running, 1);
  for (int i = 0; i < 5; ++i) {  // it hears of its waiting, once a second at least
    const auto progress = std::get<LargeProgress>(*second.Write());
    EXPECT_TRUE(progress.queued);
    clock.Advance(absl::Seconds(1));
    EXPECT_TRUE(second.writing());
  }
  controls->Open();
  for (LargeCall* call : {&first, &second}) {
    while (call->Write()) {
    }
    EXPECT_TRUE(call->AwaitEnd().ok());
  }
}

// --- what an engine may say ---------------------------------------------------------------------

TEST_F(LargePipelineTest, OutcomesWithoutResults) {
  FactorOutcome outcome;
  outcome.status = FactorStatus::kNonFinite;
  outcome.row = 3;
  outcome.col = 1;
  controls->Answer(outcome);
  const auto run = [this]() -> LargeCall& {
    LargeCall& call = Committed();
    while (call.Write()) {
    }
    return call;
  };
  LargeCall& non_finite = run();
  ExpectInvalid(non_finite, Reason::kNonFinite, "chunk.data");
  EXPECT_NE(non_finite.AwaitEnd().message.find("row 3 and column 1"), std::string::npos);
  outcome.status = FactorStatus::kRankDeficient;
  controls->Answer(outcome);
  ExpectInvalid(run(), Reason::kRankDeficient, "chunk.data");
  outcome.status = FactorStatus::kOutOfMemory;
  controls->Answer(outcome);
  ExpectEnd(run(), absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes, "");
  outcome.status = FactorStatus::kFault;
  controls->Answer(outcome);
  ExpectEnd(run(), absl::StatusCode::kInternal, Reason::kDeviceFault, "");
}

TEST_F(LargePipelineTest, ALostDeviceFailsWhatWaitsAndTakesNothingMore) {
  FactorOutcome outcome;
  outcome.status = FactorStatus::kFault;
  outcome.device_lost = true;
  controls->Answer(outcome);
  controls->Close();
  LargeCall& first = Committed();
  controls->AwaitBegun(1);
  LargeCall& second = Committed();
  controls->Open();
  for (LargeCall* call : {&first, &second}) {
    while (call->Write()) {
    }
  }
  for (LargeCall* call : {&first, &second}) {
    ExpectEnd(*call, absl::StatusCode::kUnavailable, Reason::kDeviceFault, "");
  }
  // The line is marked as lost after the first has heard of it.
  LargeCall& third = Begin();
  third.Open();
  ExpectEnd(third, absl::StatusCode::kUnavailable, Reason::kDeviceFault, "");
}

// Two devices, each with controls of its own: a GPU, which fails, and the host.
// The health that the pool of batches would report, and a watchdog.
class FakeMonitor final : public DeviceMonitor {
 public:
  explicit FakeMonitor(Clock* clock) : watchdog(absl::Seconds(10), clock) {}
  bool IsHealthy(std::string_view) const override { return healthy; }
  void Lost(std::string_view) override { healthy = false; }
  std::unique_ptr<Watchdog::Watch> Watch(std::string_view, absl::Duration bound, Watchdog::OnHang on_hang) override {
    return std::make_unique<Watchdog::Watch>(&watchdog, bound, std::move(on_hang));
  }
  Watchdog watchdog;
  std::atomic<bool> healthy{true};
};

TEST_F(LargePipelineTest, ADeviceThatBatchesFoundLostTakesNothingMore) {
  FakeMonitor monitor(&clock);
  Make({}, 1 << 20, 10, &monitor);
  controls->Close();
  LargeCall& first = Committed();
  controls->AwaitBegun(1);
  LargeCall& second = Committed();
  monitor.healthy = false;
  clock.Advance(LargePipeline::kPeriod);
  EXPECT_FALSE(second.Finish().has_value());
  const Error error = second.AwaitEnd();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  first.End();
  controls->Open();
  ExpectAllGivenBack();
  pipeline.reset();
}

TEST_F(LargePipelineTest, AHangIsToldAndItsDeviceTakesNothingMore) {
  FakeMonitor monitor(&clock);
  Make({}, 1 << 20, 10, &monitor);
  controls->Close();
  LargeCall& call = Committed();
  controls->AwaitBegun(1);
  for (int i = 0; i < 20; ++i) clock.Advance(absl::Seconds(1));
  EXPECT_FALSE(call.Finish().has_value());
  const Error error = call.AwaitEnd();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  LargeCall& refused = Begin();
  refused.Open();
  EXPECT_EQ(refused.AwaitEnd().reason, Reason::kDeviceFault);
  controls->Open();
  ExpectAllGivenBack();
  pipeline.reset();
}

class LargePipelineFaultTest : public LargePipelineTest {
 protected:
  void MakeTwo(int64_t max_bytes, const FactorOutcome& of_gpu) {
    pipeline.reset();
    LargeOptions options;
    options.chunk_bytes = 16;
    options.max_bytes = max_bytes;
    std::vector<FactorDevice> devices;
    devices.push_back({"gpu", 100, std::make_unique<FakeFactorEngine>(controls, FactorMemory{0, 100})});
    devices.push_back({"host", 0, std::make_unique<FakeFactorEngine>(host, FactorMemory{kWorking, 0})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder);
    controls->Answer(of_gpu);
  }
  static FactorOutcome fault(FactorStatus status, bool lost) {
    FactorOutcome outcome;
    outcome.status = status;
    outcome.detail = "planted";
    outcome.device_lost = lost;
    return outcome;
  }
  // The rest of a call that goes well on the host.
  void ExpectComputedOnHost(LargeCall& call, bool is_last = true) {
    std::optional<LargeReply> last;
    std::string left;
    while (std::optional<LargeReply> reply = call.Write()) {
      if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply); chunk && chunk->result == FactorResult::kLeft) {
        left.append(chunk->data, chunk->bytes);
      }
      last = std::move(reply);
    }
    EXPECT_EQ(left, std::string(kOperand, 5 + 2));
    ASSERT_TRUE(last && std::holds_alternative<LargeSummary>(*last));
    EXPECT_EQ(std::get<LargeSummary>(*last).device, "host");
    EXPECT_TRUE(call.AwaitEnd().ok());
    last.reset();
    if (is_last) ExpectAllGivenBack();
  }

  std::shared_ptr<FactorControls> host = std::make_shared<FactorControls>();
};

TEST_F(LargePipelineFaultTest, AFactorThatADeviceFailsIsComputedOnAnother) {
  for (const FactorStatus status : {FactorStatus::kFault, FactorStatus::kOutOfMemory}) {
    MakeTwo(1 << 20, fault(status, false));
    host->Close();
    LargeCall& call = Committed();
    host->AwaitBegun(status == FactorStatus::kFault ? 1 : 2);
    EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand + kResults + kWorking) << "with the host's working memory";
    EXPECT_EQ(pipeline->stats().inflight_requests, 1);
    host->Open();
    ExpectComputedOnHost(call);
  }
}

TEST_F(LargePipelineFaultTest, WhatWaitsForALostDeviceGoesToAnother) {
  MakeTwo(1 << 20, fault(FactorStatus::kFault, true));
  controls->Close();
  LargeCall& first = Committed();
  controls->AwaitBegun(1);
  LargeCall& second = Committed();
  controls->Open();
  for (LargeCall* call : {&first, &second}) ExpectComputedOnHost(*call, call == &second);
}

TEST_F(LargePipelineFaultTest, WithoutMemoryForAnotherDeviceTheFaultIsTold) {
  MakeTwo(kOperand + kResults + kWorking - 1, fault(FactorStatus::kFault, false));
  LargeCall& call = Committed();
  while (call.Write()) {
  }
  ExpectEnd(call, absl::StatusCode::kInternal, Reason::kDeviceFault, "");
  EXPECT_EQ(call.AwaitEnd().message, "the device gpu failed to compute this matrix; the server's log says why");
}

TEST_F(LargePipelineTest, NotConvergedHasResults) {
  FactorOutcome outcome;
  outcome.status = FactorStatus::kNotConverged;
  controls->Answer(outcome);
  LargeCall& call = Committed();
  std::optional<LargeReply> last;
  while (std::optional<LargeReply> reply = call.Write()) last = std::move(reply);
  EXPECT_EQ(std::get<LargeSummary>(*last).outcome.status, FactorStatus::kNotConverged);
  EXPECT_TRUE(call.AwaitEnd().ok());
}

// --- who goes, and when -------------------------------------------------------------------------

TEST_F(LargePipelineTest, AClientThatVanishesWhileItUploads) {
  LargeCall& call = Uploaded();
  EXPECT_GT(pipeline->stats().inflight_bytes, 0);
  call.Break();
  ExpectEnd(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItWaits) {
  controls->Close();
  LargeCall& first = Committed();
  controls->AwaitBegun(1);
  LargeCall& second = Committed();
  second.Write();
  second.Break();
  EXPECT_EQ(second.AwaitEnd().reason, Reason::kCancelled);
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
  EXPECT_EQ(pipeline->stats().inflight_requests, 1);
  EXPECT_FALSE(first.finished());
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItIsComputed) {
  controls->Close();
  LargeCall& call = Committed();
  controls->AwaitBegun(1);
  call.Write();
  call.Break();
  controls->AwaitEnded(1);
  EXPECT_EQ(controls->cancelled(), 1);
  ExpectEnd(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItDownloads) {
  LargeCall& call = Committed();
  std::optional<LargeReply> reply;
  while ((reply = call.Write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  while (!call.writing()) std::this_thread::yield();
  call.Break();
  EXPECT_FALSE(call.finished()) << "a write is on its way";
  EXPECT_GT(pipeline->stats().inflight_bytes, 0) << "and the chunk's memory with it";
  reply.reset();
  call.Write(false);
  ExpectEnd(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, SilentClientsAreGivenUp) {
  LargeOptions options;
  options.idle_timeout = absl::Seconds(10);
  Make(options);
  LargeCall& opening = Begin();
  LargeCall& uploading = Uploaded();
  LargeCall& downloading = Committed();
  std::optional<LargeReply> reply;
  while ((reply = downloading.Write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  reply.reset();
  clock.Advance(absl::Seconds(9));
  EXPECT_FALSE(opening.finished() || uploading.finished() || downloading.aborted().has_value());
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(opening.AwaitEnd().reason, Reason::kClientStalled);
  EXPECT_EQ(uploading.AwaitEnd().reason, Reason::kClientStalled);
  ASSERT_TRUE(downloading.aborted().has_value());
  EXPECT_EQ(downloading.aborted()->code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(downloading.aborted()->reason, Reason::kClientStalled);
  EXPECT_EQ(opening.AwaitEnd().message, "the client sent no open within 10s");
  EXPECT_EQ(uploading.AwaitEnd().message, "the client sent no commit within 10s");
  EXPECT_EQ(downloading.aborted()->message, "the client took less than 1 MiB of the replies within 10s");
  downloading.Write(false);
  ExpectEnd(downloading, absl::StatusCode::kDeadlineExceeded, Reason::kClientStalled, "");
}

TEST_F(LargePipelineTest, AnUploadHasToBringAMebibyteInTime) {
  chunk_bytes = 1 << 20;
  LargeOptions options;
  options.max_bytes = int64_t{1} << 30;
  options.idle_timeout = absl::Seconds(10);
  Make(options);
  LargeCall& slow = Begin();
  slow.Open(1024, 256);  // 2 MiB
  slow.Write();
  LargeCall& fast = Begin();
  fast.Open(1024, 256);
  fast.Write();
  fast.Chunk(0, 1 << 20);
  for (int i = 0; i < 9; ++i) {
    clock.Advance(absl::Seconds(1));
    slow.Chunk(i, 1);
    fast.Chunk((1 << 20) + i, 1);
    EXPECT_FALSE(slow.finished());
  }
  fast.Chunk((1 << 20) + 9, (1 << 20) - 9);  // what was left
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(slow.AwaitEnd().reason, Reason::kClientStalled);
  EXPECT_EQ(slow.AwaitEnd().message, "the client sent less than 1 MiB of the operand within 10s");
  EXPECT_FALSE(fast.finished());
  fast.Commit();
  EXPECT_TRUE(fast.Finish().has_value());
}

TEST_F(LargePipelineTest, ADownloadHasToTakeAMebibyteInTime) {
  chunk_bytes = 256 << 10;
  LargeOptions options;
  options.max_bytes = int64_t{1} << 30;
  options.idle_timeout = absl::Seconds(10);
  Make(options);
  for (const bool fast : {true, false}) {
    LargeCall& call = Begin();
    call.Upload(1024, 512);
    call.Commit();
    bool chunks = false;  // begun
    while (!call.finished() && !call.aborted().has_value()) {
      const std::optional<LargeReply> reply = call.Write();
      chunks = chunks || (reply && std::holds_alternative<LargeResultChunk>(*reply));
      if (chunks) clock.Advance(absl::Seconds(fast ? 2 : 3));  // four chunks a MiB
    }
    EXPECT_EQ(call.aborted().has_value(), !fast);
    call.Write(false);
    EXPECT_EQ(call.AwaitEnd().reason, fast ? Reason::kNone : Reason::kClientStalled);
  }
}

TEST_F(LargePipelineTest, WhoTakesNothingIsCutOffWithWhatEndedTheCall) {
  LargeOptions options;
  options.idle_timeout = absl::Seconds(10);
  Make(options);
  LargeCall& call = Committed();
  std::optional<LargeReply> reply;
  while ((reply = call.Write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  reply.reset();
  call.Chunk(0, 16);
  EXPECT_FALSE(call.finished()) << "a write is on its way";
  clock.Advance(absl::Seconds(9));
  EXPECT_FALSE(call.aborted().has_value()) << "it may still take it, and hear of its mistake with all details";
  clock.Advance(absl::Seconds(2));
  ASSERT_TRUE(call.aborted().has_value());
  EXPECT_EQ(call.aborted()->reason, Reason::kUnexpectedMessage);
  call.Write(false);
  ExpectInvalid(call, Reason::kUnexpectedMessage, "chunk");
}

TEST_F(LargePipelineTest, AComputationMayTakeLongerThanAClientMayBeSilent) {
  LargeOptions options;
  options.idle_timeout = absl::Seconds(10);
  Make(options);
  controls->Close();
  LargeCall& call = Committed();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(call.Write().has_value());
    clock.Advance(absl::Seconds(1));
  }
  controls->Open();
  while (call.Write()) {
  }
  EXPECT_TRUE(call.AwaitEnd().ok());
}

TEST_F(LargePipelineTest, DrainingFinishesWhatWasAccepted) {
  LargeCall& opening = Begin();
  LargeCall& call = Uploaded();
  pipeline->StartDrain();
  EXPECT_EQ(opening.AwaitEnd().reason, Reason::kDraining);
  LargeCall& late = Begin();
  EXPECT_EQ(late.AwaitEnd().reason, Reason::kDraining);
  std::thread client([&call] {
    call.Commit();
    while (call.Write()) {
    }
  });
  EXPECT_TRUE(pipeline->Drain(absl::Hours(1)));
  client.join();
  EXPECT_TRUE(call.AwaitEnd().ok());
}

TEST_F(LargePipelineTest, DrainingGivesUpWhatTakesTooLong) {
  controls->Close();
  LargeCall& call = Committed();
  call.Write();
  controls->AwaitBegun(1);
  std::atomic<bool> drained{false};
  std::thread time([&] {
    while (!drained) {
      clock.Advance(absl::Seconds(1));
      while (call.writing()) call.Write();
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(pipeline->Drain(absl::Seconds(5)));
  drained = true;
  time.join();
  while (call.Write()) {
  }
  const Error error = call.AwaitEnd();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDraining);
  controls->AwaitEnded(1);
  EXPECT_EQ(controls->cancelled(), 1);
}

// Clients that go at any step, at once, from threads of their own: nothing is left of any of them.
TEST_F(LargePipelineTest, RandomEndsLeaveNothing) {
  constexpr int kThreads = 4, kCalls = 100;
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([this, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kCalls; ++i) {
        const auto call = std::make_shared<LargeCall>();
        call->Begin(pipeline.get());
        int steps = static_cast<int>(random() % 20);
        const auto go_on = [&] { return steps-- > 0; };
        if (go_on()) call->Open();
        if (go_on()) call->Write();
        for (int64_t at = 0; at < kOperand && go_on(); at += 16) call->Chunk(at, 16);
        if (go_on()) call->Commit();
        while (go_on() && call->Write()) {
        }
        call->End();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ExpectAllGivenBack();
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
}

}  // namespace
}  // namespace svdserve::server
