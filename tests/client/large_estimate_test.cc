// The estimate of a large matrix's time, over the course of calls whose time is known.
#include "client/cpp/calls/large/large_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace svdserve::client::internal {
namespace {

// Updates of a matrix: 1 s of upload, a computation, 2 s of download. The server tells of the computation now and then.
std::vector<LargeProgress> course(double compute, double between) {
  std::vector<LargeProgress> told;
  for (int i = 1; i <= 10; ++i) told.push_back({.fraction = i / 10.0, .elapsed_seconds = i / 10.0});
  told.push_back({.stage = LargeStage::kQueued, .elapsed_seconds = 1});
  for (double t = between; t < compute; t += between) {
    told.push_back({.stage = LargeStage::kSweep, .fraction = t / compute, .elapsed_seconds = 1 + t});
  }
  for (int i = 1; i <= 20; ++i) {
    told.push_back({.stage = LargeStage::kDownload, .fraction = i / 20.0, .elapsed_seconds = 1 + compute + i / 10.0});
  }
  return told;
}

TEST(LargeEstimate, IsRightWhereThePredictionIs) {
  for (const double compute : {0.5, 10.0}) {
    LargeEstimate estimate(100, 200);
    estimate.predict(compute);
    double before = 0;
    for (LargeProgress& p : course(compute, 0.25)) {
      estimate.complete(&p);
      EXPECT_NEAR(p.overall, p.elapsed_seconds / (3 + compute), 0.1) << name(p.stage) << p.elapsed_seconds;
      EXPECT_GE(p.overall, before);
      before = p.overall;
      if (p.elapsed_seconds > 0.15) {
        EXPECT_NEAR(p.eta_seconds, 3 + compute - p.elapsed_seconds, 0.1) << p.elapsed_seconds;
      }
    }
    EXPECT_EQ(before, 1);
  }
}

TEST(LargeEstimate, FollowsTheComputationWhereThePredictionIsWrong) {
  for (const double predicted : {0.0, 1.0, 100.0}) {
    LargeEstimate estimate(100, 200);
    estimate.predict(predicted);
    double before = 0;
    for (LargeProgress& p : course(10, 0.25)) {
      estimate.complete(&p);
      EXPECT_GE(p.overall, before);
      before = p.overall;
      if (p.elapsed_seconds < 2.5) continue;
      EXPECT_NEAR(p.eta_seconds, 13 - p.elapsed_seconds, 0.1) << predicted << " " << p.elapsed_seconds;
    }
    EXPECT_EQ(before, 1);
  }
}

TEST(LargeEstimate, NothingThatAServerSaysMakesItMeaningless) {
  for (const double predicted : {std::nan(""), -1.0, HUGE_VAL, std::numeric_limits<double>::max()}) {
    LargeEstimate estimate(0, 0);
    estimate.predict(predicted);
    for (const LargeStage stage : {LargeStage::kQueued, LargeStage::kUpload, LargeStage::kDownload, LargeStage::kSweep,
                                   LargeStage::kFinish, LargeStage::kQueued}) {
      for (const double fraction : {0.0, 1.0, 0.5}) {
        LargeProgress p{.stage = stage, .fraction = fraction};
        estimate.complete(&p);
        EXPECT_TRUE(p.overall >= 0 && p.overall <= 1) << p.overall;
        EXPECT_TRUE(p.eta_seconds >= 0 && std::isfinite(p.eta_seconds)) << p.eta_seconds;
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::client::internal
