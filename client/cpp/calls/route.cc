#include "client/cpp/calls/route.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace svdserve::client::internal {

grpc::GenericStub& Route::next() {
  Replicas& replicas = core_.replicas();
  if (Rotation* const rotation = replicas.rotation()) {
    core_.check_health();
    replica_ = rotation->next(tried_, Clock::now());
  }
  return replicas.stub(replica_);
}

std::optional<std::chrono::nanoseconds> Route::after(const Status& status) {
  const auto now = Clock::now();
  Replicas& replicas = core_.replicas();
  Rotation* const rotation = replicas.rotation();
  if (rotation != nullptr) log_change(rotation->note(replica_, status, now), status);
  if (status.ok()) return std::nullopt;
  if (rotation == nullptr) return wait_for(status, status, now);
  if (!is_retryable(status) || core_.options().retry.max_attempts <= 1) return std::nullopt;
  tried_.resize(replicas.size());
  if (replicas.size() > 1) tried_[replica_] = true;
  if (status.retry_delay) shortest_ = std::min(shortest_.value_or(*status.retry_delay), *status.retry_delay);
  const bool all_failed = ++failed_ >= replicas.width();
  if (!all_failed && rotation->may_hurry()) {
    if (schedule_.deadline() && now >= *schedule_.deadline()) return std::nullopt;
    ++hurried_;
    core_.log(LogLevel::kInfo, [&] {
      return address() + ": attempt " + std::to_string(attempts()) +
             " goes to another server at once, after: " + status.to_string();
    });
    return std::chrono::nanoseconds(0);
  }
  Status round = status;
  round.retry_delay = all_failed ? shortest_ : std::nullopt;
  if (!all_failed) round.code = Code::kUnavailable;  // another replica is there: a short wait is enough
  if (all_failed) {
    tried_.clear();
    failed_ = 0;
    shortest_.reset();
  }
  return wait_for(round, status, now);
}

const std::string& Route::address() const { return core_.replicas().address(replica_); }

void Route::log_change(Rotation::Change change, const Status& status) const {
  if (change == Rotation::Change::kLeft && core_.replicas().size() > 1) {
    core_.log(LogLevel::kWarning,
              [&] { return address() + " is left to itself, the other servers get its calls: " + status.to_string(); });
  } else if (change == Rotation::Change::kBack) {
    core_.log(LogLevel::kInfo, [&] { return address() + " takes calls again"; });
  }
}

std::optional<std::chrono::nanoseconds> Route::wait_for(const Status& round, const Status& status,
                                                        Clock::time_point now) {
  const auto delay = schedule_.next(round, now, uniform());
  if (!delay) return delay;
  const double wait = std::chrono::duration<double>(*delay).count();
  constexpr double kLong = 1;  // seconds
  core_.log(wait >= kLong ? LogLevel::kWarning : LogLevel::kInfo, [&] {
    char text[64];
    std::snprintf(text, sizeof(text), ": attempt %d of %d follows in %.2f s, after: ", schedule_.attempts(),
                  core_.options().retry.max_attempts, wait);
    return address() + text + status.to_string();
  });
  return delay;
}

}  // namespace svdserve::client::internal
