// The recursive strategy, cut so that several members of a ring may compute a sweep together.
//
//   B blocks lie in 16 super-blocks i; super-block i has the blocks i B / 16 .. (i + 1) B / 16 - 1, rounded down.
//   Super-step s = 15, .., 1 pairs block k of super-block i with block k' of super-block i xor s, for all k and k':
//   by k' = k xor r where the largest super-block has a power of two of blocks, else by k' = (k + r) mod that size.
//   The last part has the pairs within super-blocks, recursively.
// Every pair comes once. A super-block that has one block less is bordered by an empty block, whose pairs are left out.
// D = 1, 2, 4 or 8 members have two unions of 8 / D neighbours each. Super-steps s with equal s D / 8, rounded down,
// have pairs between two unions, or within one. So members exchange unions 2 D - 1 times a sweep (ring_layout.h).
// The cut depends on B alone, never on D; so do the bits. For B = 16, 32, 64, .. it is the recursive strategy of
// block_pivot_strategy.h, p-step by p-step: block (i, k) meets (i xor s, k xor r) in p-step s B / 16 + r, the last first.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_SUPER_BLOCK_SWEEP_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_SUPER_BLOCK_SWEEP_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_pivot_strategy.h"

namespace svdserve::large {

inline constexpr int kSuperBlocks = 16;

// Which blocks a super-block has.
struct SuperBlocks {
  int blocks = 0;

  // The first block of super-block i, 0 .. 16; that of 16 is the number of blocks.
  int first(int i) const { return static_cast<int>(int64_t{i} * blocks / kSuperBlocks); }
  int count(int i) const { return first(i + 1) - first(i); }
  int largest() const { return (blocks + kSuperBlocks - 1) / kSuperBlocks; }
};

// Whether a strategy's sweep can be cut.
inline bool can_be_cut(PivotStrategy strategy) {
  return strategy == PivotStrategy::kAuto || strategy == PivotStrategy::kRecursive;
}

namespace internal {

// The pairs of super-step s, in p-steps that have no block twice.
inline PivotSweep super_step(const SuperBlocks& cut, int s) {
  const int m = cut.largest();
  const bool exclusive = std::has_single_bit(static_cast<unsigned>(m));
  PivotSweep part;
  for (int r = m - 1; r >= 0; --r) {
    PivotStep step;
    for (int i = 0; i < kSuperBlocks; ++i) {
      const int j = i ^ s;
      if (j < i) continue;
      for (int k = 0; k < cut.count(i); ++k) {
        const int partner = exclusive ? k ^ r : (k + r) % m;
        if (partner < cut.count(j)) step.push_back({cut.first(i) + k, cut.first(j) + partner});
      }
    }
    if (!step.empty()) part.push_back(std::move(step));
  }
  return part;
}

}  // namespace internal

// The parts of a sweep over `blocks` >= 2 blocks, in their order: the super-steps, then the pairs within super-blocks.
inline std::vector<PivotSweep> super_block_sweep(int blocks) {
  const SuperBlocks cut{blocks};
  std::vector<PivotSweep> parts;
  for (int s = kSuperBlocks - 1; s > 0; --s) parts.push_back(internal::super_step(cut, s));
  parts.emplace_back();
  for (int i = 0; i < kSuperBlocks; ++i) internal::recursive_steps(cut.first(i), cut.count(i), 0, parts.back());
  std::erase_if(parts, [](const PivotSweep& part) { return part.empty(); });
  return parts;
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_SUPER_BLOCK_SWEEP_H_
