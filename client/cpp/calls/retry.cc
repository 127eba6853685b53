#include "client/cpp/calls/retry.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace svdserve::client::internal {

using std::chrono::nanoseconds;

Deadline deadline_after(const std::optional<nanoseconds>& timeout, Clock::time_point now) {
  if (!timeout || *timeout > Clock::time_point::max() - now) return std::nullopt;
  return now + *timeout;
}

bool is_retryable(const Status& status) {
  return status.code == Code::kUnavailable ||
         (status.code == Code::kResourceExhausted && status.retry_delay.has_value());
}

double uniform() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

std::optional<nanoseconds> RetrySchedule::next(const Status& status, Clock::time_point now, double random) {
  if (attempts_ >= policy_.max_attempts || !is_retryable(status)) return std::nullopt;
  const double grown =
      static_cast<double>(policy_.initial_backoff.count()) * std::pow(policy_.multiplier, attempts_ - 1);
  const double backoff = std::min(grown, static_cast<double>(policy_.max_backoff.count()));
  const auto jittered = [&](double part) { return nanoseconds(static_cast<int64_t>(part)); };
  nanoseconds delay = jittered(backoff * (0.5 + 0.5 * random));
  if (status.retry_delay) {
    // The server would refuse again before its delay is over. Many clients that were told the same delay must not come
    // back together, so what is added grows with the delay.
    const nanoseconds named = std::max(*status.retry_delay, nanoseconds(0));
    if (named > policy_.max_server_delay) return std::nullopt;
    delay = named + jittered(std::max(backoff, static_cast<double>(named.count()) / 4) * random);
  }
  if (deadline_ && now + delay >= *deadline_) return std::nullopt;
  ++attempts_;
  return delay;
}

}  // namespace svdserve::client::internal
