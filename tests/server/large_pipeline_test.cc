#include "server/large/large_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/large/large_runner.h"
#include "server/large/large_job.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_large_engine.h"
#include "tests/server/fake_monitor.h"
#include "tests/server/large_call.h"

namespace svdserve::server {
namespace {

class LargePipelineTest : public ::testing::Test {
 protected:
  static constexpr int64_t kOperand = 4 * 2 * 8, kResults = kOperand + 2 * 8 + 2 * 2 * 8, kWorking = 1000;

  LargePipelineTest() { make({}); }
  ~LargePipelineTest() override {
    controls->open();
    for (const auto& call : calls) call->end();
    calls.clear();
    pipeline.reset();
  }
  void make(LargeLimits options, int64_t device_memory = 0, uint64_t device_bytes = 0,
            DeviceMonitor* monitor = nullptr) {
    pipeline.reset();
    options.chunk_bytes = chunk_bytes;
    std::vector<LargeDevice> devices;
    devices.push_back(
        {"fake:0", device_memory, std::make_unique<FakeLargeEngine>(controls, LargeWorkspace{kWorking, device_bytes})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder, monitor);
  }
  LargeCall& begin() {
    calls.push_back(std::make_shared<LargeCall>());
    calls.back()->begin(pipeline.get());
    return *calls.back();
  }
  // A call whose operand is there.
  LargeCall& uploaded(char fill = 5) {
    LargeCall& call = begin();
    call.open();
    call.write();
    for (int64_t at = 0; at < kOperand; at += 16) call.chunk(at, 16, fill);
    return call;
  }
  LargeCall& committed() {
    LargeCall& call = uploaded();
    call.commit();
    return call;
  }
  void expect_end(LargeCall& call, absl::StatusCode code, Reason reason, const std::string& field) {
    const Error error = call.await_end();
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_STREQ(name(error.reason), name(reason)) << error.message;
    EXPECT_EQ(error.field, field);
    expect_all_given_back();
  }
  // Another thread may be about to let go of the last of it.
  void expect_all_given_back() {
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
  void expect_invalid(LargeCall& call, Reason reason, const std::string& field) {
    expect_end(call, absl::StatusCode::kInvalidArgument, reason, field);
  }

  int64_t chunk_bytes = 16;
  FakeClock clock;
  CountingRecorder recorder;
  std::shared_ptr<LargeControls> controls = std::make_shared<LargeControls>();
  std::unique_ptr<LargePipeline> pipeline;
  std::vector<std::shared_ptr<LargeCall>> calls;
};

TEST_F(LargePipelineTest, TheWholeLifeOfALargeMatrix) {
  LargeCall& call = begin();
  EXPECT_EQ(call.reads(), 1);
  call.open();
  const auto accepted = std::get<LargeAccepted>(*call.write());
  EXPECT_EQ(accepted.chunk_bytes, 16);
  EXPECT_EQ(accepted.operand_bytes, kOperand);
  EXPECT_EQ(accepted.result_bytes, kResults);
  EXPECT_EQ(accepted.device, "fake:0");
  EXPECT_EQ(accepted.predicted, absl::Seconds(2));  // as many as values
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand);
  clock.advance(absl::Seconds(2));
  for (const int64_t at : {48, 0, 32, 16}) call.chunk(at, 16);  // in any order
  EXPECT_EQ(call.reads(), 6);
  controls->close();
  call.commit();
  controls->await_begun(1);
  EXPECT_EQ(pipeline->stats().load.running, 1);
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand + kResults + kWorking);
  const auto queued = std::get<LargeProgressReport>(*call.write());  // at once
  EXPECT_EQ(queued.elapsed, absl::Seconds(2));
  clock.advance(absl::Seconds(3));
  LargeProgress now;
  now.stage = LargeStage::kSweep;
  now.sweep = 3;
  now.fraction = 0.5;
  controls->report(now);
  now.fraction = 0.25;  // it never falls
  controls->report(now);
  while (true) {  // what was known when the last was written, then the newest
    const auto progress = std::get<LargeProgressReport>(*call.write());
    clock.advance(absl::Seconds(1));
    EXPECT_EQ(progress.device, progress.queued ? "" : "fake:0");
    if (progress.factor.sweep == 0) continue;
    EXPECT_FALSE(progress.queued);
    EXPECT_EQ(progress.factor.stage, LargeStage::kSweep);
    EXPECT_EQ(progress.factor.fraction, 0.5);
    break;
  }
  controls->open();
  std::string results[kLargeResults];
  LargeSummary summary;
  while (std::optional<LargeReply> reply = call.write()) {
    if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply)) {
      std::string& result = results[static_cast<size_t>(chunk->result)];
      EXPECT_EQ(chunk->offset, static_cast<int64_t>(result.size()));
      EXPECT_LE(chunk->bytes, 16u);
      result.append(chunk->data, chunk->bytes);
    } else if (const auto* last = std::get_if<LargeSummary>(&*reply)) {
      summary = *last;
    }
  }
  EXPECT_TRUE(call.await_end().ok());
  EXPECT_EQ(results[0], std::string(16, 6));
  EXPECT_EQ(results[1], std::string(kOperand, 7));
  EXPECT_EQ(results[2], std::string(32, 8));
  EXPECT_EQ(summary.plan.left_columns, 2);
  EXPECT_EQ(summary.outcome.sweeps, 7);
  EXPECT_EQ(summary.timing.upload, absl::Seconds(2));
  EXPECT_GE(summary.timing.compute, absl::Seconds(4));
  call.close_reads();
  expect_all_given_back();
  const CountingRecorder::Factors counted = recorder.factors();
  EXPECT_EQ(counted.accepted_bytes, kOperand + kResults + kWorking);
  EXPECT_EQ(counted.received_bytes, kOperand);
  EXPECT_EQ(counted.sent_bytes, kResults);
  EXPECT_EQ(counted.sweeps, 7);
  EXPECT_EQ(counted.phases.at(LargePhase::kUpload), std::vector<absl::Duration>{absl::Seconds(2)});
  EXPECT_EQ(counted.phases.size(), 4u);
  EXPECT_TRUE(counted.failures.empty());
}

TEST_F(LargePipelineTest, ProgressGoesOnByTheClockWhereTheDeviceTellsNothing) {
  LargeCall& call = begin();
  call.open();
  call.write();
  for (const int64_t at : {0, 16, 32, 48}) call.chunk(at, 16);
  controls->close();
  call.commit();
  controls->await_begun(1);
  LargeProgress now;
  now.stage = LargeStage::kWarmStart;
  now.fraction = 0.25;
  now.next_fraction = 0.75;
  now.next_seconds = 8;
  controls->report(now);
  const absl::Time reported = clock.now();
  double last = 0;
  for (int i = 0; i < 20; ++i) {
    // Written as soon as the tick asks for it, at a time that the clock still has.
    const auto progress = std::get<LargeProgressReport>(*call.write());
    const double gone = absl::ToDoubleSeconds(clock.now() - reported);
    EXPECT_GE(progress.factor.fraction, last);
    EXPECT_LE(progress.factor.fraction, 0.25 + 0.5 * std::min(gone / 8, 1.0) + 1e-9);
    last = progress.factor.fraction;
    clock.advance(absl::Seconds(1));
  }
  EXPECT_EQ(last, 0.75);
  controls->open();
  while (call.write()) {
  }
  EXPECT_TRUE(call.await_end().ok());
}

// --- chunks that are copied while more comes ----------------------------------------------------

TEST_F(LargePipelineTest, TheNextChunkIsReadWhileOneIsCopiedAndNotWhileTwoAre) {
  LargeCall& call = begin();
  call.open();
  call.write();
  EXPECT_EQ(call.reads(), 2);
  const auto first = call.begin_chunk(0, 16);
  EXPECT_EQ(call.reads(), 3);
  const auto second = call.begin_chunk(16, 16);
  EXPECT_EQ(call.reads(), 3);
  call.end_chunk(16, 16, second);  // the later one is faster
  EXPECT_EQ(call.reads(), 4);
  const auto third = call.begin_chunk(32, 16);
  EXPECT_EQ(call.reads(), 4);
  call.end_chunk(0, 16, first);
  EXPECT_EQ(call.reads(), 5);
  call.end_chunk(32, 16, third);
  EXPECT_EQ(call.reads(), 5);
  call.chunk(48, 16);
  EXPECT_EQ(call.reads(), 6);
  call.commit();
  EXPECT_TRUE(call.finish().has_value());
  EXPECT_EQ(recorder.factors().received_bytes, kOperand);
}

TEST_F(LargePipelineTest, CommitWaitsForTheChunkThatIsCopied) {
  make({.idle_timeout = absl::Seconds(60)});
  LargeCall& call = begin();
  call.open();
  call.write();
  for (const int64_t at : {0, 16, 32}) call.chunk(at, 16);
  auto place = call.begin_chunk(48, 16);
  call.commit();
  EXPECT_EQ(call.reads(), 7);  // whether something follows
  call.close_reads();
  clock.advance(absl::Seconds(61));  // the client has done all it has to
  EXPECT_FALSE(call.finished());
  EXPECT_FALSE(call.writing());
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand);
  call.end_chunk(48, 16, std::move(place));
  const auto summary = call.finish();
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->timing.upload, absl::Seconds(61));
  expect_all_given_back();
}

TEST_F(LargePipelineTest, ADamagedChunkWithTheNextOneOrCommitBehindIt) {
  for (const bool commit : {false, true}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    for (const int64_t at : {0, 16}) call.chunk(at, 16);
    if (commit) call.chunk(32, 16);
    auto damaged = call.begin_chunk(48, 16);
    auto next = commit ? nullptr : call.begin_chunk(32, 16);
    if (commit) call.commit();
    call.end_chunk(48, 16, std::move(damaged), false);
    EXPECT_TRUE(call.finished());
    if (next != nullptr) call.end_chunk(32, 16, std::move(next));
    expect_end(call, absl::StatusCode::kDataLoss, Reason::kChunkCorrupted, "chunk.crc32c");
  }
  EXPECT_EQ(controls->begun(), 0);
}

TEST_F(LargePipelineTest, ACallThatEndsWhileAChunkIsCopiedKeepsTheMemoryUntilThen) {
  for (const bool overlap : {false, true}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    auto place = call.begin_chunk(0, 16);
    if (overlap) {
      call.chunk(8, 16);
    } else {
      call.break_off();
    }
    EXPECT_TRUE(call.finished());
    EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand);
    std::memset(place.get(), 5, 16);
    const int reads = call.reads();
    call.end_chunk(0, 16, std::move(place), overlap);
    EXPECT_EQ(call.reads(), reads);
    expect_all_given_back();
    EXPECT_EQ(call.await_end().reason, overlap ? Reason::kChunkOverlap : Reason::kCancelled);
  }
}

TEST_F(LargePipelineTest, AnythingAfterACommitThatWaits) {
  for (const bool commit : {false, true}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    for (const int64_t at : {0, 16, 32}) call.chunk(at, 16);
    auto place = call.begin_chunk(48, 16);
    call.commit();
    if (commit) {
      call.commit();
    } else {
      call.chunk(0, 16);
    }
    call.end_chunk(48, 16, std::move(place));
    expect_invalid(call, Reason::kUnexpectedMessage, commit ? "commit" : "chunk");
  }
}

// As a transport has it: whichever thread is free takes the next message as soon as it is asked for.
TEST_F(LargePipelineTest, TwoThreadsTakeTheMessagesWhileAnotherMayCancel) {
  constexpr int64_t kRows = 64, kCols = 8, kBytes = kRows * kCols * 8;
  for (int round = 0; round < 20; ++round) {
    const bool cancels = round % 2 == 1;
    LargeCall& call = begin();
    call.open(kRows, kCols);
    call.write();
    Mutex turn;
    int taken = 1;  // reads that had a message: open
    int64_t at = 0;
    const auto take_messages = [&] {
      while (!call.finished()) {
        std::shared_ptr<char> place;
        int64_t offset = 0;
        {
          MutexLock lock(&turn);
          if (at > kBytes) return;
          if (call.reads() > taken) {
            ++taken;
            offset = std::exchange(at, at + chunk_bytes);
            if (offset == kBytes) call.commit();
            if (offset < kBytes) place = call.begin_chunk(offset, static_cast<size_t>(chunk_bytes));
          }
        }
        if (place == nullptr) {
          std::this_thread::yield();
          continue;
        }
        std::memset(place.get(), 5, static_cast<size_t>(chunk_bytes));
        call.end_chunk(offset, static_cast<size_t>(chunk_bytes), place);
      }
    };
    std::thread one(take_messages), other(take_messages);
    if (cancels) {
      while (call.reads() < 50 + round) std::this_thread::yield();
      call.break_off();
    } else {
      EXPECT_TRUE(call.finish().has_value());
    }
    one.join();
    other.join();
    if (cancels) {
      while (call.write(false)) {
      }
      EXPECT_EQ(call.await_end().reason, Reason::kCancelled);
    }
    expect_all_given_back();
  }
}

// --- bad input ----------------------------------------------------------------------------------

TEST_F(LargePipelineTest, AChunkThatOverlaps) {
  LargeCall& call = begin();
  call.open();
  call.write();
  call.chunk(0, 16);
  call.chunk(8, 16);
  expect_invalid(call, Reason::kChunkOverlap, "chunk.offset");
  EXPECT_EQ(recorder.factors().failures, std::vector<Reason>{Reason::kChunkOverlap});
}

TEST_F(LargePipelineTest, AChunkBeyondTheOperand) {
  for (const int64_t offset : {int64_t{kOperand}, int64_t{kOperand - 8}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    call.chunk(offset, 16);
    expect_invalid(call, Reason::kChunkOutOfRange, "chunk.offset");
  }
}

TEST_F(LargePipelineTest, AnEmptyChunkAndOneThatIsTooLong) {
  for (const size_t bytes : {0, 17}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    call.chunk(0, bytes);
    expect_invalid(call, Reason::kInvalidField, "chunk.data");
  }
}

TEST_F(LargePipelineTest, AChunkWhoseChecksumIsWrong) {
  LargeCall& call = begin();
  call.open();
  call.write();
  call.chunk(0, 16, 5, kChecksum + 1);
  expect_end(call, absl::StatusCode::kDataLoss, Reason::kChunkCorrupted, "chunk.crc32c");
}

TEST_F(LargePipelineTest, CommitOrTheEndBeforeTheLastByte) {
  for (const bool commit : {false, true}) {
    LargeCall& call = begin();
    call.open();
    call.write();
    call.chunk(0, 16);
    call.chunk(32, 16);
    if (commit) {
      call.commit();
    } else {
      call.close_reads();
    }
    expect_invalid(call, Reason::kUploadIncomplete, "commit");
    EXPECT_NE(call.await_end().message.find("only 32 were received; the first missing byte is 16"), std::string::npos);
  }
}

TEST_F(LargePipelineTest, MessagesOutOfTurn) {
  LargeCall& chunk_first = begin();
  chunk_first.chunk(0, 16);
  expect_invalid(chunk_first, Reason::kUnexpectedMessage, "chunk");
  LargeCall& commit_first = begin();
  commit_first.commit();
  expect_invalid(commit_first, Reason::kUnexpectedMessage, "commit");
  LargeCall& nothing = begin();
  nothing.close_reads();
  expect_invalid(nothing, Reason::kUnexpectedMessage, "open");
  LargeCall& twice = begin();
  twice.open();
  twice.write();
  twice.open();
  expect_invalid(twice, Reason::kUnexpectedMessage, "open");
}

TEST_F(LargePipelineTest, AnythingAfterCommit) {
  controls->close();
  for (int message = 0; message < 3; ++message) {
    LargeCall& call = committed();
    call.write();
    controls->await_begun(message + 1);
    if (message == 0) call.chunk(0, 16);
    if (message == 1) call.commit();
    if (message == 2) call.open();
    controls->await_ended(message + 1);
    EXPECT_EQ(controls->cancelled(), message + 1);
    const Error error = call.await_end();
    EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(error.reason, Reason::kUnexpectedMessage);
  }
}

TEST_F(LargePipelineTest, ScatteredChunksHaveABound) {
  LargeCall& call = begin();
  call.open(4096, 1);
  call.write();
  int64_t at = 0;
  while (!call.finished() && at < 4096 * 8) {
    call.chunk(at, 1);
    at += 2;
  }
  expect_invalid(call, Reason::kChunkScattered, "chunk.offset");
  EXPECT_GT(at, 2 * 1024);
}

TEST_F(LargePipelineTest, SignaturesAreLookedAt) {
  LargeCall& good = begin();
  good.open(4, 2, std::string("\x01\xff", 2));
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*good.write()));
  good.break_off();
  for (const std::string& wrong :
       {std::string(1, '\1'), std::string(3, '\1'), std::string("\1\0", 2), std::string("\1\2", 2)}) {
    LargeCall& call = begin();
    call.open(4, 2, wrong);
    expect_invalid(call, Reason::kInvalidField, "open.signature");
  }
}

TEST_F(LargePipelineTest, EigenproblemsAreLookedAt) {
  LargeCall& good = begin();
  good.open(3, 3, "", LargeProblem::kHermitian);
  EXPECT_EQ(std::get<LargeAccepted>(*good.write()).result_bytes, (3 + 3 * 3) * 8);
  good.break_off();
  LargeCall& factor = begin();
  factor.open(4, 2, std::string("\x01\xff", 2), LargeProblem::kHermitianFactor);
  EXPECT_EQ(std::get<LargeAccepted>(*factor.write()).result_bytes, (4 + 4 * 4) * 8);
  factor.break_off();
  LargeCall& general = begin();
  general.open(3, 3, "", LargeProblem::kGeneral);  // 3 values and 9 components of vectors, all complex
  EXPECT_EQ(std::get<LargeAccepted>(*general.write()).result_bytes, (3 + 3 * 3) * 16);
  general.break_off();
  for (const auto& [rows, cols, signature, problem, field] :
       std::vector<std::tuple<int64_t, int64_t, std::string, LargeProblem, std::string>>{
           {4, 3, "", LargeProblem::kHermitian, "open.cols"},
           {2, 2, "\x01\x01", LargeProblem::kHermitian, "open.signature"},
           {4, 3, "", LargeProblem::kGeneral, "open.cols"},
           {2, 2, "\x01\x01", LargeProblem::kGeneral, "open.signature"},
           {2, 2, "", LargeProblem::kHermitianFactor, "open.signature"},
           {2, 2, "\x01\x02", LargeProblem::kHermitianFactor, "open.signature"},
           {2, 3, "\x01\x01\x01", LargeProblem::kHermitianFactor, "open.signature"}}) {
    LargeCall& call = begin();
    call.open(rows, cols, signature, problem);
    expect_invalid(call, Reason::kInvalidField, field);
  }
}

TEST_F(LargePipelineTest, ShapesAreLookedAt) {
  for (const auto& [rows, cols, field] :
       std::vector<std::tuple<int64_t, int64_t, std::string>>{{0, 1, "open.rows"},
                                                              {1, 0, "open.cols"},
                                                              {-1, 1, "open.rows"},
                                                              {kMaxLargeDimension + 1, 1, "open.rows"},
                                                              {1, INT64_MAX, "open.cols"}}) {
    LargeCall& call = begin();
    call.open(rows, cols);
    expect_invalid(call, Reason::kInvalidField, field);
  }
}

// --- admission ----------------------------------------------------------------------------------

TEST_F(LargePipelineTest, ALargeMatrixBeyondMemoryIsToldWhatWouldFit) {
  LargeLimits options;
  options.max_bytes = kWorking + 4 * 100 * 100 * 8;
  make(options);
  LargeCall& call = begin();
  call.open(1000, 1000);
  expect_invalid(call, Reason::kFactorTooLarge, "open.rows");
  // A, U and V^H of order n, and n values: 115^2 3 + 115 <= 40000 < 116^2 3 + 116.
  EXPECT_NE(call.await_end().message.find("a matrix of 115 x 115 would fit"), std::string::npos)
      << call.await_end().message;
  LargeCall& fits = begin();
  fits.open(115, 115);
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*fits.write()));
}

TEST_F(LargePipelineTest, ALargeMatrixBeyondTheDevicesMemoryIsRefused) {
  make({}, 1 << 20, (1 << 20) + 1);
  LargeCall& call = begin();
  call.open();
  expect_invalid(call, Reason::kFactorTooLarge, "open.rows");
}

TEST_F(LargePipelineTest, WhatIsTakenIsRefusedForNow) {
  LargeLimits options;
  options.max_bytes = kOperand + kResults + kWorking;
  make(options);
  LargeCall& first = begin();
  first.open();
  first.write();
  LargeCall& second = begin();
  second.open();
  const Error error = second.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  first.break_off();
  LargeCall& third = begin();
  third.open();
  EXPECT_TRUE(std::holds_alternative<LargeAccepted>(*third.write()));
}

TEST_F(LargePipelineTest, OneAfterTheOther) {
  controls->close();
  LargeCall& first = committed();
  controls->await_begun(1);
  LargeCall& second = committed();
  EXPECT_EQ(pipeline->stats().load.waiting, 1);
  EXPECT_EQ(pipeline->stats().load.running, 1);
  const auto of_device = pipeline->stats().of_device;
  ASSERT_EQ(of_device.size(), 1u);
  EXPECT_EQ(of_device.at("fake:0").waiting, 1);
  EXPECT_EQ(of_device.at("fake:0").running, 1);
  for (int i = 0; i < 5; ++i) {  // it hears of its waiting, once a second at least
    const auto progress = std::get<LargeProgressReport>(*second.write());
    EXPECT_TRUE(progress.queued);
    clock.advance(absl::Seconds(1));
    EXPECT_TRUE(second.writing());
  }
  controls->open();
  for (LargeCall* call : {&first, &second}) {
    while (call->write()) {
    }
    EXPECT_TRUE(call->await_end().ok());
  }
}

// --- what an engine may say ---------------------------------------------------------------------

TEST_F(LargePipelineTest, OutcomesWithoutResults) {
  LargeOutcome outcome;
  outcome.status = LargeStatus::kNonFinite;
  outcome.row = 3;
  outcome.col = 1;
  controls->answer(outcome);
  const auto run = [this]() -> LargeCall& {
    LargeCall& call = committed();
    while (call.write()) {
    }
    return call;
  };
  LargeCall& non_finite = run();
  expect_invalid(non_finite, Reason::kNonFinite, "chunk.data");
  EXPECT_NE(non_finite.await_end().message.find("row 3 and column 1"), std::string::npos);
  outcome.status = LargeStatus::kRankDeficient;
  controls->answer(outcome);
  expect_invalid(run(), Reason::kRankDeficient, "chunk.data");
  outcome.status = LargeStatus::kOutOfMemory;
  controls->answer(outcome);
  expect_end(run(), absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes, "");
  outcome.status = LargeStatus::kFault;
  controls->answer(outcome);
  expect_end(run(), absl::StatusCode::kInternal, Reason::kDeviceFault, "");
}

TEST_F(LargePipelineTest, ALostDeviceFailsWhatWaitsAndTakesNothingMore) {
  LargeOutcome outcome;
  outcome.status = LargeStatus::kFault;
  outcome.device_lost = true;
  controls->answer(outcome);
  controls->close();
  LargeCall& first = committed();
  controls->await_begun(1);
  LargeCall& second = committed();
  controls->open();
  for (LargeCall* call : {&first, &second}) {
    while (call->write()) {
    }
  }
  for (LargeCall* call : {&first, &second}) {
    expect_end(*call, absl::StatusCode::kUnavailable, Reason::kDeviceFault, "");
  }
  // The line is marked as lost after the first has heard of it.
  LargeCall& third = begin();
  third.open();
  expect_end(third, absl::StatusCode::kUnavailable, Reason::kDeviceFault, "");
}

TEST_F(LargePipelineTest, ADeviceThatBatchesFoundLostTakesNothingMore) {
  FakeMonitor monitor(&clock);
  make({}, 1 << 20, 10, &monitor);
  controls->close();
  LargeCall& first = committed();
  controls->await_begun(1);
  LargeCall& second = committed();
  monitor.healthy = false;
  clock.advance(LargePipeline::kPeriod);
  EXPECT_FALSE(second.finish().has_value());
  const Error error = second.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  first.end();
  controls->open();
  expect_all_given_back();
  pipeline.reset();
}

TEST_F(LargePipelineTest, AHangIsToldAndItsDeviceTakesNothingMore) {
  FakeMonitor monitor(&clock);
  make({}, 1 << 20, 10, &monitor);
  controls->close();
  LargeCall& call = committed();
  controls->await_begun(1);
  for (int i = 0; i < 20; ++i) clock.advance(absl::Seconds(1));
  EXPECT_FALSE(call.finish().has_value());
  const Error error = call.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDeviceFault);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  LargeCall& refused = begin();
  refused.open();
  EXPECT_EQ(refused.await_end().reason, Reason::kDeviceFault);
  controls->open();
  expect_all_given_back();
  pipeline.reset();
}

// Two devices, each with controls of its own: a GPU, which fails, and the host.
class LargePipelineFaultTest : public LargePipelineTest {
 protected:
  void make_two(int64_t max_bytes, const LargeOutcome& of_gpu) {
    pipeline.reset();
    LargeLimits options;
    options.chunk_bytes = 16;
    options.max_bytes = max_bytes;
    std::vector<LargeDevice> devices;
    devices.push_back({"gpu", 100, std::make_unique<FakeLargeEngine>(controls, LargeWorkspace{0, 100})});
    devices.push_back({"host", 0, std::make_unique<FakeLargeEngine>(host, LargeWorkspace{kWorking, 0})});
    pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder);
    controls->answer(of_gpu);
  }
  static LargeOutcome fault(LargeStatus status, bool lost) {
    LargeOutcome outcome;
    outcome.status = status;
    outcome.detail = "planted";
    outcome.device_lost = lost;
    return outcome;
  }
  // The rest of a call that goes well on the host.
  void expect_computed_on_host(LargeCall& call, bool is_last = true) {
    std::optional<LargeReply> last;
    std::string left;
    while (std::optional<LargeReply> reply = call.write()) {
      if (const auto* chunk = std::get_if<LargeResultChunk>(&*reply); chunk && chunk->result == LargeResult::kLeft) {
        left.append(chunk->data, chunk->bytes);
      }
      last = std::move(reply);
    }
    EXPECT_EQ(left, std::string(kOperand, 5 + 2));
    ASSERT_TRUE(last && std::holds_alternative<LargeSummary>(*last));
    EXPECT_EQ(std::get<LargeSummary>(*last).device, "host");
    EXPECT_TRUE(call.await_end().ok());
    last.reset();
    if (is_last) expect_all_given_back();
  }

  std::shared_ptr<LargeControls> host = std::make_shared<LargeControls>();
};

// A GPU that would like more memory than it has, or takes less of its own and some of the host's.
class NarrowEngine final : public LargeEngine {
 public:
  NarrowEngine(std::shared_ptr<LargeControls> controls, uint64_t host_bytes)
      : controls_(std::move(controls)), host_bytes_(host_bytes) {}
  LargeWorkspace memory(const LargePlan& /*plan*/, uint64_t device_room) const override {
    return device_room >= 150 ? LargeWorkspace{0, 150} : LargeWorkspace{host_bytes_, 80};
  }
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    EXPECT_EQ(control.device_room, 100u);
    return controls_->compute(plan, operands, control);
  }

 private:
  const std::shared_ptr<LargeControls> controls_;
  const uint64_t host_bytes_;
};

TEST_F(LargePipelineTest, AGpuWithLittleMemoryTakesTheHostsAsWell) {
  pipeline.reset();
  LargeLimits options;
  options.chunk_bytes = 16;
  options.max_bytes = 1 << 20;
  std::vector<LargeDevice> devices;
  devices.push_back({"gpu", 100, std::make_unique<NarrowEngine>(controls, kWorking)});
  pipeline = std::make_unique<LargePipeline>(options, std::move(devices), &clock, &recorder);
  controls->close();
  LargeCall& call = committed();
  controls->await_begun(1);
  EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand + kResults + kWorking);
  controls->open();
  while (call.write()) continue;
  EXPECT_TRUE(call.await_end().ok());
  expect_all_given_back();
  pipeline.reset();
}

TEST_F(LargePipelineFaultTest, ALargeMatrixThatADeviceFailsIsComputedOnAnother) {
  for (const LargeStatus status : {LargeStatus::kFault, LargeStatus::kOutOfMemory}) {
    make_two(1 << 20, fault(status, false));
    host->close();
    LargeCall& call = committed();
    host->await_begun(status == LargeStatus::kFault ? 1 : 2);
    EXPECT_EQ(pipeline->stats().inflight_bytes, kOperand + kResults + kWorking) << "with the host's working memory";
    EXPECT_EQ(pipeline->stats().inflight_requests, 1);
    host->open();
    expect_computed_on_host(call);
  }
}

TEST_F(LargePipelineFaultTest, WhatWaitsForALostDeviceGoesToAnother) {
  make_two(1 << 20, fault(LargeStatus::kFault, true));
  controls->close();
  LargeCall& first = committed();
  controls->await_begun(1);
  LargeCall& second = committed();
  controls->open();
  for (LargeCall* call : {&first, &second}) expect_computed_on_host(*call, call == &second);
}

TEST_F(LargePipelineFaultTest, WithoutMemoryForAnotherDeviceTheFaultIsTold) {
  make_two(kOperand + kResults + kWorking - 1, fault(LargeStatus::kFault, false));
  LargeCall& call = committed();
  while (call.write()) {
  }
  expect_end(call, absl::StatusCode::kInternal, Reason::kDeviceFault, "");
  EXPECT_EQ(call.await_end().message, "the device gpu failed to compute this matrix; the server's log says why");
}

TEST_F(LargePipelineTest, NotConvergedHasResults) {
  LargeOutcome outcome;
  outcome.status = LargeStatus::kNotConverged;
  controls->answer(outcome);
  LargeCall& call = committed();
  std::optional<LargeReply> last;
  while (std::optional<LargeReply> reply = call.write()) last = std::move(reply);
  EXPECT_EQ(std::get<LargeSummary>(*last).outcome.status, LargeStatus::kNotConverged);
  EXPECT_TRUE(call.await_end().ok());
}

// --- who goes, and when -------------------------------------------------------------------------

TEST_F(LargePipelineTest, AClientThatVanishesWhileItUploads) {
  LargeCall& call = uploaded();
  EXPECT_GT(pipeline->stats().inflight_bytes, 0);
  call.break_off();
  expect_end(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItWaits) {
  controls->close();
  LargeCall& first = committed();
  controls->await_begun(1);
  LargeCall& second = committed();
  second.write();
  second.break_off();
  EXPECT_EQ(second.await_end().reason, Reason::kCancelled);
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
  EXPECT_EQ(pipeline->stats().inflight_requests, 1);
  EXPECT_FALSE(first.finished());
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItIsComputed) {
  controls->close();
  LargeCall& call = committed();
  controls->await_begun(1);
  call.write();
  call.break_off();
  controls->await_ended(1);
  EXPECT_EQ(controls->cancelled(), 1);
  expect_end(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, AClientThatVanishesWhileItDownloads) {
  LargeCall& call = committed();
  std::optional<LargeReply> reply;
  while ((reply = call.write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  while (!call.writing()) std::this_thread::yield();
  call.break_off();
  EXPECT_FALSE(call.finished()) << "a write is on its way";
  EXPECT_GT(pipeline->stats().inflight_bytes, 0) << "and the chunk's memory with it";
  reply.reset();
  call.write(false);
  expect_end(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
}

TEST_F(LargePipelineTest, SilentClientsAreGivenUp) {
  LargeLimits options;
  options.idle_timeout = absl::Seconds(10);
  make(options);
  LargeCall& opening = begin();
  LargeCall& uploading = uploaded();
  LargeCall& downloading = committed();
  std::optional<LargeReply> reply;
  while ((reply = downloading.write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  reply.reset();
  clock.advance(absl::Seconds(9));
  EXPECT_FALSE(opening.finished() || uploading.finished() || downloading.aborted().has_value());
  clock.advance(absl::Seconds(2));
  EXPECT_EQ(opening.await_end().reason, Reason::kClientStalled);
  EXPECT_EQ(uploading.await_end().reason, Reason::kClientStalled);
  ASSERT_TRUE(downloading.aborted().has_value());
  EXPECT_EQ(downloading.aborted()->code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(downloading.aborted()->reason, Reason::kClientStalled);
  EXPECT_EQ(opening.await_end().message, "the client sent no open within 10s");
  EXPECT_EQ(uploading.await_end().message, "the client sent no commit within 10s");
  EXPECT_EQ(downloading.aborted()->message, "the client took less than 1 MiB of the replies within 10s");
  downloading.write(false);
  expect_end(downloading, absl::StatusCode::kDeadlineExceeded, Reason::kClientStalled, "");
}

TEST_F(LargePipelineTest, AnUploadHasToBringAMebibyteInTime) {
  chunk_bytes = 1 << 20;
  LargeLimits options;
  options.max_bytes = int64_t{1} << 30;
  options.idle_timeout = absl::Seconds(10);
  make(options);
  LargeCall& slow = begin();
  slow.open(1024, 256);  // 2 MiB
  slow.write();
  LargeCall& fast = begin();
  fast.open(1024, 256);
  fast.write();
  fast.chunk(0, 1 << 20);
  for (int i = 0; i < 9; ++i) {
    clock.advance(absl::Seconds(1));
    slow.chunk(i, 1);
    fast.chunk((1 << 20) + i, 1);
    EXPECT_FALSE(slow.finished());
  }
  fast.chunk((1 << 20) + 9, (1 << 20) - 9);  // what was left
  clock.advance(absl::Seconds(2));
  EXPECT_EQ(slow.await_end().reason, Reason::kClientStalled);
  EXPECT_EQ(slow.await_end().message, "the client sent less than 1 MiB of the operand within 10s");
  EXPECT_FALSE(fast.finished());
  fast.commit();
  EXPECT_TRUE(fast.finish().has_value());
}

TEST_F(LargePipelineTest, ADownloadHasToTakeAMebibyteInTime) {
  chunk_bytes = 256 << 10;
  LargeLimits options;
  options.max_bytes = int64_t{1} << 30;
  options.idle_timeout = absl::Seconds(10);
  make(options);
  for (const bool fast : {true, false}) {
    LargeCall& call = begin();
    call.upload(1024, 512);
    call.commit();
    bool chunks = false;  // begun
    while (!call.finished() && !call.aborted().has_value()) {
      const std::optional<LargeReply> reply = call.write();
      chunks = chunks || (reply && std::holds_alternative<LargeResultChunk>(*reply));
      if (chunks) clock.advance(absl::Seconds(fast ? 2 : 3));  // four chunks a MiB
    }
    EXPECT_EQ(call.aborted().has_value(), !fast);
    call.write(false);
    EXPECT_EQ(call.await_end().reason, fast ? Reason::kNone : Reason::kClientStalled);
  }
}

TEST_F(LargePipelineTest, WhoTakesNothingIsCutOffWithWhatEndedTheCall) {
  LargeLimits options;
  options.idle_timeout = absl::Seconds(10);
  make(options);
  LargeCall& call = committed();
  std::optional<LargeReply> reply;
  while ((reply = call.write()) && !std::holds_alternative<LargeResultChunk>(*reply)) {
  }
  reply.reset();
  call.chunk(0, 16);
  EXPECT_FALSE(call.finished()) << "a write is on its way";
  clock.advance(absl::Seconds(9));
  EXPECT_FALSE(call.aborted().has_value()) << "it may still take it, and hear of its mistake with all details";
  clock.advance(absl::Seconds(2));
  ASSERT_TRUE(call.aborted().has_value());
  EXPECT_EQ(call.aborted()->reason, Reason::kUnexpectedMessage);
  call.write(false);
  expect_invalid(call, Reason::kUnexpectedMessage, "chunk");
}

TEST_F(LargePipelineTest, AComputationMayTakeLongerThanAClientMayBeSilent) {
  LargeLimits options;
  options.idle_timeout = absl::Seconds(10);
  make(options);
  controls->close();
  LargeCall& call = committed();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(call.write().has_value());
    clock.advance(absl::Seconds(1));
  }
  controls->open();
  while (call.write()) {
  }
  EXPECT_TRUE(call.await_end().ok());
}

TEST_F(LargePipelineTest, DrainingFinishesWhatWasAccepted) {
  LargeCall& opening = begin();
  LargeCall& call = uploaded();
  pipeline->start_drain();
  EXPECT_EQ(opening.await_end().reason, Reason::kDraining);
  LargeCall& late = begin();
  EXPECT_EQ(late.await_end().reason, Reason::kDraining);
  std::thread client([&call] {
    call.commit();
    while (call.write()) {
    }
  });
  EXPECT_TRUE(pipeline->drain(absl::Hours(1)));
  client.join();
  EXPECT_TRUE(call.await_end().ok());
}

TEST_F(LargePipelineTest, DrainingGivesUpWhatTakesTooLong) {
  controls->close();
  LargeCall& call = committed();
  call.write();
  controls->await_begun(1);
  std::atomic<bool> drained{false};
  std::thread time([&] {
    while (!drained) {
      clock.advance(absl::Seconds(1));
      while (call.writing()) call.write();
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(pipeline->drain(absl::Seconds(5)));
  drained = true;
  time.join();
  while (call.write()) {
  }
  const Error error = call.await_end();
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDraining);
  controls->await_ended(1);
  EXPECT_EQ(controls->cancelled(), 1);
}

// A read that was decided before the call ended, and comes after it, is void: of each event that asks for a read alone.
TEST_F(LargePipelineTest, AFinishMayOvertakeARead) {
  const auto expect_void = [this](LargeCall& call, LargeNext next) {
    EXPECT_TRUE(next.read);
    const int reads = call.reads();
    call.job->abandon(cancelled());  // as on another thread, between the decision and its execution
    ASSERT_TRUE(call.finished());
    call.act(std::move(next));
    EXPECT_EQ(call.reads(), reads);
    expect_end(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
  };
  const auto opening = calls.emplace_back(std::make_shared<LargeCall>());
  opening->job = pipeline->begin("", [opening](LargeNext next) { opening->act(std::move(next)); });
  expect_void(*opening, opening->job->opened());
  LargeCall& uploading = begin();
  uploading.open();
  uploading.write();
  std::shared_ptr<char> place;
  LargeNext next = uploading.job->on_chunk(0, 16, &place);
  place.reset();
  expect_void(uploading, std::move(next));
}

// Beside a read that comes with a write: the end waits until that was written, however late it is asked for.
TEST_F(LargePipelineTest, NoFinishOvertakesAWrite) {
  const auto expect_written = [this](LargeCall& call, LargeNext next) {
    EXPECT_TRUE(next.read && next.write);
    const int reads = call.reads();
    call.job->abandon(cancelled());
    ASSERT_FALSE(call.finished());
    call.act(std::move(next));
    EXPECT_EQ(call.reads(), reads + 1);
    EXPECT_TRUE(call.write().has_value());
    expect_end(call, absl::StatusCode::kCancelled, Reason::kCancelled, "");
  };
  LargeOpen open;
  open.problem = {4, 2, DType::kF64, Order::kColumnMajor};
  LargeCall& opening = begin();
  expect_written(opening, opening.job->on_open(open));
  controls->close();
  LargeCall& committing = uploaded();
  expect_written(committing, committing.job->on_commit());
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
        call->begin(pipeline.get());
        int steps = static_cast<int>(random() % 20);
        const auto go_on = [&] { return steps-- > 0; };
        if (go_on()) call->open();
        if (go_on()) call->write();
        for (int64_t at = 0; at < kOperand && go_on(); at += 16) call->chunk(at, 16);
        if (go_on()) call->commit();
        while (go_on() && call->write()) {
        }
        call->end();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  expect_all_given_back();
  EXPECT_EQ(pipeline->stats().load.waiting, 0);
}

}  // namespace
}  // namespace svdserve::server
