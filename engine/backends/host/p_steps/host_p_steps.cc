#include "engine/backends/host/p_steps/host_p_steps.h"

#include <algorithm>
#include <complex>
#include <type_traits>

namespace svdserve::host {

template <class E>
void HostPSteps<E>::run(const large::PStep<E>& step, PairTracking& tracking) {
  // One task a thread, with its scratch, and pair i to thread i mod threads.
  const int threads = std::min<int>(threads_.threads(), step.count);
  reports_.assign(step.count, {});
  threads_.for_each(threads, [&](int64_t task) {
    for (int i = static_cast<int>(task); i < step.count; i += threads) {
      threads_.check();
      if (!tracking.is_clean(step.pairs[i])) reports_[i] = triangle_steps_[task].run(step, step.pairs[i]);
    }
  });
  for (int i = 0; i < step.count; ++i) {
    tracking.note(step.pairs[i], reports_[i].counts.rotations > 0);
    count_pair(step, step.pairs[i], reports_[i]);
  }
}

template <class E>
void HostPSteps<E>::count_pair(const large::PStep<E>& step, large::BlockPair pair, const PairReport& report) {
  counters_.rotations += report.counts.rotations;
  counters_.proper_rotations += report.counts.proper;
  counters_.active_pairs += report.counts.rotations > 0;
  ++counters_.pairs;
  counters_.largest_cosine = std::max(counters_.largest_cosine, report.largest_cosine);
  counters_.zero_column |= report.zero_column;
  const double k = double(step.columns_of(pair.p) + step.columns_of(pair.q)), m = double(step.x.rows);
  const auto add = [](LargePhaseTime& part, double seconds, double operations) {
    if (seconds == 0) return;
    part.seconds += seconds;
    part.flops += (std::is_same_v<E, double> ? 1 : 4) * operations;
  };
  add(gram_, report.gram_seconds, k * k * m);
  add(inner_, report.inner_seconds, double(report.counts.rotations) * 14 * k);
  add(postmultiply_, report.postmultiply_seconds, 2 * k * k * (m + double(step.v.rows)));
}

template <class E>
void HostPSteps<E>::tell(std::vector<LargePhaseTime>& phases) const {
  const auto add = [&](const char* name, const LargePhaseTime& part) {
    if (part.seconds > 0) phases.push_back({name, part.seconds / threads_.threads(), part.flops});
  };
  add("gram", gram_);
  add("inner", inner_);
  add("postmultiply", postmultiply_);
}

template class HostPSteps<double>;
template class HostPSteps<std::complex<double>>;

}  // namespace svdserve::host
