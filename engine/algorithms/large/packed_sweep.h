// A sweep over the block pairs that have something to rotate, in few p-steps.
//
//   cosine(p, q), p <= q: the largest |x_i^H x_j| / (|x_i| |x_j|), i != j, of columns i of block p and j of block q
//   active: cosine(p, q) > tolerance. Where cosine(p, p) > tolerance, block p needs an active pair: with a neighbour.
// Pairs are taken in the order of a whole sweep. Each goes to the first p-step that has neither of its blocks. The
// result is a function of the cosines, so that bits do not depend on times.
// Why: a p-step costs the latency of one orthogonalization, however few pairs it has.
// Cost: at most 2 d - 1 p-steps, where no block has more than d active pairs; a pair takes blocks / 64 operations.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_PACKED_SWEEP_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_PACKED_SWEEP_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/algorithms/large/block_pivot_strategy.h"

namespace svdserve::large {

// The largest cosine of columns of each two blocks, p <= q.
class BlockCosines {
 public:
  explicit BlockCosines(int blocks)
      : blocks_(blocks), cosines_(static_cast<size_t>(blocks) * (static_cast<size_t>(blocks) + 1) / 2, 0.0) {}
  int blocks() const { return blocks_; }
  double& at(int p, int q) { return cosines_[index(p, q)]; }
  double at(int p, int q) const { return cosines_[index(p, q)]; }
  // NaN where any is.
  double largest() const {
    double result = 0;
    for (const double c : cosines_) result = c > result || std::isnan(c) ? c : result;
    return result;
  }

 private:
  static size_t index(int p, int q) {
    return static_cast<size_t>(q) * (static_cast<size_t>(q) + 1) / 2 + static_cast<size_t>(p);
  }

  int blocks_;
  std::vector<double> cosines_;
};

namespace internal {

// The p-steps that a block takes part in, as bits.
class BusySteps {
 public:
  BusySteps(int blocks, size_t steps) : words_((steps + 63) / 64), busy_(static_cast<size_t>(blocks) * words_, 0) {}
  // The first p-step that has neither block has both from now on.
  size_t take_first(BlockPair pair) {
    uint64_t *const p = of(pair.p), *const q = of(pair.q);
    size_t word = 0;
    while (~(p[word] | q[word]) == 0) ++word;
    const int bit = std::countr_one(p[word] | q[word]);
    p[word] |= uint64_t{1} << bit;
    q[word] |= uint64_t{1} << bit;
    return 64 * word + static_cast<size_t>(bit);
  }

 private:
  uint64_t* of(int block) { return busy_.data() + static_cast<size_t>(block) * words_; }

  size_t words_;
  std::vector<uint64_t> busy_;
};

}  // namespace internal

// `sweep`: a whole one, of cosines.blocks() >= 2 blocks. No p-step where nothing is active.
inline PivotSweep packed_sweep(const PivotSweep& sweep, const BlockCosines& cosines, double tolerance) {
  const int blocks = cosines.blocks();
  const auto turns = [&](int p, int q) { return cosines.at(p, q) > tolerance; };
  const auto is_active = [&](BlockPair pair) {
    const auto [p, q] = pair;
    return turns(p, q) || (q == p + 1 && (turns(p, p) || (q == blocks - 1 && turns(q, q))));
  };
  internal::BusySteps busy(blocks, 2 * sweep.size());
  PivotSweep packed;
  for (const PivotStep& step : sweep) {
    for (const BlockPair pair : step) {
      if (!is_active(pair)) continue;
      const size_t at = busy.take_first(pair);
      if (at >= packed.size()) packed.resize(at + 1);
      packed[at].push_back(pair);
    }
  }
  return packed;
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_PACKED_SWEEP_H_
