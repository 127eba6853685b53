// The queue's own bookkeeping; its rules as callers see them are in batch_scheduler_test.cc, and whose turn it is in
// batch_fairness_test.cc.
#include "server/batch/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBytes = 32;  // of a 2 x 2 matrix of doubles
const absl::Time kNow = absl::UnixEpoch() + absl::Seconds(100);
constexpr absl::Duration kWork = absl::Microseconds(10);

std::shared_ptr<Job> make_job(int64_t count, int key = 0, const Peer& peer = "") {
  const auto job = std::make_shared<Job>();
  job->work.plan.problem = {2, 2, DType::kF64, Order::kRowMajor};
  job->work.plan.method = Method::kBisection;
  job->work.plan.tolerance = 1e-3 * key;
  job->work.request.count = count;
  job->work.request.payload_bytes = static_cast<size_t>(count * kBytes);
  job->work.request.peer = peer;
  return job;
}

// A queue whose batches are not bounded by time, and what its users do with it.
struct TestQueue : BatchQueue {
  explicit TestQueue(const BatchLimits& limits = {})
      : TestQueue(limits, [](const Plan&, const BatchBounds& bounds) { return bounds.most; }) {}
  TestQueue(const BatchLimits& limits, PieceOf piece_of) : BatchQueue(limits, std::move(piece_of)) {}
  ~TestQueue() {  // everything leaves it
    while (!empty()) finish(take_next());
  }

  std::shared_ptr<Job> add_job(std::shared_ptr<Job> job, absl::Time now = kNow) {
    add(job, {job->work.request.count}, now);
    return job;
  }
  // The `nth` offer, or the last.
  Offer next(size_t nth = 0) const {
    Offer next{};
    for_each_offer(now, [&](const Offer& offer) {
      next = offer;
      return nth-- > 0;
    });
    return next;
  }
  std::vector<int> order_of_keys(size_t most = 100) const {
    std::vector<int> keys;
    for_each_offer(now, [&](const Offer& offer) {
      keys.push_back(static_cast<int>(std::lround(offer.plan->tolerance * 1e3)));
      return keys.size() < most;
    });
    return keys;
  }
  std::unique_ptr<Batch> take_next(size_t nth = 0) { return take(next(nth), kWork, now, &cuts); }
  // It ran, and all of its jobs leave it.
  void finish(std::unique_ptr<Batch> batch, absl::Duration took = kWork) {
    settle(batch.get(), took);
    for (size_t i = 0; i < batch->slices.size(); ++i) drop(batch.get(), i);
  }

  absl::Time now = kNow;
  CutEvents cuts;
};

std::vector<int64_t> counts_of(const Batch& batch) {
  std::vector<int64_t> counts;
  for (const Slice& slice : batch.slices) counts.push_back(slice.count);
  return counts;
}

TEST(BatchQueue, PartsCoverTheRequestExactly) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  for (int64_t count : {8, 13, 14, 15, 100}) {
    TestQueue queue(limits);
    const auto job = queue.add_job(make_job(count));
    EXPECT_EQ(job->unfinished, count);
    int64_t next = 0, parts = 0;
    for (; !queue.empty(); ++parts) {
      std::unique_ptr<Batch> batch = queue.take_next();
      ASSERT_EQ(batch->slices.size(), 1u);
      EXPECT_EQ(batch->slices[0].first, next);
      EXPECT_LE(batch->bytes, limits.max_bytes);
      next += batch->slices[0].count;
      queue.finish(std::move(batch));
    }
    EXPECT_EQ(next, count);
    EXPECT_EQ(parts, (count + 6) / 7);
  }
}

TEST(BatchQueue, MatrixLargerThanTheLimitStillGoes) {
  BatchLimits limits;
  limits.max_bytes = kBytes / 2;
  TestQueue queue(limits);
  queue.add_job(make_job(3));
  for (int i = 0; i < 3; ++i) {
    std::unique_ptr<Batch> batch = queue.take_next();
    EXPECT_EQ(batch->matrices, 1);
    queue.finish(std::move(batch));
  }
  EXPECT_TRUE(queue.empty());
}

TEST(BatchQueue, SharesGoAlone) {
  TestQueue queue;
  queue.add_job(make_job(1));
  const auto job = make_job(5);
  queue.add(job, {3, 2}, kNow);
  queue.add_job(make_job(1));
  std::vector<int64_t> batches;
  while (!queue.empty()) {
    std::unique_ptr<Batch> batch = queue.take_next();
    EXPECT_EQ(batch->slices.size(), 1u);
    batches.push_back(batch->matrices);
    queue.finish(std::move(batch));
  }
  EXPECT_THAT(batches, ElementsAre(1, 3, 2, 1));
  EXPECT_EQ(queue.cuts[1].reason, CutReason::kLaneFree);
}

TEST(BatchQueue, ShareBeyondTheLimitsIsSplitItself) {
  BatchLimits limits;
  limits.max_matrices = 4;
  TestQueue queue(limits);
  const auto job = make_job(12);
  queue.add(job, {9, 3}, kNow);
  EXPECT_EQ(queue.waiting("", job->work.plan), 12);
  EXPECT_EQ(queue.waiting("another", job->work.plan), 0);
  for (int i = 0; i < 4; ++i) {
    std::unique_ptr<Batch> batch = queue.take_next();
    EXPECT_EQ(batch->matrices, 3);
    queue.finish(std::move(batch));
  }
  EXPECT_TRUE(queue.empty());
}

TEST(BatchQueue, PiecesAreCutByTime) {
  constexpr absl::Duration kMatrix = absl::Microseconds(100);
  TestQueue queue({}, [=](const Plan& plan, const BatchBounds& bounds) {
    return plan.tolerance > 0 ? std::min(bounds.most, bounds.work / kMatrix) : bounds.most;
  });
  queue.add_job(make_job(100, 1));
  queue.add_job(make_job(100, 0));
  std::vector<int64_t> slow, fast;
  while (!queue.empty()) {
    std::unique_ptr<Batch> batch = queue.take_next();
    (batch->plan.tolerance > 0 ? slow : fast).push_back(batch->matrices);
    queue.finish(std::move(batch));
  }
  EXPECT_THAT(slow, ElementsAre(34, 33, 33));  // 4 ms at most
  EXPECT_THAT(fast, ElementsAre(100));
}

// The device pool knows which matrices take long.
TEST(BatchQueue, BatchesOfLongMatricesMayHaveMoreBytes) {
  BatchLimits limits;
  limits.max_bytes = 3 * kBytes;
  TestQueue queue(limits, [](const Plan& plan, const BatchBounds& bounds) {
    return plan.tolerance > 0 ? bounds.most_of_long : bounds.most;
  });
  queue.add_job(make_job(96, 1));
  queue.add_job(make_job(7, 0));
  std::vector<int64_t> slow, fast;
  while (!queue.empty()) {
    std::unique_ptr<Batch> batch = queue.take_next();
    (batch->plan.tolerance > 0 ? slow : fast).push_back(batch->matrices);
    queue.finish(std::move(batch));
  }
  EXPECT_EQ(*std::max_element(slow.begin(), slow.end()), kLongBytes * 3);
  EXPECT_EQ(*std::max_element(fast.begin(), fast.end()), 3);
}

TEST(BatchQueue, OffersGoRoundTheKeysBeforeTheyGoDeeper) {
  BatchLimits limits;
  limits.max_matrices = 1;
  TestQueue queue(limits);
  for (int key : {1, 1, 1, 2, 3, 3}) queue.add_job(make_job(1, key));
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(1, 2, 3, 1, 3, 1));
  EXPECT_THAT(queue.order_of_keys(2), ElementsAre(1, 2));
  queue.finish(queue.take_next());  // its key goes to the end
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(2, 3, 1, 3, 1));
}

TEST(BatchQueue, OffersGoRoundThePeersBeforeTheyGoDeeper) {
  BatchLimits limits;
  limits.max_matrices = 1;
  TestQueue queue(limits);
  for (int key : {1, 2, 3}) queue.add_job(make_job(1, key, "many"));
  queue.add_job(make_job(1, 4, "few"));
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(1, 4, 2, 3));
}

TEST(BatchQueue, BatchThatComesBackIsOfferedFirst) {
  BatchLimits limits;
  limits.max_matrices = 2;
  TestQueue queue(limits);
  const auto first = queue.add_job(make_job(6, 1));
  const auto other = queue.add_job(make_job(1, 2));
  std::unique_ptr<Batch> batch = queue.take_next();
  Batch* const failed = batch.get();
  EXPECT_TRUE(failed->running);
  queue.settle(failed, kWork);
  queue.put_back(std::move(batch));
  EXPECT_FALSE(failed->running);
  EXPECT_EQ(queue.next().returned, failed);
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(1, 2, 1, 1));
  queue.remove(first->parts[0]);  // its only slice: the batch goes
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(2, 1, 1));
  EXPECT_EQ(queue.withdraw(first.get()), first);
  EXPECT_EQ(queue.withdraw(first.get()), nullptr);
  EXPECT_THAT(queue.order_of_keys(), ElementsAre(2));
}

TEST(BatchQueue, RequestsFarApartShareABatchOnlyOnceTheyHaveWaitedLong) {
  TestQueue queue;
  for (int i = 0; i < 4; ++i) {
    queue.add_job(make_job(1 + i), queue.now);
    queue.now += absl::Microseconds(250);
  }
  std::unique_ptr<Batch> batch = queue.take_next();
  EXPECT_THAT(counts_of(*batch), ElementsAre(1, 2, 3));  // 500 us apart
  EXPECT_EQ(queue.cuts.back().reason, CutReason::kAge);
  queue.finish(std::move(batch));
  queue.now += absl::Milliseconds(7);
  queue.add_job(make_job(5), queue.now);
  queue.now += absl::Milliseconds(1);
  batch = queue.take_next();
  EXPECT_THAT(counts_of(*batch), ElementsAre(4, 5));
  EXPECT_EQ(queue.cuts.back().reason, CutReason::kLaneFree);
  queue.finish(std::move(batch));
}

TEST(BatchQueue, PartsAreWholeGroups) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  for (const int64_t group : {2, 3, 10}) {
    TestQueue queue(limits);
    const auto job = make_job(30 * group);
    job->work.plan.outputs.group = group;
    queue.add(job, {10 * group, 20 * group}, kNow);
    int64_t next = 0;
    while (!queue.empty()) {
      std::unique_ptr<Batch> batch = queue.take_next();
      EXPECT_EQ(batch->slices[0].first, next);
      EXPECT_EQ(batch->slices[0].count % group, 0);
      EXPECT_LE(batch->slices[0].count, std::max<int64_t>(group, 7));
      next += batch->slices[0].count;
      queue.finish(std::move(batch));
    }
    EXPECT_EQ(next, 30 * group);
  }
}

TEST(BatchQueue, DifferentOutputsAreDifferentKeys) {
  TestQueue queue;
  for (int i = 0; i < 3; ++i) {
    const auto job = make_job(1);
    job->work.plan.outputs.capacity = true;
    job->work.plan.outputs.snr_count = 1;
    job->work.plan.outputs.snr[0] = i < 2 ? 1 : 10;
    queue.add_job(job);
  }
  EXPECT_EQ(queue.keys(), 2u);
}

TEST(BatchQueue, StartingVectorsAreOperands) {
  BatchLimits limits;
  limits.max_bytes = 7 * kBytes;
  TestQueue queue(limits);
  for (const bool warm : {false, true}) {
    const auto job = make_job(6);
    job->work.plan.decomposition = Decomposition::kGeneral;
    job->work.plan.starting_vectors = warm;  // twice as many bytes, complex ones of real matrices
    queue.add_job(job);
  }
  EXPECT_EQ(queue.keys(), 2u);
  std::unique_ptr<Batch> cold = queue.take_next(), warm = queue.take_next();
  EXPECT_EQ(cold->matrices, 6);
  EXPECT_EQ(cold->bytes, 6 * kBytes);
  EXPECT_EQ(warm->matrices, 2);
  EXPECT_EQ(warm->bytes, 2 * 3 * kBytes);
  queue.drop(warm.get(), 0);
  EXPECT_EQ(warm->bytes, 0);
  queue.finish(std::move(cold));
  while (!queue.empty()) queue.finish(queue.take_next());
}

// Jobs come, are taken, cancelled, fail and come back at random: none is lost, and nothing is kept of what has gone.
TEST(BatchQueue, NothingIsLostUnderRandomUse) {
  std::mt19937 random(7);
  BatchLimits limits;
  limits.max_matrices = 10;
  TestQueue queue(limits);
  std::vector<std::shared_ptr<Job>> jobs;
  std::vector<std::unique_ptr<Batch>> running;
  int64_t added = 0, removed = 0, done = 0;
  const auto cancel = [&](const std::shared_ptr<Job>& job) {
    if (job->rest.flow != nullptr) removed += job->rest.ends.back() - job->rest.next;
    queue.withdraw(job.get());
    std::vector<Part> parts(job->parts.begin(), job->parts.end());
    job->parts.clear();
    for (const Part& part : parts) {
      if (part.batch->running) continue;
      removed += part.batch->slices[part.slot].count;
      queue.remove(part);
    }
  };
  const auto end = [&](std::unique_ptr<Batch> batch, bool failed) {
    queue.settle(batch.get(), absl::Microseconds(random() % 100));
    if (failed) return queue.put_back(std::move(batch));
    int64_t matrices = 0;
    for (size_t i = 0; i < batch->slices.size(); ++i) {
      const Slice& slice = batch->slices[i];
      if (slice.job == nullptr) continue;
      matrices += slice.count;
      auto& parts = slice.job->parts;
      parts.erase(std::remove_if(parts.begin(), parts.end(), [&](const Part& p) { return p.batch == batch.get(); }),
                  parts.end());
    }
    EXPECT_EQ(matrices, batch->matrices);
    EXPECT_EQ(matrices * kBytes, batch->bytes);
    EXPECT_GT(matrices, 0);
    done += matrices;
    for (size_t i = 0; i < batch->slices.size(); ++i) queue.drop(batch.get(), i);
  };
  const auto any = [&](auto* from) {
    std::swap((*from)[random() % from->size()], from->back());
    auto one = std::move(from->back());
    from->pop_back();
    return one;
  };
  for (int step = 0; step < 20000; ++step) {
    queue.cuts.clear();
    switch (random() % 6) {
      case 0:
      case 1: {
        const auto job = make_job(1 + static_cast<int64_t>(random() % 25), static_cast<int>(random() % 4),
                                  std::to_string(random() % 3));
        const int64_t count = job->work.request.count, share = static_cast<int64_t>(random()) % count;
        queue.add(job, share > 0 ? std::vector<int64_t>{share, count - share} : std::vector<int64_t>{count}, queue.now);
        added += count;
        jobs.push_back(job);
        break;
      }
      case 2:
        if (!jobs.empty()) cancel(any(&jobs));
        break;
      case 3:
        if (!queue.empty()) running.push_back(queue.take_next(random() % 3));
        break;
      case 4:
        if (!running.empty()) end(any(&running), random() % 4 == 0);
        break;
      case 5:
        queue.now += absl::Microseconds(100);
        break;
    }
  }
  while (!running.empty()) end(any(&running), false);
  while (!queue.empty()) end(queue.take_next(), false);
  EXPECT_EQ(added, removed + done);
  EXPECT_LE(queue.peers(), 3u);
  EXPECT_LE(queue.keys(), 4u);
}

}  // namespace
}  // namespace svdserve::server
