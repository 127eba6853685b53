// The queue's own bookkeeping; its rules as callers see them are in batch_scheduler_test.cc.
#include "server/batch/batch_queue.h"

#include <gtest/gtest.h>

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

const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(100);

TEST(BatchQueue, PartsCoverTheRequestExactly) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  for (int64_t count : {8, 13, 14, 15, 100}) {
    BatchQueue queue(limits);
    CutEvents cuts;
    const auto job = MakeJob(count);
    queue.Add(job, 1, kNow, &cuts);
    int64_t next = 0;
    while (!queue.empty()) {
      const std::unique_ptr<Batch> batch = queue.Take(kNow, &cuts);
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
  queue.Add(MakeJob(3), 1, kNow, &cuts);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.Take(kNow, &cuts)->matrices, 1);
  EXPECT_TRUE(queue.empty());
}

TEST(BatchQueue, SpreadPartsLeaveBecauseLanesAreFree) {
  BatchLimits limits;
  limits.min_split_bytes = 2 * kBytes;
  BatchQueue queue(limits);
  CutEvents cuts;
  queue.Add(MakeJob(5), 4, kNow, &cuts);
  ASSERT_EQ(cuts.size(), 2u);
  EXPECT_EQ(cuts[0].reason, CutReason::kLaneFree);
  EXPECT_EQ(cuts[0].matrices, 3);
  EXPECT_EQ(cuts[1].matrices, 2);
}

TEST(BatchQueue, SlotsOfTheCancelledDoNotGrowForEver) {
  BatchQueue queue({});
  CutEvents cuts;
  const auto stays = MakeJob(1);
  queue.Add(stays, 1, kNow, &cuts);
  for (int i = 0; i < 40000; ++i) {
    const auto job = MakeJob(1);
    queue.Add(job, 1, kNow, &cuts);
    for (const Part& part : job->parts) queue.Remove(part);
  }
  EXPECT_LE(queue.Take(kNow, &cuts)->slices.size(), 16384u);
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
    const Batch* const next = &queue.Next();
    const std::unique_ptr<Batch> batch = queue.Take(now, &cuts);
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
        queue.Add(job, 1 + static_cast<int>(random() % 3), now, &cuts);
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

}  // namespace
}  // namespace svdserve::server
