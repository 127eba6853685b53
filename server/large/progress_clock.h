// How far a large matrix is at any moment, between what its device tells.
#ifndef SVDSERVE_SERVER_LARGE_PROGRESS_CLOCK_H_
#define SVDSERVE_SERVER_LARGE_PROGRESS_CLOCK_H_

#include <algorithm>

#include "absl/time/time.h"
#include "engine/large_engine.h"

namespace svdserve::server {

// A device tells nothing within some parts of its work. There the fraction goes on by the clock, as the part was predicted
// to, and waits at its end. It never falls, whatever is heard. Thread safety: none.
class ProgressClock {
 public:
  ProgressClock() { heard_.off_diagonal = 1; }

  void hear(const LargeProgress& progress, absl::Time now) {
    heard_ = progress;
    when_ = now;
    told_ = std::clamp(progress.fraction, told_, 1.0);
  }

  // Times must not go back.
  LargeProgress at(absl::Time now) {
    LargeProgress progress = heard_;
    const double gone = absl::ToDoubleSeconds(now - when_), all = heard_.next_seconds;
    const double part = all > 0 ? std::clamp(gone / all, 0.0, 1.0) : 0;
    const double fraction = heard_.fraction + part * (heard_.next_fraction - heard_.fraction);
    progress.fraction = told_ = std::clamp(fraction, told_, 1.0);
    return progress;
  }

 private:
  LargeProgress heard_;
  absl::Time when_ = absl::InfiniteFuture();  // nothing was heard: no time has gone
  double told_ = 0;                           // the largest fraction so far
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_PROGRESS_CLOCK_H_
