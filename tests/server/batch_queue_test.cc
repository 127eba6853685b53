// The queue's own bookkeeping; its rules as callers see them are in batch_scheduler_test.cc.
#include "server/batch/batch_queue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

namespace svdserve::server {
namespace {

constexpr int64_t kBytes = 32;  // of a 2 x 2 matrix of doubles

std::shared_ptr<Job> MakeJob(int64_t count, int key = 0) {
  const auto job = std::make_shared<Job>();
  job->work.plan.problem = {2, 2, DType::kF64, Order::kRowMajor};
  job->work.plan.method = Method::kBisection;
  job->work.plan.tolerance = 1e-3 * key;
  job->work.request.count = count;
  job->work.request.payload_bytes = static_cast<size_t>(count * kBytes);
  return job;
}

// The `nth` batch in turn, or the last.
Batch* Next(const BatchQueue& queue, size_t nth = 0) {
  Batch* next = nullptr;
  queue.ForEachInTurn([&](Batch* batch) {
    next = batch;
    return nth-- > 0;
  });
  return next;
}

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(100);

TEST(BatchQueue, PartsCoverTheRequestExactly) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  for (int64_t count : {8, 13, 14, 15, 100}) {
    BatchQueue queue(limits);
    CutEvents cuts;
    const auto job = MakeJob(count);
    queue.Add(job, {job->work.request.count}, kNow, &cuts);
    int64_t next = 0;
    while (!queue.empty()) {
      const std::unique_ptr<Batch> batch = queue.Take(Next(queue), kNow, &cuts);
      ASSERT_EQ(batch->slices.size(), 1u);
      EXPECT_EQ(batch->slices[0].first, next);
      EXPECT_LE(batch->bytes, limits.max_bytes);
      next += batch->slices[0].count;
    }
    EXPECT_EQ(next, count);
    EXPECT_EQ(job->unfinished, (count + 6) / 7);
  }
}

TEST(BatchQueue, MatrixLargerThanTheLimitStillGoes) {
  BatchLimits limits;
  limits.max_bytes = kBytes / 2;
  BatchQueue queue(limits);
  CutEvents cuts;
  queue.Add(MakeJob(3), {3}, kNow, &cuts);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Take(Next(queue), kNow, &cuts)->matrices, 1);
  EXPECT_TRUE(queue.empty());
}

TEST(BatchQueue, SharesLeaveBecauseLanesAreFree) {
  BatchQueue queue({});
  CutEvents cuts;
  queue.Add(MakeJob(5), {3, 2}, kNow, &cuts);
  ASSERT_EQ(cuts.size(), 2u);
  EXPECT_EQ(cuts[0].reason, CutReason::kLaneFree);
  EXPECT_EQ(cuts[0].matrices, 3);
  EXPECT_EQ(cuts[1].matrices, 2);
}

TEST(BatchQueue, ShareBeyondTheLimitsIsSplitItself) {
  BatchLimits limits;
  limits.max_matrices = 4;
  BatchQueue queue(limits);
  CutEvents cuts;
  const auto job = MakeJob(12);
  queue.Add(job, {9, 3}, kNow, &cuts);
  std::vector<int64_t> parts;
  queue.ForEachInTurn([&](Batch* batch) {
    parts.push_back(batch->matrices);
    return true;
  });
  EXPECT_EQ(parts, (std::vector<int64_t>{3, 3, 3, 3}));
  EXPECT_EQ(job->unfinished, 4);
  EXPECT_EQ(queue.Waiting(job->work.plan), 12);
}

TEST(BatchQueue, TurnsGoRoundTheKeysBeforeTheyGoDeeper) {
  BatchLimits limits;
  limits.max_matrices = 1;
  BatchQueue queue(limits);
  CutEvents cuts;
  for (int key : {1, 1, 1, 2, 3, 3}) queue.Add(MakeJob(1, key), {1}, kNow, &cuts);
  const auto keys = [&](size_t most) {
    std::vector<int> seen;
    queue.ForEachInTurn([&](Batch* batch) {
      seen.push_back(static_cast<int>(std::lround(batch->plan.tolerance * 1e3)));
      return seen.size() < most;
    });
    return seen;
  };
  EXPECT_EQ(keys(100), (std::vector<int>{1, 2, 3, 1, 3, 1}));
  EXPECT_EQ(keys(2), (std::vector<int>{1, 2}));
  queue.Take(Next(queue), kNow, &cuts);  // its key goes to the end
  EXPECT_EQ(keys(100), (std::vector<int>{2, 3, 1, 3, 1}));
}

TEST(BatchQueue, AnyBatchMayBeTakenAndComeBackToTheFront) {
  BatchLimits limits;
  limits.max_matrices = 2;
  BatchQueue queue(limits);
  CutEvents cuts;
  queue.Add(MakeJob(6, 1), {6}, kNow, &cuts);
  queue.Add(MakeJob(1, 2), {1}, kNow, &cuts);
  std::vector<Batch*> line;
  queue.ForEachInTurn([&](Batch* batch) {
    line.push_back(batch);
    return true;
  });
  std::unique_ptr<Batch> third = queue.Take(line[2], kNow, &cuts);
  EXPECT_EQ(third.get(), line[2]);
  EXPECT_EQ(third->slices[0].first, 2);
  EXPECT_EQ(third->state, Batch::State::kRunning);
  const std::unique_ptr<Batch> open = queue.Take(line[1], kNow, &cuts);  // the last of its key
  EXPECT_EQ(cuts.back().reason, CutReason::kLaneFree);
  queue.Return(std::move(third));
  EXPECT_EQ(Next(queue), line[2]);
  EXPECT_EQ(line[2]->state, Batch::State::kWaiting);
  std::shared_ptr<Job> job = line[2]->slices[0].job;
  const std::vector<Part> parts(job->parts.begin(), job->parts.end());
  for (const Part& part : parts) queue.Remove(part);
  EXPECT_TRUE(queue.empty());
}

TEST(BatchQueue, SlotsOfTheCancelledDoNotGrowForEver) {
  BatchQueue queue({});
  CutEvents cuts;
  const auto stays = MakeJob(1);
  queue.Add(stays, {1}, kNow, &cuts);
  for (int i = 0; i < 40000; ++i) {
    const auto job = MakeJob(1);
    queue.Add(job, {job->work.request.count}, kNow, &cuts);
    for (const Part& part : job->parts) queue.Remove(part);
  }
  EXPECT_LE(queue.Take(Next(queue), kNow, &cuts)->slices.size(), 16384u);
}

TEST(BatchQueue, NothingIsLostUnderRandomUse) {
  std::mt19937 random(7);
  BatchLimits limits;
  limits.max_matrices = 10;
  limits.max_waiting = 3;
  BatchQueue queue(limits);
  CutEvents cuts;
  absl::Time now = kNow;
  std::vector<std::shared_ptr<Job>> waiting;
  int64_t added = 0, removed = 0, taken = 0;
  const auto take = [&] {
    Batch* const next = Next(queue, random() % 3);
    const std::unique_ptr<Batch> batch = queue.Take(next, now, &cuts);
    EXPECT_EQ(batch.get(), next);
    int64_t matrices = 0;
    for (const Slice& slice : batch->slices) {
      if (slice.job == nullptr) continue;
      matrices += slice.count;
      for (Part& part : slice.job->parts) {
        if (part.batch == batch.get()) part.batch = nullptr;
      }
    }
    EXPECT_EQ(matrices, batch->matrices);
    EXPECT_EQ(matrices * kBytes, batch->bytes);
    EXPECT_GT(matrices, 0);
    taken += matrices;
  };
  for (int step = 0; step < 20000; ++step) {
    cuts.clear();
    switch (random() % 5) {
      case 0:
      case 1: {
        const auto job = MakeJob(1 + static_cast<int64_t>(random() % 25), static_cast<int>(random() % 4));
        const int64_t count = job->work.request.count, share = static_cast<int64_t>(random()) % count;
        queue.Add(job, share > 0 ? std::vector<int64_t>{share, count - share} : std::vector<int64_t>{count}, now,
                  &cuts);
        added += job->work.request.count;
        waiting.push_back(job);
        break;
      }
      case 2:
        if (!waiting.empty()) {
          std::swap(waiting[random() % waiting.size()], waiting.back());
          for (Part& part : waiting.back()->parts) {
            if (part.batch == nullptr) continue;
            removed += part.batch->slices[part.slot].count;
            queue.Remove(part);
          }
          waiting.pop_back();
        }
        break;
      case 3:
        if (!queue.empty()) take();
        break;
      case 4:
        now += absl::Microseconds(100);
        queue.CutOverdue(now, &cuts);
        EXPECT_GT(queue.next_cut(), now);
        break;
    }
  }
  queue.CutAll(CutReason::kDrain, now, &cuts);
  EXPECT_EQ(queue.next_cut(), absl::InfiniteFuture());
  while (!queue.empty()) take();
  EXPECT_EQ(added, removed + taken);
}

TEST(BatchQueue, PartsAreWholeGroups) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  for (const int64_t group : {2, 3, 10}) {
    BatchQueue queue(limits);
    CutEvents cuts;
    const auto job = MakeJob(30 * group);
    job->work.plan.outputs.group = group;
    queue.Add(job, {10 * group, 20 * group}, kNow, &cuts);
    int64_t next = 0;
    while (!queue.empty()) {
      const std::unique_ptr<Batch> batch = queue.Take(Next(queue), kNow, &cuts);
      EXPECT_EQ(batch->slices[0].first, next);
      EXPECT_EQ(batch->slices[0].count % group, 0);
      EXPECT_LE(batch->slices[0].count, std::max<int64_t>(group, 7));
      next += batch->slices[0].count;
    }
    EXPECT_EQ(next, 30 * group);
  }
}

TEST(BatchQueue, DifferentOutputsAreDifferentKeys) {
  BatchQueue queue({});
  CutEvents cuts;
  for (int i = 0; i < 3; ++i) {
    const auto job = MakeJob(1);
    job->work.plan.outputs.capacity = true;
    job->work.plan.outputs.snr_count = 1;
    job->work.plan.outputs.snr[0] = i < 2 ? 1 : 10;
    queue.Add(job, {1}, kNow, &cuts);
  }
  EXPECT_EQ(Next(queue, 0)->slices.size() + Next(queue, 1)->slices.size(), 3u);
  EXPECT_NE(Next(queue, 0), Next(queue, 1));
}

}  // namespace
}  // namespace svdserve::server
