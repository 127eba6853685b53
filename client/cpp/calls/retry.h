// When to try again. No clock and no source of randomness of its own: the caller gives both.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_RETRY_H_
#define SVDSERVE_CLIENT_CPP_CALLS_RETRY_H_

#include <chrono>
#include <optional>

#include "client/cpp/types.h"

namespace svdserve::client::internal {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

// `timeout` from `now`; none where there is no timeout or it lies beyond what the clock counts.
Deadline deadline_after(const std::optional<std::chrono::nanoseconds>& timeout, Clock::time_point now);

// True where the same request may succeed later: the server was out of reach or draining, or rejected it for load with
// a delay. (A message over the limit is RESOURCE_EXHAUSTED, too, but without a delay.)
bool is_retryable(const Status& status);

// A uniform random number in [0, 1). Thread-safe.
double uniform();

// The attempts of one message. Not thread-safe.
class RetrySchedule {
 public:
  RetrySchedule(const RetryPolicy& policy, Deadline deadline) : policy_(policy), deadline_(deadline) {}

  // After an attempt failed with `status` at `now`: how long to wait before the next one; nothing: give up. `random` is
  // in [0, 1).
  std::optional<std::chrono::nanoseconds> next(const Status& status, Clock::time_point now, double random);

  int attempts() const { return attempts_; }
  Deadline deadline() const { return deadline_; }

 private:
  RetryPolicy policy_;
  Deadline deadline_;
  int attempts_ = 1;  // begun, the first one included
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_RETRY_H_
