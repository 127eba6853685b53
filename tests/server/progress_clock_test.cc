// Progress between what a device tells.
#include "server/large/progress_clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace svdserve::server {
namespace {

LargeProgress told(double fraction, double next, double seconds) {
  LargeProgress progress;
  progress.stage = LargeStage::kWarmStart;
  progress.fraction = fraction;
  progress.next_fraction = next;
  progress.next_seconds = seconds;
  return progress;
}

class ProgressClockTest : public ::testing::Test {
 protected:
  double at(double seconds) { return clock.at(start + absl::Seconds(seconds)).fraction; }
  void hear(double seconds, const LargeProgress& progress) { clock.hear(progress, start + absl::Seconds(seconds)); }

  const absl::Time start = absl::UnixEpoch();
  ProgressClock clock;
};

TEST_F(ProgressClockTest, IsAtZeroBeforeAnythingIsHeard) {
  EXPECT_EQ(at(0), 0);
  EXPECT_EQ(at(1e6), 0);
  EXPECT_EQ(clock.at(start + absl::Hours(300)).off_diagonal, 1);
}

TEST_F(ProgressClockTest, GoesOnAsThePartWasPredictedTo) {
  hear(10, told(0.25, 0.75, 4));
  EXPECT_EQ(at(10), 0.25);
  EXPECT_EQ(at(11), 0.375);
  EXPECT_EQ(at(12), 0.5);
  EXPECT_EQ(clock.at(start + absl::Seconds(13)).stage, LargeStage::kWarmStart);
}

TEST_F(ProgressClockTest, WaitsAtTheEndOfThePart) {
  hear(0, told(0.25, 0.75, 4));
  EXPECT_EQ(at(4), 0.75);
  EXPECT_EQ(at(1000), 0.75);
  hear(1001, told(0.75, 1, 1));
  EXPECT_EQ(at(1001.5), 0.875);
}

TEST_F(ProgressClockTest, NeverFalls) {
  hear(0, told(0.25, 0.75, 4));
  EXPECT_EQ(at(3), 0.625);
  hear(3, told(0.5, 0.75, 4));  // slower than was thought
  EXPECT_EQ(at(3), 0.625);
  EXPECT_EQ(at(6), 0.6875);
  hear(7, told(0, 1, 10));  // another device begins anew
  EXPECT_EQ(at(8), 0.6875);
  EXPECT_EQ(at(15), 0.8);
}

TEST_F(ProgressClockTest, APartOfNoTimeStandsStill) {
  hear(0, told(0.25, 0.75, 0));
  EXPECT_EQ(at(9), 0.25);
  hear(10, told(0.5, 0.75, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(at(11), 0.5);
}

}  // namespace
}  // namespace svdserve::server
