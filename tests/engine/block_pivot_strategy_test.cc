// A sweep of every strategy covers every pair of blocks, with disjoint pairs in each p-step.
#include "engine/algorithms/large/block_pivot_strategy.h"

#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"

namespace svdserve {}  // namespace svdserve

namespace svdserve::large {
namespace {

// All but kAuto.
std::vector<PivotStrategy> strategies() {
  std::vector<PivotStrategy> all;
  for (int s = 1; s <= static_cast<int>(PivotStrategy::kLast); ++s) all.push_back(static_cast<PivotStrategy>(s));
  return all;
}

TEST(BlockPivotStrategy, SweepsAreCompleteAndStepsDisjoint) {
  for (const PivotStrategy strategy : strategies()) {
    for (int blocks = 2; blocks <= 80; ++blocks) {
      SCOPED_TRACE(testing::Message() << name(strategy) << ", " << blocks << " blocks");
      std::set<std::pair<int, int>> visited;
      int visits = 0;
      for (const PivotStep& step : pivot_sweep(strategy, blocks)) {
        std::set<int> taken;
        for (const auto [p, q] : step) {
          ASSERT_TRUE(0 <= p && p < q && q < blocks) << p << ", " << q;
          ASSERT_TRUE(taken.insert(p).second && taken.insert(q).second) << p << ", " << q << " meet another pair";
          visited.insert({p, q});
          ++visits;
        }
        ASSERT_FALSE(step.empty());
      }
      const int pairs = blocks * (blocks - 1) / 2;
      ASSERT_EQ(visited.size(), static_cast<size_t>(pairs));
      // Quasi-sweeps visit the antidiagonal's neighbours twice.
      ASSERT_LE(visits, strategy == PivotStrategy::kModifiedModulus ? (blocks + 1) / 2 * (blocks + 1) : pairs);
    }
  }
}

TEST(BlockPivotStrategy, PowersOfTwoTakeNoMoreStepsThanMustBe) {
  for (const PivotStrategy strategy : strategies()) {
    for (const int blocks : {2, 4, 8, 16, 32, 64}) {
      const size_t extra = strategy == PivotStrategy::kModifiedModulus ? 1 : 0;
      EXPECT_EQ(pivot_sweep(strategy, blocks).size(), blocks - 1 + extra) << name(strategy) << ", " << blocks;
    }
  }
}

TEST(BlockPivotStrategy, OneBlockHasNoPairs) {
  for (const PivotStrategy strategy : strategies()) EXPECT_TRUE(pivot_sweep(strategy, 1).empty());
}

// Novakovic 2015, lemma 2: the first p-step of the nearest strategies; and what the row-cyclic one of order 6 is by algorithm 3.1,
// worked out by hand.
TEST(BlockPivotStrategy, NearestStrategiesOfSmallOrder) {
  const PivotSweep rows = internal::nearest_generated(6, true);
  const PivotSweep expected = {{{0, 1}, {2, 3}, {4, 5}},
                               {{0, 2}, {1, 4}, {3, 5}},
                               {{0, 3}, {1, 5}, {2, 4}},
                               {{0, 4}, {1, 3}, {2, 5}},
                               {{0, 5}, {1, 2}, {3, 4}}};
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(rows[i] == expected[i]) << "step " << i;
  for (const bool by_rows : {true, false}) {
    for (int n = 2; n <= kLargestGeneratedOrder; n += 2) {
      const PivotSweep sweep = internal::nearest_generated(n, by_rows);
      ASSERT_EQ(sweep.size(), static_cast<size_t>(n - 1));
      for (int k = 0; k < n / 2; ++k) EXPECT_TRUE((sweep[0][k] == BlockPair{2 * k, 2 * k + 1}));
    }
  }
}

// Novakovic 2015, section 3: expanding order n by algorithm 3.2 gives what algorithm 3.1 gives for 2 n.
TEST(BlockPivotStrategy, ExpansionAgreesWithGeneration) {
  for (const bool by_rows : {true, false}) {
    for (const int n : {2, 4, 6, 8}) {
      PivotSweep expanded = internal::expanded(internal::nearest_generated(n, by_rows), n, by_rows);
      PivotSweep generated = internal::nearest_generated(2 * n, by_rows);
      ASSERT_EQ(expanded.size(), generated.size());
      const auto as_set = [](const PivotStep& step) {
        std::set<std::pair<int, int>> pairs;
        for (const auto [p, q] : step) pairs.insert({p, q});
        return pairs;
      };
      for (size_t i = 0; i < expanded.size(); ++i) {
        EXPECT_EQ(as_set(expanded[i]), as_set(generated[i])) << (by_rows ? "rows " : "columns ") << n << ", step " << i;
      }
    }
  }
}

TEST(BlockPivotStrategy, ReversesAreTheSameStepsBackwards) {
  for (const auto& [forward, backward] :
       {std::pair(PivotStrategy::kRowCyclic, PivotStrategy::kReverseRowCyclic),
        std::pair(PivotStrategy::kColumnCyclic, PivotStrategy::kReverseColumnCyclic)}) {
    const PivotSweep sweep = pivot_sweep(forward, 12), reversed = pivot_sweep(backward, 12);
    ASSERT_EQ(sweep.size(), reversed.size());
    for (size_t i = 0; i < sweep.size(); ++i) {
      PivotStep step = reversed[sweep.size() - 1 - i];
      std::reverse(step.begin(), step.end());
      EXPECT_TRUE(step == sweep[i]);
    }
  }
}

// Novakovic and Singer 2011, algorithms 4.3 and 4.4, by hand for r = 4.
TEST(BlockPivotStrategy, ModifiedModulusOfFour) {
  const PivotSweep expected = {{{0, 3}, {1, 2}}, {{1, 3}, {0, 2}}, {{2, 3}, {0, 1}}, {{1, 3}, {0, 2}}};
  const PivotSweep sweep = pivot_sweep(PivotStrategy::kModifiedModulus, 4);
  ASSERT_EQ(sweep.size(), expected.size());
  for (size_t i = 0; i < sweep.size(); ++i) EXPECT_TRUE(sweep[i] == expected[i]) << "step " << i;
}

}  // namespace
}  // namespace svdserve::large
