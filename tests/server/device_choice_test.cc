// The device that work goes to, when devices differ in speed and are busy. The pool predicts, and the scheduler waits
// for a device that is busy but sooner. "fast" needs 40 us for a batch and hardly more for a thousand matrices, as a
// GPU does; "slow" needs 1 us a matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/device/device_pool.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using ::testing::SizeIs;

const Plan kPlan = *make_plan({2, 2, DType::kF64, Order::kRowMajor}, {}).plan;
constexpr int kFast = 0, kSlow = 1;

class DeviceChoice : public testing::Test {
 protected:
  DeviceChoice() {
    std::vector<std::unique_ptr<Device>> devices;
    for (const char* name : {"fast", "slow"}) {
      controls_.push_back(std::make_shared<FakeDeviceControl>());
      devices.push_back(std::make_unique<FakeDevice>(name, 1, controls_.back()));
    }
    pool_ = std::make_unique<DevicePool>(std::move(devices), &clock_, &recorder_);
    teach(kFast, 1, absl::Microseconds(40));
    teach(kFast, 1000, absl::Microseconds(60));
    teach(kSlow, 1, absl::Microseconds(1));
    teach(kSlow, 1000, absl::Microseconds(1000));
  }

  std::optional<Lane> place(int64_t matrices, const std::vector<int>& tried = {}) {
    return DevicePool::Placement(pool_.get()).place(kPlan, matrices, tried);
  }

  // Runs `count` matrices on a device, which take `took`.
  void teach(int device, int64_t count, absl::Duration took) {
    controls_[device]->fail([this, took] {
      clock_.advance(took);
      return DeviceOutcome{absl::OkStatus(), false, true, {}};
    });
    const HostSegment segment{nullptr, count, nullptr, nullptr};
    const std::atomic<bool> cancel{false};
    const Lane lane = *place(count, {1 - device});
    pool_->execute(lane, kPlan, {&segment, 1}, &cancel);
    pool_->release(lane);
    controls_[device]->fail(nullptr);
  }

  FakeClock clock_;
  CountingRecorder recorder_;
  std::vector<std::shared_ptr<FakeDeviceControl>> controls_;
  std::unique_ptr<DevicePool> pool_;
};

TEST_F(DeviceChoice, EachLoadGoesWhereItIsDoneFirst) {
  EXPECT_EQ(place(1)->device, kSlow);
  EXPECT_EQ(place(1000)->device, kFast);
}

TEST_F(DeviceChoice, WhatADeviceStillHasToDoCounts) {
  EXPECT_EQ(place(30)->device, kSlow);  // 30 us there
  EXPECT_EQ(place(30)->device, kFast);  // 30 us more would make 60, and the fast one takes 41
}

TEST_F(DeviceChoice, TinyLoadWaitsForNoFasterDevice) {
  ASSERT_EQ(place(1000)->device, kFast);
  EXPECT_EQ(place(2)->device, kSlow);
}

TEST_F(DeviceChoice, LargeLoadWaitsForTheFastDevice) {
  ASSERT_EQ(place(1000)->device, kFast);  // 60 us
  DevicePool::Placement placement(pool_.get());
  EXPECT_TRUE(placement.lane_free());
  EXPECT_FALSE(placement.place(kPlan, 1000, {}).has_value());  // 120 us there, 1000 us here
  EXPECT_EQ(placement.look_again(), clock_.now() + absl::Microseconds(880));
}

TEST_F(DeviceChoice, WhatWaitsCountsAsAheadOfWhatComesAfterIt) {
  ASSERT_EQ(place(1000)->device, kFast);
  DevicePool::Placement placement(pool_.get());
  int waiting = 0;
  std::optional<Lane> lane;
  while (!(lane = placement.place(kPlan, 1000, {})).has_value()) ++waiting;
  EXPECT_EQ(lane->device, kSlow);  // when so many are before it that even the slow one is done first
  EXPECT_EQ(waiting, 15);          // 60 (1 + 15 + 1) > 1000
}

TEST_F(DeviceChoice, SmallLoadBehindALargeOneThatWaitsTakesTheFreeDevice) {
  ASSERT_EQ(place(1000)->device, kFast);
  DevicePool::Placement placement(pool_.get());
  EXPECT_FALSE(placement.place(kPlan, 1000, {}).has_value());
  EXPECT_EQ(placement.place(kPlan, 3, {})->device, kSlow);
}

TEST_F(DeviceChoice, DeviceThatIsLateIsWaitedForNoLongerThanTheOtherTakes) {
  ASSERT_EQ(place(1000)->device, kFast);
  const Lane busy{kFast, 0};
  controls_[kFast]->close();
  const std::atomic<bool> cancel{false};
  const HostSegment segment{nullptr, 0, nullptr, nullptr};
  std::thread runner([&] { pool_->execute(busy, kPlan, {&segment, 1}, &cancel); });
  controls_[kFast]->await_begun(3);
  int looks = 0;
  std::optional<Lane> lane;
  const absl::Time start = clock_.now();
  while (true) {
    DevicePool::Placement placement(pool_.get());
    if ((lane = placement.place(kPlan, 1000, {})).has_value()) break;
    ASSERT_GT(placement.look_again(), clock_.now());
    clock_.advance(placement.look_again() - clock_.now());
    ++looks;
  }
  EXPECT_EQ(lane->device, kSlow);
  EXPECT_LE(clock_.now() - start, absl::Microseconds(1001));
  EXPECT_GE(clock_.now() - start, absl::Microseconds(900));
  EXPECT_LE(looks, 3);
  controls_[kFast]->open();
  runner.join();
}

TEST_F(DeviceChoice, TriedDevicesAreLeftOut) {
  EXPECT_EQ(place(1000, {kFast})->device, kSlow);
  EXPECT_FALSE(place(1000, {kFast}).has_value());         // its only lane is taken
  EXPECT_FALSE(place(1000, {kFast, kSlow}).has_value());  // nothing is left to wait for
}

TEST_F(DeviceChoice, DeviceThatFailedIsAvoidedForAWhile) {
  const std::atomic<bool> cancel{false};
  const auto fail = [&] {
    controls_[kFast]->fail([] { return DeviceOutcome{absl::InternalError("odd"), false, false, {}}; });
    const Lane lane = *place(1000, {kSlow});
    pool_->execute(lane, kPlan, {}, &cancel);
    pool_->release(lane);
  };
  const auto choice = [&] {
    const Lane lane = *place(1000);
    pool_->release(lane);
    return lane.device;
  };
  fail();
  EXPECT_EQ(choice(), kSlow);
  clock_.advance(absl::Milliseconds(998));
  EXPECT_EQ(choice(), kSlow);
  clock_.advance(absl::Milliseconds(2));
  EXPECT_EQ(choice(), kFast);
  fail();
  clock_.advance(absl::Milliseconds(1900));
  EXPECT_EQ(choice(), kSlow);  // twice as long
  EXPECT_EQ(place(1000)->device, kSlow);
  EXPECT_FALSE(place(1000).has_value());  // better to wait for the other
  clock_.advance(absl::Milliseconds(101));
  teach(kFast, 1000, absl::Microseconds(60));  // a clean run: it is forgiven
  fail();
  clock_.advance(absl::Milliseconds(1001));
  EXPECT_EQ(choice(), kFast);
}

TEST_F(DeviceChoice, SharesFollowMeasuredSpeed) {
  teach(kFast, 100000, absl::Microseconds(10000));  // 0.1 us a matrix
  teach(kSlow, 100000, absl::Microseconds(100000));
  const std::vector<int64_t> shares = pool_->shares(kPlan, 110000, 1);
  ASSERT_THAT(shares, SizeIs(2));
  EXPECT_NEAR(static_cast<double>(shares[kFast]), 100000, 3000);
  EXPECT_EQ(shares[kFast] + shares[kSlow], 110000);
  EXPECT_THAT(pool_->shares(kPlan, 110000, 20000), testing::ElementsAre(110000));  // the slow one is not worth it
  place(100000);                                                                   // the fast one is busy
  EXPECT_THAT(pool_->shares(kPlan, 110000, 1), testing::ElementsAre(110000));
}

TEST_F(DeviceChoice, OnlyShortWorkIsPlacedForTheCallersThread) {
  EXPECT_FALSE(pool_->place_short(kPlan, 1000, absl::Microseconds(20)).has_value());
  const auto lane = pool_->place_short(kPlan, 3, absl::Microseconds(20));
  ASSERT_TRUE(lane.has_value());
  EXPECT_EQ(lane->device, kSlow);
}

TEST(DeviceSideLanes, TakeWhatIsSoonerDoneThanHandedOver) {
  FakeClock clock;
  CountingRecorder recorder;
  const auto control = std::make_shared<FakeDeviceControl>();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<FakeDevice>("host:0", 1, control, DeviceKind::kHost, 2));
  DevicePool pool(std::move(devices), &clock, &recorder);
  // A matrix takes a microsecond.
  control->fail([&clock] {
    clock.advance(absl::Microseconds(3));
    return DeviceOutcome{absl::OkStatus(), false, true, {}};
  });
  const std::atomic<bool> cancel{false};
  const HostSegment segment{nullptr, 3, nullptr, nullptr};
  const Lane lane = *DevicePool::Placement(&pool).place(kPlan, 3, {});
  pool.execute(lane, kPlan, {&segment, 1}, &cancel);

  EXPECT_FALSE(DevicePool::Placement(&pool).lane_free());  // it is held still
  EXPECT_FALSE(pool.place_beside(kPlan, 1000).has_value());
  const auto first = pool.place_beside(kPlan, 3), second = pool.place_beside(kPlan, 3);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->index, 1);
  EXPECT_EQ(second->index, 2);
  EXPECT_FALSE(pool.place_beside(kPlan, 3).has_value());
  EXPECT_TRUE(pool.execute(*first, kPlan, {&segment, 1}, &cancel).outcome.completed);
  pool.release(*first);
  EXPECT_EQ(pool.place_beside(kPlan, 3)->index, 1);
  pool.release(lane);
  EXPECT_EQ(DevicePool::Placement(&pool).place(kPlan, 3, {})->index, 0);  // never a side lane
}

TEST_F(DeviceChoice, MatricesWithinATimeAreThoseOfTheQuickestDevice) {
  constexpr int64_t kMost = 1 << 20;
  EXPECT_EQ(pool_->matrices_within(kPlan, {absl::Milliseconds(4), 1000, 1000}), 1000);
  const int64_t within = pool_->matrices_within(kPlan, {absl::Milliseconds(4), kMost, 16 * kMost});
  EXPECT_NEAR(static_cast<double>(within), 4000 / 0.06, 1000);  // 60 us a thousand there
  const Plan groups = [] {
    Plan plan = kPlan;
    plan.outputs.group = 7;
    return plan;
  }();
  EXPECT_EQ(pool_->matrices_within(groups, {absl::Milliseconds(4), 7 * kMost, 7 * kMost}) % 7, 0);
}

// A device that takes as long for many matrices as for one gets many; one that does not gets what takes twice as long.
TEST_F(DeviceChoice, WhereOneMatrixTakesLongerThanTheTimeSeveralGoTogether) {
  const Plan large = *make_plan({128, 128, DType::kF64, Order::kRowMajor}, {}).plan;
  const auto teach = [&](int64_t count, absl::Duration took) {
    for (const int device : {kFast, kSlow}) {
      controls_[device]->fail([this, took] {
        clock_.advance(took);
        return DeviceOutcome{absl::OkStatus(), false, true, {}};
      });
      const HostSegment segment{nullptr, count, {}, nullptr};
      const std::atomic<bool> cancel{false};
      const Lane lane = *DevicePool::Placement(pool_.get()).place(large, count, {1 - device});
      pool_->execute(lane, large, {&segment, 1}, &cancel);
      pool_->release(lane);
    }
  };
  const auto within = [&](int64_t most = 64) {
    return pool_->matrices_within(large, {absl::Milliseconds(4), most, 64});
  };
  teach(1, absl::Milliseconds(30));
  teach(64, absl::Milliseconds(40));
  EXPECT_EQ(within(), 64);
  EXPECT_EQ(within(4), 64);  // more bytes than other batches may have
  for (int i = 0; i < 40; ++i) teach(64, absl::Milliseconds(30 * 64));
  EXPECT_EQ(within(), 2);
}

// A GPU that computes 33 matrices in the time of one, beside a host that is quicker at one and may take none of them. The
// sizes of batches do not depend on how many matrices the first ones had, nor on the host.
TEST(BatchesOfAGpu, HaveAsManyLongMatricesAsItComputesAtOnce) {
  const Plan large = *make_plan({512, 512, DType::kF64, Order::kRowMajor}, {}).plan;
  const Plan middle = *make_plan({256, 256, DType::kF64, Order::kRowMajor}, {}).plan;
  const BatchBounds bounds{absl::Milliseconds(4), 4, 64};
  for (const int64_t first : {1, 2, 8, 64}) {
    FakeClock clock;
    CountingRecorder recorder;
    const auto host = std::make_shared<FakeDeviceControl>(), gpu = std::make_shared<FakeDeviceControl>();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<FakeDevice>("host:0", 1, host));
    devices.push_back(std::make_unique<FakeDevice>("cuda:0", 1, gpu, DeviceKind::kCuda, 0, 0, 33));
    DevicePool pool(std::move(devices), &clock, &recorder);
    const auto teach = [&](const Plan& plan, int64_t count, absl::Duration took) {
      gpu->fail([&clock, took] {
        clock.advance(took);
        return DeviceOutcome{absl::OkStatus(), false, true, {}};
      });
      const HostSegment segment{nullptr, count, {}, nullptr};
      const std::atomic<bool> cancel{false};
      const Lane lane = *DevicePool::Placement(&pool).place(plan, count, {0});
      pool.execute(lane, plan, {&segment, 1}, &cancel);
      pool.release(lane);
    };
    teach(kPlan, 1, absl::Microseconds(10));
    teach(large, first, absl::Milliseconds(20));
    EXPECT_GE(pool.matrices_within(large, bounds), 33) << first;
    // Each takes as long, if more of them than it computes at once.
    for (int i = 0; i < 40; ++i) {
      teach(large, 33, absl::Milliseconds(20));
      teach(large, 64, absl::Milliseconds(60));
    }
    EXPECT_GE(pool.matrices_within(large, bounds), 33) << first;
    EXPECT_LT(pool.matrices_within(large, bounds), 64) << first;
    // Those that take no time go by bytes, and as many as are computed at once.
    EXPECT_EQ(pool.matrices_within(kPlan, {absl::Milliseconds(4), 1000, 16000}), 1000);
    teach(middle, 33, absl::Milliseconds(1));
    EXPECT_EQ(pool.matrices_within(middle, {absl::Milliseconds(4), 16, 256}), 33);
  }
}

TEST_F(DeviceChoice, EarliestDoneIsNeverOfAnIdleDevice) {
  EXPECT_EQ(pool_->earliest_done(kPlan, 1000, 0, false), absl::ZeroDuration());
  place(1000);
  EXPECT_EQ(pool_->earliest_done(kPlan, 1000, 1 << 20, false), absl::ZeroDuration());  // the slow one is idle
  place(1000, {kFast});
  const absl::Duration own = pool_->earliest_done(kPlan, 1000, 0, false);
  EXPECT_GE(own, absl::Microseconds(60));
  EXPECT_LE(own, absl::Microseconds(121));
  const absl::Duration behind = pool_->earliest_done(kPlan, 1000, 9000, false);
  EXPECT_GT(behind, own);
  EXPECT_LT(behind, absl::Microseconds(700));
}

// Beside a GPU the host takes no matrices of other bits there, so that it is idle tells nothing of them.
TEST(EarliestDone, IsNotOfAHostThatDoesNotTakeTheWork) {
  const Plan large = *make_plan({64, 64, DType::kF64, Order::kRowMajor}, {}).plan;
  FakeClock clock;
  CountingRecorder recorder;
  const auto host = std::make_shared<FakeDeviceControl>(), gpu = std::make_shared<FakeDeviceControl>();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<FakeDevice>("host:0", 1, host));
  devices.push_back(std::make_unique<FakeDevice>("cuda:0", 1, gpu, DeviceKind::kCuda));
  DevicePool pool(std::move(devices), &clock, &recorder);
  gpu->fail([&clock] {
    clock.advance(absl::Milliseconds(3));
    return DeviceOutcome{absl::OkStatus(), false, true, {}};
  });
  const HostSegment segment{nullptr, 10, {}, nullptr};
  const std::atomic<bool> cancel{false};
  for (const Plan& plan : {kPlan, large}) {
    const Lane lane = *DevicePool::Placement(&pool).place(plan, 10, {0});
    pool.execute(lane, plan, {&segment, 1}, &cancel);
    pool.release(lane);
  }
  EXPECT_EQ(pool.earliest_done(large, 10, 0, false), absl::ZeroDuration());  // the GPU is idle
  const Lane held = *DevicePool::Placement(&pool).place(large, 10, {0});
  EXPECT_GE(pool.earliest_done(large, 10, 0, false), absl::Milliseconds(6));
  EXPECT_EQ(pool.earliest_done(kPlan, 1, 0, false), absl::ZeroDuration());
  pool.release(held);
}

TEST_F(DeviceChoice, OfAShapeThatNeverRanNothingIsKnown) {
  place(1000), place(1000, {kFast});
  const Plan other = *make_plan({32, 32, DType::kF64, Order::kRowMajor}, {}).plan;
  EXPECT_EQ(pool_->earliest_done(other, 1 << 20, 0, false), absl::ZeroDuration());
}

// --- through the scheduler ------------------------------------------------------------------------

// Device 0 takes 10 ms for a matrix, device 1 takes 1 ms.
struct TwoSpeeds : PipelineHarness {
  TwoSpeeds() : PipelineHarness(defaults(), {1, 1}) {
    takes(0, absl::Milliseconds(10));
    takes(1, absl::Milliseconds(1));
    EXPECT_EQ(submit(1)->wait().devices, "fake:0");  // nothing is known of either
    EXPECT_EQ(submit(1)->wait().devices, "fake:1");  // nothing is known of this one
    settle(*pipeline, 0);
    settle(*pipeline, 1);
    device(0).fail(nullptr);
    device(1).fail(nullptr);
  }
  void takes(int d, absl::Duration time) {
    device(d).fail([this, time] {
      clock.advance(time);
      return DeviceOutcome{absl::OkStatus(), false, true, {1, 0, 0, 0}};
    });
  }
};

TEST(BatchSchedulerChoice, WorkWaitsForTheBusyDeviceThatIsSooner) {
  TwoSpeeds h;
  const TicketPtr first = h.occupy(1);
  const TicketPtr second = h.submit(1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.device(1).open();
  EXPECT_EQ(first->wait().devices, "fake:1");
  EXPECT_EQ(second->wait().devices, "fake:1");
}

TEST(BatchSchedulerChoice, DeviceThatNeverEndsStarvesNobody) {
  TwoSpeeds h;
  const TicketPtr stuck = h.occupy(1);
  const TicketPtr waiting = h.submit(1);
  h.clock.advance(absl::Milliseconds(9));
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.clock.advance(absl::Milliseconds(1));  // the alarm: by now the slow one is no slower
  EXPECT_EQ(h.pipeline->stats().queued_requests, 0);
  EXPECT_EQ(waiting->wait().devices, "fake:0");
  EXPECT_NEAR(absl::ToDoubleMilliseconds(waiting->wait().timing.queue), 10, 0.001);
  EXPECT_FALSE(stuck->done());
}

TEST(BatchSchedulerChoice, LongLineUsesTheSlowDeviceToo) {
  TwoSpeeds h;
  h.device(0).close();
  const TicketPtr first = h.occupy(1);
  std::vector<TicketPtr> line;
  for (int key = 1; key <= 12; ++key) line.push_back(h.submit_key(key, 1));
  h.device(0).await_begun(2);  // the first that is done there no later than here
  EXPECT_EQ(h.pipeline->stats().queued_requests, 11);
  h.device(0).open();
  h.device(1).open();
  int on_slow = 0;
  for (const TicketPtr& t : line) on_slow += t->wait().devices == "fake:0" ? 1 : 0;
  EXPECT_GE(on_slow, 1);
}

TEST(BatchSchedulerChoice, WhatWaitsMovesWhenItsDeviceIsLost) {
  TwoSpeeds h;
  const TicketPtr first = h.occupy(1);
  const TicketPtr second = h.submit(1);
  h.device(1).fail([] { return DeviceOutcome{absl::InternalError("gone"), true, false, {}}; });
  h.device(1).open();
  EXPECT_EQ(first->wait().devices, "fake:0");
  EXPECT_EQ(second->wait().devices, "fake:0");
}

TEST(BatchSchedulerChoice, WaitingByChoiceEndsByDeadlineAndCancelToo) {
  TwoSpeeds h;
  const TicketPtr first = h.occupy(1);
  const TicketPtr late = h.submit(1, 1, h.clock.now() + absl::Milliseconds(5));
  const TicketPtr gone = h.submit_key(1, 1);
  h.pipeline->cancel(gone->handle);
  EXPECT_EQ(gone->reason(), Reason::kCancelled);
  h.clock.advance(absl::Milliseconds(5));
  EXPECT_EQ(late->reason(), Reason::kDeadlineExceeded);
  EXPECT_THAT(h.device(0).seen(), SizeIs(1));
}

}  // namespace
}  // namespace svdserve::server
