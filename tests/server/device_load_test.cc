#include "server/device/device_load.h"

#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

const absl::Time kStart = absl::UnixEpoch();
absl::Duration ms(double n) { return absl::Milliseconds(n); }

TEST(DeviceLoad, LanesAreHeldAndFreed) {
  DeviceLoad load(2);
  const auto free_lane = [&load] { return load.free_lane(ms(1), kStart); };
  EXPECT_EQ(free_lane(), 0);
  EXPECT_TRUE(load.idle());
  load.hold(0, {}, kStart);
  EXPECT_FALSE(load.idle());
  EXPECT_EQ(free_lane(), 1);
  load.hold(1, {}, kStart);
  EXPECT_EQ(free_lane(), std::nullopt);
  EXPECT_EQ(load.held(), 2);
  load.release(0);
  EXPECT_EQ(free_lane(), 0);
  EXPECT_EQ(load.held(), 1);
}

TEST(DeviceLoad, ALaneThatComputesSeveralTimesEndsOnce) {
  DeviceLoad load(1);
  load.hold(0, {}, kStart);
  for (int run = 0; run < 3; ++run) {
    load.begin(0, kStart + run * ms(2));
    EXPECT_FALSE(load.idle());
    load.end(0, kStart + run * ms(2) + ms(1));
    EXPECT_TRUE(load.idle());
  }
  load.release(0);
  EXPECT_TRUE(load.idle());
  load.hold(0, {}, kStart);
  EXPECT_FALSE(load.idle());
}

TEST(DeviceLoad, BacklogShrinksAsALaneComputes) {
  DeviceLoad load(1);
  load.hold(0, {ms(10), ms(8)}, kStart);
  EXPECT_EQ(load.backlog(kStart), ms(10));
  load.begin(0, kStart);
  EXPECT_EQ(load.backlog(kStart + ms(4)), ms(6));
  EXPECT_EQ(load.optimistic_backlog(kStart + ms(4)), ms(4));
  EXPECT_EQ(load.end(0, kStart + ms(9)), ms(9));
  EXPECT_EQ(load.backlog(kStart + ms(9)), ms(0));  // its answers are being given
  EXPECT_TRUE(load.idle());
  EXPECT_EQ(load.held(), 1);
  load.release(0);
  EXPECT_TRUE(load.idle());
}

TEST(DeviceLoad, LateWorkIsExpectedToStayAsLongAsItIsLate) {
  DeviceLoad load(1);
  load.hold(0, {ms(10), ms(8)}, kStart);
  load.begin(0, kStart);
  EXPECT_EQ(load.backlog(kStart + ms(10)), ms(0));
  EXPECT_EQ(load.backlog(kStart + ms(13)), ms(3));
  EXPECT_EQ(load.backlog(kStart + ms(110)), ms(100));
  EXPECT_EQ(load.optimistic_backlog(kStart + ms(110)), ms(0));
}

TEST(DeviceLoad, LanesThatOverlapShareTheDevice) {
  DeviceLoad load(2);
  load.hold(0, {ms(10), ms(10)}, kStart);
  load.hold(1, {ms(10), ms(10)}, kStart);
  load.begin(0, kStart);
  load.begin(1, kStart + ms(2));  // lane 0 has had 2
  EXPECT_EQ(load.backlog(kStart + ms(2)), ms(18));
  EXPECT_EQ(load.backlog(kStart + ms(6)), ms(14));
  EXPECT_EQ(load.end(0, kStart + ms(18)), ms(10));
  EXPECT_EQ(load.backlog(kStart + ms(18)), ms(2));
  EXPECT_EQ(load.end(1, kStart + ms(20)), ms(10));
  EXPECT_EQ(load.busy(kStart + ms(20)), ms(20));  // and not the 34 of its lanes
  EXPECT_EQ(load.busy(kStart + ms(50)), ms(20));
}

const CostEstimate kShort{ms(2), ms(1)}, kLong{ms(50), ms(40)};

TEST(DeviceLoad, ReliefLaneIsForShortWorkWhileLongWorkHoldsTheOther) {
  DeviceLoad load(1, 1, 4);
  const auto lane_for = [&load](const CostEstimate& work) { return load.free_lane(work.typical, kStart); };
  load.hold(0, kShort, kStart);  // one batch fills the device
  EXPECT_EQ(lane_for(kShort), std::nullopt);
  EXPECT_EQ(lane_for(kLong), std::nullopt);
  load.release(0);
  load.hold(0, kLong, kStart);
  EXPECT_EQ(lane_for(kLong), std::nullopt);
  EXPECT_EQ(lane_for(kShort), 1);
  load.hold(1, kShort, kStart);
  EXPECT_EQ(lane_for(kShort), std::nullopt);
  EXPECT_EQ(load.free_side_lane(), 2);
  load.release(0);  // the long work ends first
  EXPECT_EQ(lane_for(kLong), std::nullopt);
  EXPECT_EQ(lane_for(kShort), std::nullopt);
  load.release(1);
  EXPECT_EQ(lane_for(kLong), 0);
}

TEST(DeviceLoad, WorkThatTurnsOutToBeLongIsRelievedToo) {
  DeviceLoad load(1, 1);
  load.hold(0, kShort, kStart);
  EXPECT_EQ(load.relief(kStart), absl::InfiniteFuture());  // it has not begun
  load.begin(0, kStart + ms(1));
  EXPECT_EQ(load.relief(kStart + ms(1)), kStart + ms(1) + kLongWork);
  EXPECT_EQ(load.free_lane(ms(1), kStart + kLongWork), std::nullopt);
  EXPECT_EQ(load.free_lane(ms(1), kStart + ms(1) + kLongWork), 1);
  EXPECT_EQ(load.relief(kStart + ms(1) + kLongWork), absl::InfiniteFuture());
}

TEST(DeviceLoad, OneOfSeveralLanesIsKeptFromLongWorkWhileShortWorkComes) {
  DeviceLoad load(2);
  const auto lane_for = [&load](const CostEstimate& work, absl::Time now) { return load.free_lane(work.typical, now); };
  load.hold(0, kLong, kStart);
  EXPECT_EQ(lane_for(kLong, kStart), 1);  // no short work came yet
  load.hold(1, kShort, kStart);
  load.release(1);
  EXPECT_EQ(lane_for(kLong, kStart), std::nullopt);
  EXPECT_EQ(lane_for(kLong, kStart + kShortWorkExpected - ms(1)), std::nullopt);
  EXPECT_EQ(lane_for(kShort, kStart), 1);
  EXPECT_EQ(lane_for(kLong, kStart + kShortWorkExpected), 1);
}

TEST(DeviceLoad, LongWorkDelaysShortWorkByItsOwnLengthAtMost) {
  DeviceLoad load(1, 1);
  load.hold(0, kLong, kStart);
  EXPECT_EQ(load.backlog(kStart), ms(50));
  EXPECT_EQ(load.backlog(kStart, ms(20)), ms(50));
  EXPECT_EQ(load.backlog(kStart, ms(2)), ms(2));
  EXPECT_EQ(load.optimistic_backlog(kStart, ms(2)), ms(0));
  EXPECT_EQ(load.optimistic_backlog(kStart, ms(20)), ms(40));
  DeviceLoad alone(1);  // nothing passes there
  alone.hold(0, kLong, kStart);
  EXPECT_EQ(alone.backlog(kStart, ms(2)), ms(50));
}

}  // namespace
}  // namespace svdserve::server
