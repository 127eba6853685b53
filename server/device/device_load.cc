#include "server/device/device_load.h"

#include <algorithm>
#include <cstddef>

namespace svdserve::server {

std::optional<int> DeviceLoad::first_free(size_t from, size_t to) const {
  for (size_t i = from; i < to; ++i) {
    if (lanes_[i].state == State::kFree) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<int> DeviceLoad::free_lane(absl::Duration work, absl::Time now) const {
  int held_long = 0, held_short = 0;
  for (size_t i = 0; i < lanes(); ++i) {
    if (lanes_[i].state != State::kFree) ++(lanes_[i].long_from <= now ? held_long : held_short);
  }
  const int without_relief = static_cast<int>(lanes()) - relief_lanes_;
  bool may = held_short < without_relief;
  if (work > kLongWork) {
    const bool keeps_one = relief_lanes_ == 0 && without_relief > 1 && now - short_came_ < kShortWorkExpected;
    may = held_long + held_short < without_relief && held_long < without_relief - (keeps_one ? 1 : 0);
  }
  return may ? first_free(0, lanes()) : std::nullopt;
}

std::optional<int> DeviceLoad::free_side_lane() const { return first_free(lanes(), lanes_.size()); }

absl::Time DeviceLoad::relief(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  if (relief_lanes_ == 0 || !first_free(0, lanes()).has_value()) return next;
  for (size_t i = 0; i < lanes(); ++i) {
    if (lanes_[i].state != State::kFree && lanes_[i].long_from > now) next = std::min(next, lanes_[i].long_from);
  }
  return next;
}

void DeviceLoad::hold(int lane, const CostEstimate& work, absl::Time now) {
  const bool is_long = work.typical > kLongWork;
  lanes_[static_cast<size_t>(lane)] = {State::kHeld, work, {}, is_long ? now : absl::InfiniteFuture()};
  if (!is_long && static_cast<size_t>(lane) < lanes()) short_came_ = now;
  ++held_;
}

void DeviceLoad::begin(int lane, absl::Time now) {
  advance(now);
  if (lanes_[static_cast<size_t>(lane)].state == State::kEnded) --ended_;
  ++computing_;
  lanes_[static_cast<size_t>(lane)].state = State::kComputing;
  lanes_[static_cast<size_t>(lane)].began = share_;
  absl::Time& long_from = lanes_[static_cast<size_t>(lane)].long_from;
  long_from = std::min(long_from, now + kLongWork);
}

absl::Duration DeviceLoad::end(int lane, absl::Time now) {
  advance(now);
  --computing_;
  ++ended_;
  lanes_[static_cast<size_t>(lane)].state = State::kEnded;
  return share_ - lanes_[static_cast<size_t>(lane)].began;
}

void DeviceLoad::release(int lane) {
  if (lanes_[static_cast<size_t>(lane)].state == State::kEnded) --ended_;
  lanes_[static_cast<size_t>(lane)].state = State::kFree;
  --held_;
}

absl::Duration DeviceLoad::backlog(absl::Time now, absl::Duration work) const {
  const absl::Duration shared = share(now);
  absl::Duration backlog;
  for (const Lane& lane : lanes_) {
    absl::Duration left;
    if (lane.state == State::kHeld) left = lane.work.typical;
    if (lane.state == State::kComputing) left = absl::AbsDuration(lane.work.typical - (shared - lane.began));
    backlog += lane.long_from <= now && passes_long(work) ? std::min(left, work) : left;
  }
  return backlog;
}

absl::Duration DeviceLoad::optimistic_backlog(absl::Time now, absl::Duration work) const {
  const absl::Duration shared = share(now);
  absl::Duration backlog;
  for (const Lane& lane : lanes_) {
    if (lane.long_from <= now && passes_long(work)) continue;
    if (lane.state == State::kHeld) backlog += lane.work.optimistic;
    if (lane.state == State::kComputing) {
      backlog += std::max(absl::ZeroDuration(), lane.work.optimistic - (shared - lane.began));
    }
  }
  return backlog;
}

absl::Duration DeviceLoad::busy(absl::Time now) const { return computing_ > 0 ? busy_ + (now - advanced_) : busy_; }

absl::Duration DeviceLoad::share(absl::Time now) const {
  return computing_ > 0 ? share_ + (now - advanced_) / computing_ : share_;
}

void DeviceLoad::advance(absl::Time now) {
  busy_ = busy(now);
  share_ = share(now);
  advanced_ = now;
}

}  // namespace svdserve::server
