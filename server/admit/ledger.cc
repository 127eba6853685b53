#include "server/admit/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kShortestDelay =
    absl::Milliseconds(10);                                  // below, a refused client costs more than a served one
constexpr absl::Duration kLongestDelay = absl::Seconds(10);  // beyond, the estimate is worth nothing
constexpr absl::Duration kMemory = absl::Seconds(2);         // of the rate at which requests leave

Error overloaded(Reason reason, std::string message, absl::Duration retry_after) {
  return {absl::StatusCode::kResourceExhausted, reason, std::move(message), "", retry_after};
}

}  // namespace

Error Ledger::Admit(int64_t bytes, Reservation* reservation) {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  if (draining_) {
    return {absl::StatusCode::kUnavailable, Reason::kDraining, "the server is shutting down", "", absl::Seconds(1)};
  }
  if (bytes > limits_.max_bytes) {
    return overloaded(Reason::kOverloadedBytes,
                      absl::StrCat("the request needs ", bytes, " bytes; this server never has more than ",
                                   limits_.max_bytes, " in memory"),
                      absl::ZeroDuration());
  }
  if (bytes > limits_.max_bytes - bytes_) {
    return overloaded(
        Reason::kOverloadedBytes,
        absl::StrCat("the request needs ", bytes, " bytes; ", bytes_, " of ", limits_.max_bytes, " are taken"),
        RetryDelay(now));
  }
  if (requests_ >= limits_.max_requests) {
    return overloaded(Reason::kOverloadedRequests,
                      absl::StrCat(requests_, " requests are in flight, the most there may be"), RetryDelay(now));
  }
  if (requests_ == 0) {  // a busy period begins
    since_ = now;
    left_bytes_ = left_requests_ = 0;
  }
  bytes_ += bytes;
  ++requests_;
  *reservation = Reservation(this, bytes);
  return {};
}

bool Ledger::Extend(int64_t bytes, Reservation* reservation) {
  MutexLock lock(&mu_);
  if (bytes > limits_.max_bytes - bytes_) return false;
  bytes_ += bytes;
  *reservation = Reservation(this, bytes, 0);
  return true;
}

void Ledger::GiveBack(int64_t bytes, int requests) {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  bytes_ -= bytes;
  requests_ -= requests;
  left_bytes_ += static_cast<double>(bytes);
  left_requests_ += requests;
  if (now - since_ < kMemory) return;
  // Forget half: the rate stays, and the older half of what it is made of counts no more than the younger.
  since_ += (now - since_) / 2;
  left_bytes_ /= 2;
  left_requests_ /= 2;
}

absl::Duration Ledger::RetryDelay(absl::Time now) const {
  const absl::Duration elapsed = now - since_;
  // Nothing has left yet: it will take at least as long again.
  double turns = 1;
  if (left_requests_ > 0) {
    turns = static_cast<double>(requests_) / left_requests_;
    if (left_bytes_ > 0) turns = std::max(turns, static_cast<double>(bytes_) / left_bytes_);
    turns /= 2;
  }
  return std::clamp(elapsed * turns, kShortestDelay, kLongestDelay);
}

void Ledger::StartDrain() {
  MutexLock lock(&mu_);
  draining_ = true;
}

Ledger::Usage Ledger::usage() const {
  MutexLock lock(&mu_);
  return {bytes_, requests_, draining_};
}

}  // namespace svdserve::server
