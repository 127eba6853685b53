// Whose turn it is: device time is divided among peers, and the time of a peer among its keys. First the queue alone,
// in virtual time; then the scheduler, with lanes that are held by long work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/batch/batch_queue.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using absl::Microseconds;
using absl::Milliseconds;

// --- turns ----------------------------------------------------------------------------------------

TEST(Turns, WhoHasUsedLeastIsNextAndEqualsGoRound) {
  Turns turns;
  Turns::Member a, b, c;
  const auto next = [&turns] {
    Turns::Member* next = nullptr;
    turns.for_each([&](Turns::Member* member) {
      next = member;
      return false;
    });
    return next;
  };
  for (Turns::Member* member : {&a, &b, &c}) turns.join(member);
  EXPECT_EQ(next(), &a);
  turns.take();
  turns.charge(&a, Milliseconds(5));
  EXPECT_EQ(next(), &b);
  turns.take();
  turns.charge(&b, Milliseconds(2));
  turns.take();
  turns.charge(&c, Milliseconds(2));
  EXPECT_EQ(next(), &b);
  turns.charge(&a, -Milliseconds(4));  // it was charged too much
  EXPECT_EQ(next(), &a);
  turns.leave(&a);
  EXPECT_EQ(next(), &b);
  EXPECT_EQ(turns.size(), 2u);
}

TEST(Turns, WhoComesStartsAtTheTurnTakenLast) {
  Turns turns;
  Turns::Member busy, idle;
  turns.join(&busy);
  for (int i = 0; i < 10; ++i) {
    turns.take();
    turns.charge(&busy, Milliseconds(1));
  }
  turns.join(&idle);
  EXPECT_EQ(busy.used() - idle.used(), Milliseconds(1));  // no credit for the time before
}

// --- the queue ------------------------------------------------------------------------------------

// One lane and callers that send again as soon as they are answered. A matrix of key k takes k milliseconds.
class OneLane {
 public:
  explicit OneLane(double misprediction = 1) : misprediction_(misprediction) {}
  void send(const Peer& peer, int key, int64_t count = 1) {
    const auto job = std::make_shared<Job>();
    job->work.plan.problem = {2, 2, DType::kF64, Order::kRowMajor};
    job->work.plan.method = Method::kBisection;
    job->work.plan.tolerance = key;
    job->work.request.count = count;
    job->work.request.peer = peer;
    queue_.add(job, {count}, now_);
    waits_since_[job.get()] = now_;
  }
  // Runs the next batch. An answered peer sends the same again, but for those in `leaves`.
  void run_one(const Peer& leaves = "nobody") {
    BatchQueue::Offer next{};
    queue_.for_each_offer(now_, [&](const BatchQueue::Offer& offer) {
      next = offer;
      return false;
    });
    const absl::Duration took = time_of(*next.plan, next.matrices);
    const std::unique_ptr<Batch> batch = queue_.take(next, took * misprediction_, now_, &cuts_);
    now_ += took;
    queue_.settle(batch.get(), took);
    for (size_t i = 0; i < batch->slices.size(); ++i) {
      const int64_t count = batch->slices[i].count;
      const std::shared_ptr<Job> job = queue_.drop(batch.get(), i);
      const Peer& peer = job->work.request.peer;
      used_[peer] += time_of(batch->plan, count);
      if (job->unfinished -= count; job->unfinished > 0) continue;
      ++answered_[peer];
      longest_[peer] = std::max(longest_[peer], now_ - waits_since_[job.get()]);
      if (peer != leaves) send(peer, static_cast<int>(batch->plan.tolerance), job->work.request.count);
    }
  }
  void run_for(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) run_one();
  }

  absl::Duration used(const Peer& peer) { return used_[peer]; }
  absl::Duration longest(const Peer& peer) { return longest_[peer]; }  // from sending until the answer
  int answered(const Peer& peer) { return answered_[peer]; }
  size_t peers() const { return queue_.peers(); }

 private:
  static absl::Duration time_of(const Plan& plan, int64_t count) { return count * plan.tolerance * Milliseconds(1); }

  const double misprediction_;
  BatchQueue queue_{{}, [](const Plan& plan, const BatchBounds& bounds) {
                      return std::clamp<int64_t>(bounds.work / time_of(plan, 1), 1, bounds.most);
                    }};
  absl::Time now_ = absl::UnixEpoch();
  CutEvents cuts_;
  std::map<const Job*, absl::Time> waits_since_;
  std::map<Peer, absl::Duration> used_, longest_;
  std::map<Peer, int> answered_;
};

TEST(BatchFairness, LightPeerWaitsForOneBatchOfAHeavyOne) {
  OneLane lane;
  for (int i = 0; i < 4; ++i) lane.send("heavy", 2, 1000);  // two seconds each
  lane.run_one();
  lane.send("light", 1);
  lane.run_for(absl::Seconds(20));
  EXPECT_LE(lane.longest("light"), Milliseconds(5));                // 4 ms of the other, and its own
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("heavy")), 10, 0.1);  // the other sends again at once
}

TEST(BatchFairness, LightPeerOfTheSameKeyDoesSo) {
  OneLane lane;
  for (int i = 0; i < 4; ++i) lane.send("heavy", 1, 1000);
  lane.run_one();
  lane.send("light", 1);
  lane.run_for(absl::Seconds(20));
  EXPECT_LE(lane.longest("light"), Milliseconds(8));  // what runs, and a batch that others join
}

TEST(BatchFairness, EqualPeersShareEquallyWhateverTheyAskFor) {
  OneLane lane;
  for (int i = 0; i < 50; ++i) lane.send("many", 1, 3);
  lane.send("few", 1, 1000);
  for (int key = 1; key <= 20; ++key) lane.send("keys", key, 2);
  lane.send("long", 100, 5);  // a matrix takes 25 times what a batch should
  lane.run_for(absl::Seconds(40));
  for (const char* peer : {"many", "few", "keys", "long"}) {
    EXPECT_NEAR(absl::ToDoubleSeconds(lane.used(peer)), 10, 0.2) << peer;
  }
}

TEST(BatchFairness, WrongPredictionsAreCorrected) {
  for (const double misprediction : {0.01, 30.0}) {
    OneLane lane(misprediction);
    lane.send("a", 1, 1000);
    lane.send("b", 2, 1000);
    lane.run_for(absl::Seconds(10));
    EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("a")), 5, 0.1);
  }
}

TEST(BatchFairness, KeysOfAPeerShareItsTime) {
  OneLane lane;
  for (int i = 0; i < 100; ++i) lane.send("one", 2, 100);
  lane.send("one", 1, 1);
  lane.run_for(absl::Seconds(1));
  EXPECT_GE(lane.answered("one"), 100);  // the small key's, each time behind one batch of the other
}

TEST(BatchFairness, IdlePeerGainsNoCredit) {
  OneLane lane;
  lane.send("busy", 1, 1000);
  lane.run_for(absl::Seconds(5));
  lane.send("late", 2, 1000);
  const absl::Duration before = lane.used("busy");
  lane.run_for(absl::Seconds(1));
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("late")), 0.5, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("busy") - before), 0.5, 0.01);
}

TEST(BatchFairness, SharedBatchesAreChargedToEachOfTheirPeers) {
  OneLane lane;
  // Two peers whose requests share batches, and one that has a key of its own: a third for each.
  for (int i = 0; i < 4; ++i) lane.send("a", 1), lane.send("b", 1);
  lane.send("c", 2, 1000);
  lane.run_for(absl::Seconds(9));
  for (const char* peer : {"a", "b", "c"}) EXPECT_NEAR(absl::ToDoubleSeconds(lane.used(peer)), 3, 0.1) << peer;
}

TEST(BatchFairness, NobodyStarvesBehindLightPeersOfOneKeyAndAHeavyOneThatJoinsThem) {
  OneLane lane;
  for (int i = 0; i < 30; ++i) lane.send("light " + std::to_string(i), 1);
  for (int i = 0; i < 10; ++i) lane.send("heavy", 1, 1000);
  lane.send("other", 2, 1000);
  lane.run_for(absl::Seconds(32));
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("other")), 1, 0.1);
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("heavy")), 1, 0.1);
}

TEST(BatchFairness, CallerThatSendsAgainAtOnceStarvesNobody) {
  OneLane lane;
  lane.send("waits", 2, 1000);
  lane.run_one();
  lane.send("sends again", 1);  // it never waits when a turn is over
  lane.run_for(absl::Seconds(10));
  EXPECT_NEAR(absl::ToDoubleSeconds(lane.used("waits")), 5, 0.1);
}

TEST(BatchFairness, LittleIsKeptOfPeersThatHaveGone) {
  OneLane lane;
  for (int i = 0; i < 1000; ++i) {  // one at a time
    lane.send(std::to_string(i), 1);
    lane.run_one(std::to_string(i));
    EXPECT_LE(lane.peers(), 2u);
  }
  lane.send("long", 100000);
  lane.run_one();
  for (int i = 0; i < 1000; ++i) {  // while one owes more than all of them
    lane.send(std::to_string(i), 1);
    lane.run_one(std::to_string(i));
    EXPECT_LE(lane.peers(), kMostRestingPeers + 2);
  }
}

// --- the scheduler --------------------------------------------------------------------------------

// Two keys whose times are learned apart.
constexpr int kLongKey = 1, kShortKey = 100;

// A host-like device: one lane, a relief lane. A matrix takes a second, of a short key a millisecond.
struct LongAndShort : PipelineHarness {
  explicit LongAndShort(int relief_lanes = 1, int lanes = 1, DeviceKind kind = DeviceKind::kHost)
      : LongAndShort(relief_lanes, lanes, kind, std::make_shared<FakeDeviceControl>()) {}

 private:
  LongAndShort(int relief_lanes, int lanes, DeviceKind kind, const std::shared_ptr<FakeDeviceControl>& control)
      : PipelineHarness(defaults(), std::make_unique<FakeDevice>("fake:0", lanes, control, kind, 0, relief_lanes),
                        control) {
    for (const auto& [key, took] : {std::pair{kLongKey, absl::Seconds(1)}, std::pair{kShortKey, Milliseconds(1)}}) {
      device().fail([this, took = took] {
        clock.advance(took);
        return DeviceOutcome{absl::OkStatus(), false, true, {1, 0, 0, 0}};
      });
      EXPECT_TRUE(submit_key(key, 1)->wait().error.ok());
      while (pipeline->devices()[0].outstanding_batches > 0) std::this_thread::yield();
    }
    device().fail(nullptr);
    clock.advance(absl::Seconds(2));  // the short work is forgotten
  }
};

TEST(BatchSchedulerFairness, LongWorkLeavesALaneToShortWork) {
  LongAndShort h;
  h.device().close();
  const TicketPtr first = h.submit_key(kLongKey, 1), second = h.submit_key(kLongKey, 1);
  h.device().await_begun(3);
  const TicketPtr quick = h.submit_key(kShortKey, 1);
  h.device().await_begun(4);
  const TicketPtr waits = h.submit_key(kShortKey, 1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);  // long work has one lane, and short work one
  EXPECT_NEAR(h.device().seen().back().plan.tolerance, 0.1, 1e-9);
  h.device().open();
  for (const TicketPtr& t : {first, second, quick, waits}) EXPECT_TRUE(t->wait().error.ok());
}

TEST(BatchSchedulerFairness, WithoutLongWorkTheReliefLaneStaysFree) {
  LongAndShort h;
  h.device().close();
  const TicketPtr first = h.submit_key(kShortKey, 1);
  h.device().await_begun(3);
  const TicketPtr second = h.submit_key(kShortKey, 1), third = h.submit_key(kLongKey, 1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  h.clock.advance(kLongWork - absl::Nanoseconds(1));
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  h.clock.advance(absl::Nanoseconds(1));  // the alarm: what seemed short is long
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.device().open();
  for (const TicketPtr& t : {first, second, third}) EXPECT_TRUE(t->wait().error.ok());
}

TEST(BatchSchedulerFairness, OfTwoLanesOneIsKeptFromLongWorkWhileShortWorkComes) {
  LongAndShort h(0, 2, DeviceKind::kCuda);
  h.device().close();
  const TicketPtr quick = h.submit_key(kShortKey, 1);
  h.device().await_begun(3);
  h.device().let(1);
  EXPECT_TRUE(quick->wait().error.ok());
  while (h.pipeline->devices()[0].outstanding_batches > 0) std::this_thread::yield();
  const TicketPtr first = h.submit_key(kLongKey, 1), second = h.submit_key(kLongKey, 1);
  h.device().await_begun(4);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  const TicketPtr again = h.submit_key(kShortKey, 1);
  h.device().await_begun(5);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.device().open();
  for (const TicketPtr& t : {first, second, again}) EXPECT_TRUE(t->wait().error.ok());
}

TEST(BatchSchedulerFairness, LongWorkIsCancelledInItsLane) {
  LongAndShort h;
  h.device().close();
  const TicketPtr running = h.submit_key(kLongKey, 5), waiting = h.submit_key(kLongKey, 1);
  h.device().await_begun(3);
  for (const TicketPtr& t : {running, waiting}) {
    h.pipeline->cancel(t->handle);
    EXPECT_EQ(t->reason(), Reason::kCancelled);
  }
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));  // the gate is closed: the flag ends it
  EXPECT_EQ(h.device().cancelled(), 1);
  EXPECT_EQ(h.device().seen().size(), 3u);
}

TEST(BatchSchedulerFairness, LargeRequestGoesInPiecesBetweenWhichOthersHaveTheirTurns) {
  LongAndShort h;
  h.device().close();
  const TicketPtr large = h.submit_key(kShortKey, 100, "heavy");  // 4 ms a piece
  h.device().await_begun(3);
  EXPECT_EQ(h.device().seen().back().counts, std::vector<int64_t>{4});
  const TicketPtr small = h.submit_key(kShortKey + 1, 1, "light");
  h.device().let(2);
  EXPECT_TRUE(small->wait().error.ok());
  EXPECT_FALSE(large->done());
  h.device().open();
  EXPECT_TRUE(large->wait().error.ok());
  EXPECT_EQ(large->calls(), 1);
}

TEST(BatchSchedulerFairness, BatchThatADeviceFailedIsFinishedByAnotherAndItsPeersAreForgotten) {
  PipelineHarness h(PipelineHarness::defaults(), {1, 1});
  const TicketPtr first = h.occupy(0), second = h.occupy(1);
  const TicketPtr a = h.submit_key(1, 1, "a"), b = h.submit_key(1, 1, "b"), c = h.submit_key(1, 1, "c");
  h.pipeline->cancel(c->handle);
  h.device(0).fail([] { return DeviceOutcome{absl::InternalError("odd"), false, false, {}}; });
  h.device(0).open();
  h.device(1).open();
  for (const TicketPtr& t : {first, second, a, b}) EXPECT_TRUE(t->wait().error.ok()) << t->wait().error.message;
  EXPECT_EQ(c->reason(), Reason::kCancelled);
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace svdserve::server
