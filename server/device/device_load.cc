#include "server/device/device_load.h"

#include <algorithm>
#include <cstddef>

namespace svdserve::server {

std::optional<int> DeviceLoad::FirstFree(size_t from, size_t to) const {
  for (size_t i = from; i < to; ++i) {
    if (lanes_[i].state == State::kFree) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<int> DeviceLoad::free_lane() const {
  return FirstFree(0, lanes_.size() - static_cast<size_t>(side_lanes_));
}

std::optional<int> DeviceLoad::free_side_lane() const {
  return FirstFree(lanes_.size() - static_cast<size_t>(side_lanes_), lanes_.size());
}

void DeviceLoad::Hold(int lane, const CostEstimate& work) {
  lanes_[static_cast<size_t>(lane)] = {State::kHeld, work, {}};
  ++held_;
}

void DeviceLoad::Begin(int lane, absl::Time now) {
  Advance(now);
  if (lanes_[static_cast<size_t>(lane)].state == State::kEnded) --ended_;
  ++computing_;
  lanes_[static_cast<size_t>(lane)].state = State::kComputing;
  lanes_[static_cast<size_t>(lane)].began = share_;
}

absl::Duration DeviceLoad::End(int lane, absl::Time now) {
  Advance(now);
  --computing_;
  ++ended_;
  lanes_[static_cast<size_t>(lane)].state = State::kEnded;
  return share_ - lanes_[static_cast<size_t>(lane)].began;
}

void DeviceLoad::Release(int lane) {
  if (lanes_[static_cast<size_t>(lane)].state == State::kEnded) --ended_;
  lanes_[static_cast<size_t>(lane)].state = State::kFree;
  --held_;
}

absl::Duration DeviceLoad::Backlog(absl::Time now) const {
  const absl::Duration shared = share(now);
  absl::Duration backlog;
  for (const Lane& lane : lanes_) {
    if (lane.state == State::kHeld) backlog += lane.work.typical;
    if (lane.state == State::kComputing) backlog += absl::AbsDuration(lane.work.typical - (shared - lane.began));
  }
  return backlog;
}

absl::Duration DeviceLoad::OptimisticBacklog(absl::Time now) const {
  const absl::Duration shared = share(now);
  absl::Duration backlog;
  for (const Lane& lane : lanes_) {
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

void DeviceLoad::Advance(absl::Time now) {
  busy_ = busy(now);
  share_ = share(now);
  advanced_ = now;
}

}  // namespace svdserve::server
