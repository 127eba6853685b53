// Halves of p-steps that are computed beside each other: they half no block, and last long where the order of pairs
// allows it. Their products come in an order in which each finds what it needs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_pivot_strategy.h"
#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/cuda/p_steps/step_halves.h"
#include "engine/backends/ring/ring_layout.h"
#include "gtest/gtest.h"

namespace svdserve::cuda {
namespace {

using large::PivotStep;

using large::PivotSweep;

std::vector<large::PStep<double>> steps_of(const PivotSweep& sweep) {
  std::vector<large::PStep<double>> steps;
  for (const PivotStep& pairs : sweep) {
    large::PStep<double> step;
    step.pairs = pairs.data();
    step.count = static_cast<int>(pairs.size());
    steps.push_back(step);
  }
  return steps;
}

// A number for each block that depends on all pairs that had it, and their order.
class Histories {
 public:
  explicit Histories(int blocks) : of_block_(static_cast<size_t>(blocks)) {
    for (size_t b = 0; b < of_block_.size(); ++b) of_block_[b] = b + 1;
  }
  uint64_t of(int block) const { return of_block_[static_cast<size_t>(block)]; }
  void compute(large::BlockPair pair) {
    uint64_t &p = of_block_[static_cast<size_t>(pair.p)], &q = of_block_[static_cast<size_t>(pair.q)];
    const uint64_t x = (p * 0x9e3779b97f4a7c15u) ^ (q << 1);
    p = x ^ (x >> 29);
    q = x * 0xbf58476d1ce4e5b9u + 1;
  }
  bool operator==(const Histories&) const = default;

 private:
  std::vector<uint64_t> of_block_;
};

using Pairs = std::vector<std::pair<int, int>>;
Pairs sorted(const std::vector<large::BlockPair>& pairs) {
  Pairs result;
  for (const large::BlockPair pair : pairs) result.emplace_back(pair.p, pair.q);
  std::sort(result.begin(), result.end());
  return result;
}

// Products in their order, where a half's Gram matrices read blocks that nobody writes to until its postmultiplication.
void expect_right_order(const PivotSweep& sweep, const std::vector<StepHalves>& halves, int blocks) {
  Histories in_order(blocks), by_halves(blocks);
  for (const PivotStep& pairs : sweep) {
    for (const large::BlockPair pair : pairs) in_order.compute(pair);
  }
  std::map<size_t, std::pair<size_t, Pairs>> memory;  // of each number of a half: the p-step, histories that were read
  size_t products = 0, wanted = 0;
  for (const HalfProduct& product : products_in_order(halves, blocks)) {
    const Half& pairs = halves[product.step][product.half];
    Pairs histories;
    for (const large::BlockPair pair : pairs) {
      histories.emplace_back(static_cast<int>(by_halves.of(pair.p)), static_cast<int>(by_halves.of(pair.q)));
    }
    if (product.is_gram) {
      EXPECT_EQ(memory.count(product.half), 0u) << "memory in use";
      memory[product.half] = {product.step, histories};
    } else {
      const auto read = memory.extract(product.half);
      ASSERT_FALSE(read.empty());
      EXPECT_EQ(read.mapped(), std::make_pair(product.step, histories));
      for (const large::BlockPair pair : pairs) by_halves.compute(pair);
    }
    ++products;
  }
  for (const StepHalves& of_step : halves) {
    wanted +=
        2 * static_cast<size_t>(std::count_if(of_step.begin(), of_step.end(), [](auto& s) { return !s.empty(); }));
  }
  EXPECT_EQ(products, wanted);
  EXPECT_EQ(in_order, by_halves);
}

// How many p-steps have one half, and two.
using Counts = std::array<size_t, kHalves + 1>;
Counts expect_independent_halves(const PivotSweep& sweep, int blocks) {
  const std::vector<StepHalves> halves = halves_of(steps_of(sweep), blocks);
  EXPECT_EQ(halves.size(), sweep.size());
  Counts counts{};
  for (size_t t = 0; t < halves.size(); ++t) {
    Half all;
    for (const Half& half : halves[t]) all.insert(all.end(), half.begin(), half.end());
    EXPECT_EQ(sorted(all), sorted(sweep[t]));
    ++counts.at(halves[t].size());
  }
  expect_right_order(sweep, halves, blocks);
  return counts;
}

TEST(StepHalves, AreIndependentInAllStrategies) {
  for (const PivotStrategy strategy :
       {PivotStrategy::kRecursive, PivotStrategy::kRoundRobin, PivotStrategy::kModifiedModulus,
        PivotStrategy::kRowCyclic, PivotStrategy::kReverseColumnCyclic}) {
    for (const int blocks : {2, 3, 8, 17, 33, 64}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(strategy) << ", " << blocks << " blocks");
      (void)expect_independent_halves(large::pivot_sweep(strategy, blocks), blocks);
    }
  }
}

TEST(StepHalves, DoNotExistForOnePairOrOnePStep) {
  EXPECT_EQ(expect_independent_halves({{{0, 1}}, {{0, 1}}, {{0, 1}}}, 2)[1], 3u);
  EXPECT_EQ(expect_independent_halves({{{0, 1}, {2, 3}}}, 4)[1], 1u);
  EXPECT_EQ(expect_independent_halves({}, 4), Counts{});
}

TEST(StepHalves, AreNotMadeWhereTheyWouldDifferMuch) {
  const auto three_times = [](const PivotStep& pairs) { return PivotSweep{pairs, pairs, pairs}; };
  // Three pairs are two and one; five are three and two.
  EXPECT_EQ(expect_independent_halves(three_times({{0, 1}, {2, 3}, {4, 5}}), 6)[1], 3u);
  EXPECT_EQ(expect_independent_halves(three_times({{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}), 10)[2], 3u);
}

// A member's p-steps between two swaps, of the sweep that a ring computes.
TEST(StepHalves, HaveAllPStepsOfAMember) {
  for (const int members : {1, 2, 4}) {
    for (const int blocks : {64, 100, 128, 130}) {
      SCOPED_TRACE(testing::Message() << members << " members, " << blocks << " blocks");
      const ring::Unions unions(members, blocks, 1);
      ring::RingLayout layout(unions);
      std::vector<std::vector<ring::RingAction>> programs(static_cast<size_t>(members));
      size_t step = 0;
      for (const PivotSweep& part : large::super_block_sweep(blocks)) {
        for (const PivotStep& pairs : part) layout.append(step++, pairs, programs);
      }
      for (const auto& program : programs) {
        std::vector<PivotSweep> between_swaps(1);
        size_t all = 0;
        for (const ring::RingAction& action : program) {
          if (action.kind == ring::RingAction::Kind::kSwap) {
            between_swaps.emplace_back();
          } else {
            between_swaps.back().push_back(action.pairs);
            ++all;
          }
        }
        size_t by_halves = 0;
        for (const PivotSweep& part : between_swaps) by_halves += expect_independent_halves(part, blocks)[2];
        EXPECT_EQ(by_halves, all);
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::cuda
