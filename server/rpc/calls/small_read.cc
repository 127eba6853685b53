#include "server/rpc/calls/small_read.h"

#include <utility>

namespace svdserve::server {
namespace {

// The bound of these turns is a number of reads.
constexpr int64_t kOneRead = 1;
constexpr absl::Duration kComeBackAfter = absl::Milliseconds(500);

}  // namespace

Error SmallRead::begin(const Peer& peer, std::function<void()> start_read) {
  peer_ = peer;
  start_read_ = std::move(start_read);
  {
    MutexLock lock(&mu_);
    state_ = State::kWaits;
    since_ = clock_->now();
  }
  switch (turns_->begin(peer_, kOneRead, this)) {
    case ReadTurns::Begun::kReads:
      on_turn();
      return {};
    case ReadTurns::Begun::kWaits:
      return {};
    case ReadTurns::Begun::kRefused:
      break;
  }
  MutexLock lock(&mu_);
  state_ = State::kEnded;
  return no_turn_error();
}

void SmallRead::on_turn() {
  {
    MutexLock lock(&mu_);
    state_ = State::kReads;
    since_ = clock_->now();
  }
  start_read_();
}

void SmallRead::end() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  }
  turns_->end(peer_, kOneRead);
}

bool SmallRead::leave() {
  if (!turns_->leave(this)) return false;
  MutexLock lock(&mu_);
  state_ = State::kEnded;
  return true;
}

SmallRead::Lateness SmallRead::lateness(absl::Time now) const {
  absl::Duration took;
  {
    MutexLock lock(&mu_);
    if (state_ == State::kEnded) return Lateness::kNone;
    took = now - since_;
    if (state_ == State::kWaits) return took > kLongestWait ? Lateness::kWaits : Lateness::kNone;
  }
  if (took <= kPatienceIfAwaited) return Lateness::kNone;
  if (turns_->is_awaited(peer_)) return Lateness::kInTheWay;
  return took > kPatience ? Lateness::kSends : Lateness::kNone;
}

Error no_turn_error() {
  return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedRequests,
          "too many calls of this client wait for their messages to be read", "", kComeBackAfter};
}

Error late_message_error() {
  return {absl::StatusCode::kDeadlineExceeded,
          Reason::kClientStalled,
          "the client did not send the whole message of the call in time",
          "",
          {}};
}

}  // namespace svdserve::server
