// Tells how far a large decomposition is, from the predicted seconds of its parts (predicted_work.h).
//
//   fraction at the end of a part = fraction before + (1 - fraction before) * its seconds / the seconds of all that is left
// So a driver may predict anew at every part: what was told stays, and the rest is shared out again.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_PROGRESS_TELLER_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_PROGRESS_TELLER_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/predicted_work.h"

namespace svdserve::large {

// Every call obeys a cancel and tells. The fraction never falls. Not thread-safe.
class ProgressTeller {
 public:
  using Seconds = std::function<double()>;  // of a clock that never goes back

  explicit ProgressTeller(const LargeWatch& watch, Seconds now = steady_seconds)
      : watch_(watch), now_(std::move(now)), start_(now_()) {}

  // A part of predicted seconds begins, and the one before has ended. left: seconds of it and of all that follows.
  void begin(LargeStage stage, double seconds, double left) {
    predicted_ += seconds_;
    from_ = end_;
    seconds_ = std::max(seconds, 0.0);
    done_ = 0;
    if (whole_ == 0) whole_ = left;
    end_ = left > seconds_ ? from_ + (1 - from_) * (seconds_ / left) : 1;
    state.stage = stage;
    at(0);
  }
  void begin(const WorkParts& parts, size_t part) {
    begin(parts[part].stage, parts[part].seconds, seconds_from(parts, part));
  }
  // `done` of the part is done, 0 .. 1. Less than before changes nothing.
  void at(double done) {
    watch_.check();
    done_ = std::max(done_, std::min(done, 1.0));
    state.fraction = in_all(done_);
    state.next_fraction = end_;
    state.next_seconds = (1 - done_) * seconds_ * pace();
    watch_.tell(state);
  }
  // Before the first part: what another process had told is told as done.
  void go_on_from(double fraction) { end_ = fraction; }
  // For a back end's long operation, which is the part under way between these two.
  PartDone between(double from, double to) {
    return [this, from, to](double done) { at(from + (to - from) * done); };
  }
  // All is done.
  void end() {
    from_ = end_ = 1;
    state.stage = LargeStage::kFinish;
    at(1);
  }

  // The control of a decomposition that is the part under way: what it tells is told as this part's.
  LargeControl of_part(const LargeControl& control) {
    LargeControl own;
    own.cancel = control.cancel;
    if (control.progress) own.progress = [this](const LargeProgress& part) { tell_part(part); };
    return own;
  }

  LargeProgress state{.off_diagonal = 1};

 private:
  static double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  // The time that work has taken, relative to its prediction. It is not known before some of it is done.
  double pace() const {
    const double unknown = 0.05 * whole_, predicted = predicted_ + done_ * seconds_;
    return unknown > 0 ? (now_() - start_ + unknown) / (predicted + unknown) : 1;
  }

  void tell_part(const LargeProgress& part) {
    done_ = std::max(done_, part.fraction);
    state = part;
    state.fraction = in_all(done_);
    state.next_fraction = in_all(std::max(done_, part.next_fraction));
    watch_.tell(state);
  }

  // The fraction at which so much of the part is done.
  double in_all(double done) const { return from_ + (end_ - from_) * done; }

  const LargeWatch& watch_;
  const Seconds now_;
  const double start_;
  double whole_ = 0;      // predicted seconds of all parts, as they were at first
  double predicted_ = 0;  // of the parts that have ended
  double seconds_ = 0;    // of the part under way
  double from_ = 0;       // the fraction where it began
  double end_ = 0;        // and where it ends
  double done_ = 0;       // of it
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_PROGRESS_TELLER_H_
