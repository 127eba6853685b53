// Halves of p-steps that follow each other, and the order of their products: while one has its rotations computed, the
// other multiplies (p_steps() in cuda_large_backend.h).
//
// A half is some of a p-step's pairs. Its Gram matrices need what the p-step before left of its blocks, and nothing else.
// Blocks that pairs of some p-steps join, directly or by other blocks, are a group. Two halves are made of whole groups.
// They last for as many p-steps as neither has much more than the other. The recursive strategy's last long: in a whole
// super-step each super-block has pairs with one other alone (algorithms/large/super_block_sweep.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::cuda {

inline constexpr int kHalves = 2;
// The larger one has at most this part of all blocks.
inline constexpr double kLargestHalf = 0.625;
// Halves that last for fewer p-steps are not made.
inline constexpr size_t kLeastStepsOfHalves = 3;

using Half = std::vector<large::BlockPair>;
using StepHalves = std::vector<Half>;  // of one p-step; a half may be empty

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
    std::vector<int> size(parent_.size(), 0), of_half(kHalves, 0);
    int all = 0;
    for (int block = 0; block < blocks(); ++block) {
      if (parent(block) < 0) continue;
      ++size[static_cast<size_t>(root(block))];
      ++all;
    }
    std::vector<uint8_t> half(parent_.size(), 0);
    for (int block = 0; block < blocks(); ++block) {
      if (parent(block) != block) continue;
      const auto smallest = std::min_element(of_half.begin(), of_half.end());
      half[static_cast<size_t>(block)] = static_cast<uint8_t>(smallest - of_half.begin());
      *smallest += size[static_cast<size_t>(block)];
    }
    if (*std::max_element(of_half.begin(), of_half.end()) > kLargestHalf * all) return {};
    for (int block = 0; block < blocks(); ++block) {
      if (parent(block) >= 0) half[static_cast<size_t>(block)] = half[static_cast<size_t>(root(block))];
    }
    return half;
  }

 private:
  int blocks() const { return static_cast<int>(parent_.size()); }
  int& parent(int block) { return parent_[static_cast<size_t>(block)]; }
  int root(int block) {
    while (parent(block) != block) block = parent(block) = parent(parent(block));
    return block;
  }

  std::vector<int> parent_;  // -1: no pair has had the block
};

struct LastingHalves {
  size_t steps = 0;           // for which they last
  std::vector<uint8_t> half;  // of each block
};

// Halves of the first of so many p-steps. No steps: the first one's pairs do not fall into two.
template <class E>
LastingHalves lasting_halves(const large::PStep<E>* steps, size_t most_steps, int blocks) {
  BlockGroups groups(blocks);
  LastingHalves lasting;
  while (lasting.steps < most_steps) {
    const large::PStep<E>& step = steps[lasting.steps];
    for (int i = 0; i < step.count; ++i) groups.join(step.pairs[i]);
    std::vector<uint8_t> half = groups.halves();
    if (half.empty()) break;
    lasting.half = std::move(half);
    ++lasting.steps;
  }
  return lasting;
}

// The halves of each p-step: two where they last, else one.
template <class E>
std::vector<StepHalves> halves_of(const std::vector<large::PStep<E>>& steps, int blocks) {
  std::vector<StepHalves> result;
  while (result.size() < steps.size()) {
    const large::PStep<E>* const first = steps.data() + result.size();
    const LastingHalves lasting = lasting_halves(first, steps.size() - result.size(), blocks);
    const bool do_last = lasting.steps >= kLeastStepsOfHalves;
    for (size_t t = 0; t < (do_last ? lasting.steps : 1); ++t) {
      StepHalves& halves = result.emplace_back(do_last ? kHalves : 1);
      for (int i = 0; i < first[t].count; ++i) {
        const large::BlockPair pair = first[t].pairs[i];
        halves[do_last ? lasting.half[static_cast<size_t>(pair.p)] : 0].push_back(pair);
      }
    }
  }
  return result;
}

// A half's Gram matrices, or its postmultiplication.
struct HalfProduct {
  size_t step = 0, half = 0;
  bool is_gram = false;
};

// All products of halves, each behind those that it needs. A half's rotations come between its two. Gram matrices come as
// soon as they can, but behind the postmultiplication of the half of the same number before, whose memory they take.
inline std::vector<HalfProduct> products_in_order(const std::vector<StepHalves>& steps, int blocks) {
  std::vector<HalfProduct> order;
  std::vector<char> is_busy(static_cast<size_t>(blocks), 0);  // its rotations have not been applied
  const auto mark = [&](const Half& half, bool busy) {
    for (const large::BlockPair pair : half) {
      is_busy[static_cast<size_t>(pair.p)] = is_busy[static_cast<size_t>(pair.q)] = busy;
    }
  };
  const auto is_free = [&](const Half& half) {
    return std::none_of(half.begin(), half.end(), [&](large::BlockPair pair) {
      return is_busy[static_cast<size_t>(pair.p)] || is_busy[static_cast<size_t>(pair.q)];
    });
  };
  std::vector<char> has_gram;  // of the next p-step
  // Begins that p-step's halves that are free, once so many of the one before have been applied.
  const auto begin_free = [&](size_t step, size_t applied) {
    if (step == steps.size()) return;
    const StepHalves& halves = steps[step];
    has_gram.resize(halves.size(), 0);
    for (size_t i = 0; i < halves.size(); ++i) {
      const bool has_memory = step == 0 || i < applied || i >= steps[step - 1].size();
      if (has_gram[i] || !has_memory || !is_free(halves[i])) continue;
      has_gram[i] = 1;
      if (!halves[i].empty()) order.push_back({step, i, true});
    }
  };
  begin_free(0, 0);
  for (size_t t = 0; t < steps.size(); ++t) {
    has_gram.clear();
    for (const Half& half : steps[t]) mark(half, true);
    for (size_t i = 0; i < steps[t].size(); ++i) {
      if (!steps[t][i].empty()) order.push_back({t, i, false});
      mark(steps[t][i], false);
      begin_free(t + 1, i + 1);
    }
  }
  return order;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_STEP_HALVES_H_
