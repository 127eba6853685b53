#include "client/cpp/calls/route.h"

#include <algorithm>
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
  if (rotation != nullptr) rotation->note(replica_, status, now);
  if (status.ok()) return std::nullopt;
  if (rotation == nullptr) return schedule_.next(status, now, uniform());
  if (!is_retryable(status) || core_.options().retry.max_attempts <= 1) return std::nullopt;
  tried_.resize(replicas.size());
  if (replicas.size() > 1) tried_[replica_] = true;
  if (status.retry_delay) shortest_ = std::min(shortest_.value_or(*status.retry_delay), *status.retry_delay);
  const bool all_failed = ++failed_ >= replicas.width();
  if (!all_failed && rotation->may_hurry()) {
    if (schedule_.deadline() && now >= *schedule_.deadline()) return std::nullopt;
    ++hurried_;
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
  return schedule_.next(round, now, uniform());
}

}  // namespace svdserve::client::internal
