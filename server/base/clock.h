// Time as the server sees it: injected, so that every rule about time is tested without sleeping.
#ifndef SVDSERVE_SERVER_BASE_CLOCK_H_
#define SVDSERVE_SERVER_BASE_CLOCK_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace svdserve::server {

// One pending wake-up. Thread-safe. Its destructor waits for a running callback, and none runs after it.
class Alarm {
 public:
  virtual ~Alarm() = default;
  // Calls the alarm's callback once, soon after `when`, replacing what was set before; InfiniteFuture: never. A
  // callback that already began is not stopped. May be called from within the callback and under any lock of the
  // caller's that the callback takes: set() never calls it.
  virtual void set(absl::Time when) = 0;
};

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back, whatever is done to the wall clock; near to it, so that it may be logged.
  virtual absl::Time now() = 0;
  // `ring` runs on a thread of the clock's, one call at a time, holding no lock of the clock's.
  virtual std::unique_ptr<Alarm> make_alarm(absl::AnyInvocable<void()> ring) = 0;
};

// The machine's steady clock; every alarm has a thread of its own.
std::unique_ptr<Clock> make_steady_clock();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_CLOCK_H_
