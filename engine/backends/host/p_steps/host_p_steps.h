// P-steps on the host: the block pairs of each, spread over threads by a fixed rule, with what they count.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_HOST_P_STEPS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_HOST_P_STEPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  explicit PairTracking(int64_t blocks) : versions_(blocks, 0), clean_(blocks * (blocks - 1) / 2, -1) {}
  bool is_clean(large::BlockPair pair) const { return clean_[index(pair)] == versions_[pair.p] + versions_[pair.q]; }
  void note(large::BlockPair pair, bool changed) {
    if (changed) {
      ++versions_[pair.p];
      ++versions_[pair.q];
    } else {
      clean_[index(pair)] = versions_[pair.p] + versions_[pair.q];
    }
  }

  // All that it knows, and the tracking that knows this.
  std::vector<int32_t> numbers() const {
    std::vector<int32_t> numbers = {static_cast<int32_t>(versions_.size())};
    numbers.insert(numbers.end(), versions_.begin(), versions_.end());
    numbers.insert(numbers.end(), clean_.begin(), clean_.end());
    return numbers;
  }
  static PairTracking of(const std::vector<int32_t>& numbers) {
    PairTracking tracking(numbers.front());
    std::copy_n(numbers.begin() + 1, tracking.versions_.size(), tracking.versions_.begin());
    std::copy(numbers.end() - static_cast<ptrdiff_t>(tracking.clean_.size()), numbers.end(), tracking.clean_.begin());
    return tracking;
  }

 private:
  static int64_t index(large::BlockPair pair) { return int64_t{pair.q} * (pair.q - 1) / 2 + pair.p; }

  std::vector<int32_t> versions_;
  std::vector<int32_t> clean_;  // of pair (p, q), p < q; -1: never
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
