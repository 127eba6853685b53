// Halves of p-steps that follow each other: of the pairs of each, such that no pair of one half has a block of the other.
//
// A half's p-step needs what the same half's p-step before it left, and nothing else. So the halves may be computed beside
// each other: while one waits for its rotations, the other multiplies (p_steps() in cuda_large_backend.h).
// Blocks that pairs of some p-steps join, directly or by other blocks, are a group. Halves are made of whole groups. They
// last for as many p-steps as the larger half has at most kLargestHalf of all blocks. The recursive strategy's last long:
// in a whole super-step each super-block has pairs with one other alone (algorithms/large/super_block_sweep.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::cuda {

inline constexpr double kLargestHalf = 0.625;

// Blocks that pairs have joined.
class BlockGroups {
 public:
  explicit BlockGroups(int blocks) : parent_(static_cast<size_t>(blocks), -1) {}

  void join(large::BlockPair pair) {
    for (const int block : {pair.p, pair.q}) {
      if (parent(block) < 0) parent(block) = block;
    }
    parent(root(pair.q)) = root(pair.p);
  }
  // The half of each block, whole groups in turn to the smaller one. Empty: one would be too large.
  std::vector<uint8_t> halves() {
    std::vector<int> size(parent_.size(), 0);
    int all = 0;
    for (int block = 0; block < count(); ++block) {
      if (parent(block) < 0) continue;
      ++size[static_cast<size_t>(root(block))];
      ++all;
    }
    std::vector<uint8_t> half(parent_.size(), 0);
    int of_half[2] = {0, 0};
    for (int block = 0; block < count(); ++block) {
      if (parent(block) != block) continue;
      const uint8_t smaller = of_half[1] < of_half[0] ? 1 : 0;
      half[static_cast<size_t>(block)] = smaller;
      of_half[smaller] += size[static_cast<size_t>(block)];
    }
    if (std::max(of_half[0], of_half[1]) > kLargestHalf * all) return {};
    for (int block = 0; block < count(); ++block) {
      if (parent(block) >= 0) half[static_cast<size_t>(block)] = half[static_cast<size_t>(root(block))];
    }
    return half;
  }

 private:
  int count() const { return static_cast<int>(parent_.size()); }
  int& parent(int block) { return parent_[static_cast<size_t>(block)]; }
  int root(int block) {
    while (parent(block) != block) block = parent(block) = parent(parent(block));
    return block;
  }

  std::vector<int> parent_;  // -1: no pair has had the block
};

struct StepHalves {
  size_t steps = 0;           // for which they last
  std::vector<uint8_t> half;  // 0 or 1, of each block
};

// Those of the first of `count` p-steps over `blocks` blocks. No steps: the first one's pairs do not fall into halves.
template <class E>
StepHalves halves_of(const large::PStep<E>* steps, size_t count, int blocks) {
  BlockGroups groups(blocks);
  StepHalves halves;
  while (halves.steps < count) {
    const large::PStep<E>& step = steps[halves.steps];
    for (int i = 0; i < step.count; ++i) groups.join(step.pairs[i]);
    std::vector<uint8_t> half = groups.halves();
    if (half.empty()) break;
    halves.half = std::move(half);
    ++halves.steps;
  }
  return halves;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_
