#include "server/device/device_load.h"

#include <gtest/gtest.h>

namespace svdserve::server {
namespace {

const absl::Time kStart = absl::UnixEpoch();
absl::Duration ms(double n) { return absl::Milliseconds(n); }

TEST(DeviceLoad, LanesAreHeldAndFreed) {
  DeviceLoad load(2);
  EXPECT_EQ(load.free_lane(), 0);
  EXPECT_TRUE(load.idle());
  load.Hold(0, {});
  EXPECT_FALSE(load.idle());
  EXPECT_EQ(load.free_lane(), 1);
  load.Hold(1, {});
  EXPECT_EQ(load.free_lane(), std::nullopt);
  EXPECT_EQ(load.held(), 2);
  load.Release(0);
  EXPECT_EQ(load.free_lane(), 0);
  EXPECT_EQ(load.held(), 1);
}

TEST(DeviceLoad, ALaneThatComputesSeveralTimesEndsOnce) {
  DeviceLoad load(1);
  load.Hold(0, {});
  for (int run = 0; run < 3; ++run) {
    load.Begin(0, kStart + run * ms(2));
    EXPECT_FALSE(load.idle());
    load.End(0, kStart + run * ms(2) + ms(1));
    EXPECT_TRUE(load.idle());
  }
  load.Release(0);
  EXPECT_TRUE(load.idle());
  load.Hold(0, {});
  EXPECT_FALSE(load.idle());
}

TEST(DeviceLoad, BacklogShrinksAsALaneComputes) {
  DeviceLoad load(1);
  load.Hold(0, {ms(10), ms(8)});
  EXPECT_EQ(load.Backlog(kStart), ms(10));
  load.Begin(0, kStart);
  EXPECT_EQ(load.Backlog(kStart + ms(4)), ms(6));
  EXPECT_EQ(load.OptimisticBacklog(kStart + ms(4)), ms(4));
  EXPECT_EQ(load.End(0, kStart + ms(9)), ms(9));
  EXPECT_EQ(load.Backlog(kStart + ms(9)), ms(0));  // its answers are being given
  EXPECT_TRUE(load.idle());
  EXPECT_EQ(load.held(), 1);
  load.Release(0);
  EXPECT_TRUE(load.idle());
}

TEST(DeviceLoad, LateWorkIsExpectedToStayAsLongAsItIsLate) {
  DeviceLoad load(1);
  load.Hold(0, {ms(10), ms(8)});
  load.Begin(0, kStart);
  EXPECT_EQ(load.Backlog(kStart + ms(10)), ms(0));
  EXPECT_EQ(load.Backlog(kStart + ms(13)), ms(3));
  EXPECT_EQ(load.Backlog(kStart + ms(110)), ms(100));
  EXPECT_EQ(load.OptimisticBacklog(kStart + ms(110)), ms(0));
}

TEST(DeviceLoad, LanesThatOverlapShareTheDevice) {
  DeviceLoad load(2);
  load.Hold(0, {ms(10), ms(10)});
  load.Hold(1, {ms(10), ms(10)});
  load.Begin(0, kStart);
  load.Begin(1, kStart + ms(2));  // lane 0 has had 2
  EXPECT_EQ(load.Backlog(kStart + ms(2)), ms(18));
  EXPECT_EQ(load.Backlog(kStart + ms(6)), ms(14));
  EXPECT_EQ(load.End(0, kStart + ms(18)), ms(10));
  EXPECT_EQ(load.Backlog(kStart + ms(18)), ms(2));
  EXPECT_EQ(load.End(1, kStart + ms(20)), ms(10));
  EXPECT_EQ(load.busy(kStart + ms(20)), ms(20));  // and not the 34 of its lanes
  EXPECT_EQ(load.busy(kStart + ms(50)), ms(20));
}

}  // namespace
}  // namespace svdserve::server
