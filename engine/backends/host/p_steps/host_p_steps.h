// P-steps on the host: the block pairs of each, spread over threads by a fixed rule, with what they count.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_HOST_P_STEPS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_HOST_P_STEPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/p_steps/triangle_step.h"

namespace svdserve::host {

// The pairs that need not be looked at. A block's version grows when it changes. A pair that was found orthogonal keeps
// the sum of its blocks' versions, which is the same for as long as neither changes.
// Thread safety: calls at once are about pairs that have no block in common.
class PairTracking {
 public:
  PairTracking() = default;
  explicit PairTracking(int64_t blocks) : PairTracking(blocks, std::make_shared<int32_t[]>(count(blocks))) {}
  // In memory of count(blocks) numbers, which other processes may have, too. Zeros: nothing is known.
  PairTracking(int64_t blocks, std::shared_ptr<int32_t[]> numbers) : blocks_(blocks), numbers_(std::move(numbers)) {}
  static size_t count(int64_t blocks) { return static_cast<size_t>(blocks + blocks * (blocks - 1) / 2); }

  bool is_clean(large::BlockPair pair) const { return clean(pair) == of_now(pair); }
  void note(large::BlockPair pair, bool changed) {
    if (changed) {
      ++numbers_[pair.p];
      ++numbers_[pair.q];
    } else {
      clean(pair) = of_now(pair);
    }
  }

  // All that it knows, and the tracking that knows this.
  std::vector<int32_t> numbers() const {
    std::vector<int32_t> all = {static_cast<int32_t>(blocks_)};
    all.insert(all.end(), numbers_.get(), numbers_.get() + count(blocks_));
    return all;
  }
  static PairTracking of(const std::vector<int32_t>& numbers) {
    PairTracking tracking(numbers.front());
    std::copy(numbers.begin() + 1, numbers.end(), tracking.numbers_.get());
    return tracking;
  }

 private:
  // Pair (p, q), p < q; 0: it was never found orthogonal.
  int32_t& clean(large::BlockPair pair) const {
    return numbers_[blocks_ + int64_t{pair.q} * (pair.q - 1) / 2 + pair.p];
  }
  int32_t of_now(large::BlockPair pair) const { return numbers_[pair.p] + numbers_[pair.q] + 1; }

  int64_t blocks_ = 0;
  std::shared_ptr<int32_t[]> numbers_;  // the blocks' versions, and clean() of the pairs
};

// E: double or std::complex<double>.
template <class E>
class HostPSteps {
 public:
  explicit HostPSteps(const LargeThreads& threads) : threads_(threads), triangle_steps_(threads.threads()) {}
  void run(const large::PStep<E>& step, PairTracking& tracking);
  void reset() { counters_ = {}; }
  const large::PStepCounters& counters() const { return counters_; }
  // Adds the parts that took time, in seconds of all threads at once.
  void tell(std::vector<LargePhaseTime>& phases) const;
  void reset_times() { gram_ = inner_ = postmultiply_ = {}; }

 private:
  void count_pair(const large::PStep<E>& step, large::BlockPair pair, const PairReport& report);

  const LargeThreads threads_;
  std::vector<TriangleStep<E>> triangle_steps_;  // scratch, one a task that runs at once
  std::vector<PairReport> reports_;              // of one p-step
  large::PStepCounters counters_;
  LargePhaseTime gram_, inner_, postmultiply_;  // seconds of all threads together
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_HOST_P_STEPS_H_
