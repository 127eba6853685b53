// Sweeps over the block pairs that are active: every one of them once, in p-steps of disjoint pairs, and no others.
#include "engine/algorithms/large/packed_sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <utility>

namespace svdserve::large {
namespace {

constexpr double kTolerance = 1e-15;

std::set<std::pair<int, int>> pairs_of(const PivotSweep& sweep) {
  std::set<std::pair<int, int>> pairs;
  for (const PivotStep& step : sweep) {
    std::set<int> busy;
    for (const BlockPair pair : step) {
      EXPECT_LT(pair.p, pair.q);
      EXPECT_TRUE(busy.insert(pair.p).second && busy.insert(pair.q).second) << "a p-step has a block twice";
      EXPECT_TRUE(pairs.emplace(pair.p, pair.q).second) << pair.p << " " << pair.q << " twice";
    }
    EXPECT_FALSE(step.empty());
  }
  return pairs;
}

TEST(PackedSweepTest, HasEachActivePairOnce) {
  std::mt19937 random(3);
  for (const int blocks : {2, 3, 16, 17, 70, 129}) {
    for (const double part : {0.01, 0.1, 0.5, 1.0}) {
      BlockCosines cosines(blocks);
      std::set<std::pair<int, int>> active;
      for (int q = 0; q < blocks; ++q) {
        for (int p = 0; p < q; ++p) {
          const bool is = std::uniform_real_distribution<double>()(random) < part;
          cosines.at(p, q) = is ? 1e-9 : kTolerance;
          if (is) active.emplace(p, q);
        }
      }
      const PivotSweep sweep = pivot_sweep(PivotStrategy::kAuto, blocks);
      const PivotSweep packed = packed_sweep(sweep, cosines, kTolerance);
      EXPECT_EQ(pairs_of(packed), active) << blocks << " blocks, " << part;
      EXPECT_LE(packed.size(), 2 * sweep.size());
    }
  }
}

TEST(PackedSweepTest, NeedsFewStepsForFewPairs) {
  constexpr int kBlocks = 128;
  BlockCosines cosines(kBlocks);
  // Eight pairs of each block, in as many p-steps of a whole sweep as there are.
  for (int p = 0; p < kBlocks; ++p) {
    for (int i = 1; i <= 4; ++i) {
      const int q = (p + 13 * i) % kBlocks;
      cosines.at(std::min(p, q), std::max(p, q)) = 1e-3;
    }
  }
  const PivotSweep packed = packed_sweep(pivot_sweep(PivotStrategy::kAuto, kBlocks), cosines, kTolerance);
  EXPECT_EQ(pairs_of(packed).size(), size_t{4 * kBlocks});
  EXPECT_LE(packed.size(), size_t{15});
}

TEST(PackedSweepTest, VisitsBlocksWhoseOwnColumnsAreNotOrthogonal) {
  for (const int blocks : {2, 5}) {
    for (int p = 0; p < blocks; ++p) {
      BlockCosines cosines(blocks);
      cosines.at(p, p) = 1e-9;
      const auto pairs = pairs_of(packed_sweep(pivot_sweep(PivotStrategy::kAuto, blocks), cosines, kTolerance));
      ASSERT_EQ(pairs.size(), 1u);
      EXPECT_TRUE(pairs.begin()->first == p || pairs.begin()->second == p);
    }
  }
}

TEST(PackedSweepTest, IsEmptyWhereNothingIsActive) {
  const BlockCosines cosines(20);
  EXPECT_TRUE(packed_sweep(pivot_sweep(PivotStrategy::kAuto, 20), cosines, kTolerance).empty());
}

TEST(PackedSweepTest, TakesStrategiesThatVisitPairsTwice) {
  for (const int blocks : {15, 16, 40}) {
    BlockCosines cosines(blocks);
    for (int q = 1; q < blocks; ++q) {
      for (int p = 0; p < q; ++p) cosines.at(p, q) = 1;
    }
    const PivotSweep packed = packed_sweep(pivot_sweep(PivotStrategy::kModifiedModulus, blocks), cosines, kTolerance);
    size_t visits = 0;
    for (const PivotStep& step : packed) visits += step.size();
    EXPECT_GE(visits, static_cast<size_t>(blocks * (blocks - 1) / 2));
  }
}

TEST(BlockCosinesTest, ANanIsTheLargest) {
  BlockCosines cosines(4);
  cosines.at(1, 3) = 0.5;
  EXPECT_EQ(cosines.largest(), 0.5);
  cosines.at(0, 2) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(cosines.largest()));
}

}  // namespace
}  // namespace svdserve::large
