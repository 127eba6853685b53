// Halves of p-steps that are computed beside each other: they share no block, and last long where the order of pairs
// allows it.
#include <algorithm>
#include <cstdint>
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

struct Halved {
  size_t times = 0, steps = 0;
};

// Halves a sweep as the back end does, and computes one half of as many p-steps as they last before the other.
Halved expect_independent_halves(const PivotSweep& sweep, int blocks) {
  const std::vector<large::PStep<double>> steps = steps_of(sweep);
  Histories in_order(blocks), by_halves(blocks);
  for (const PivotStep& pairs : sweep) {
    for (const large::BlockPair pair : pairs) in_order.compute(pair);
  }
  Halved result;
  for (size_t at = 0; at < steps.size();) {
    const StepHalves halves = halves_of(steps.data() + at, steps.size() - at, blocks);
    const size_t end = at + std::max<size_t>(1, halves.steps);
    for (const int half : {1, 0}) {
      for (size_t t = at; t < end; ++t) {
        for (const large::BlockPair pair : sweep[t]) {
          if (halves.steps == 0) {
            if (half == 0) by_halves.compute(pair);
            continue;
          }
          EXPECT_EQ(halves.half[static_cast<size_t>(pair.p)], halves.half[static_cast<size_t>(pair.q)]);
          if (halves.half[static_cast<size_t>(pair.p)] == half) by_halves.compute(pair);
        }
      }
    }
    result.times += halves.steps > 0;
    result.steps += halves.steps;
    at = end;
  }
  EXPECT_EQ(in_order, by_halves);
  return result;
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

TEST(StepHalves, DoNotExistForOnePair) {
  EXPECT_EQ(expect_independent_halves({{{0, 1}}}, 2).times, 0u);
  EXPECT_EQ(halves_of<double>(nullptr, 0, 4).steps, 0u);
}

TEST(StepHalves, EndWhereTheyWouldDifferMuch) {
  // Three pairs are two and one; five are three and two.
  EXPECT_EQ(expect_independent_halves({{{0, 1}, {2, 3}, {4, 5}}}, 6).times, 0u);
  EXPECT_EQ(expect_independent_halves({{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}}, 10).times, 1u);
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
        size_t steps = 0, times = 0;
        for (const PivotSweep& part : between_swaps) {
          const Halved own = expect_independent_halves(part, blocks);
          steps += own.steps;
          times += own.times;
        }
        EXPECT_EQ(steps, all);
        EXPECT_GE(static_cast<double>(all) / static_cast<double>(times), blocks / 16.0);
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::cuda
