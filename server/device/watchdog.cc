#include "server/device/watchdog.h"

#include <algorithm>
#include <utility>

namespace svdserve::server {
namespace {

// A hang is found this much after its time at the latest.
constexpr absl::Duration kLongestPeriod = absl::Seconds(1);

}  // namespace

Watchdog::Watchdog(absl::Duration least, Clock* clock)
    : least_(least),
      period_(std::min(kLongestPeriod, least / 4)),
      clock_(clock),
      alarm_(clock->make_alarm([this] { look(); })) {}

Watchdog::Watch::Watch(Watchdog* watchdog, absl::Duration bound, OnHang on_hang)
    : watchdog_(watchdog), limit_(std::max(kPatience * bound, watchdog->least_)), on_hang_(std::move(on_hang)) {
  Watchdog& dog = *watchdog_;
  const absl::Time now = dog.clock_->now();
  MutexLock lock(&dog.mu_);
  dog.begun_ = true;
  if (!std::exchange(dog.alarm_is_set_, true)) {
    dog.last_look_ = now;  // nobody looked meanwhile, and nothing was there to be looked at
    dog.alarm_->set(now + dog.period_);
  }
  since_ = dog.counted(now);
  dog.watches_.insert(this);
}

bool Watchdog::Watch::stop() {
  MutexLock lock(&watchdog_->mu_);
  while (telling_) watchdog_->told_.wait(&watchdog_->mu_);
  watchdog_->watches_.erase(this);
  return hung_;
}

absl::Duration Watchdog::counted(absl::Time now) const {
  return counted_ + std::clamp(now - last_look_, absl::ZeroDuration(), 2 * period_);
}

Watchdog::Watch* Watchdog::next_hung() {
  for (Watch* const watch : watches_) {
    const bool progressed = watch->progressed_.exchange(false, std::memory_order_relaxed);
    if (progressed || watch->paused_.load(std::memory_order_relaxed)) watch->since_ = counted_;
    if (watch->hung_ || counted_ - watch->since_ < watch->limit_) continue;
    watch->hung_ = watch->telling_ = true;
    return watch;
  }
  return nullptr;
}

void Watchdog::look() {
  mu_.lock();
  const absl::Time now = clock_->now();
  counted_ = counted(now);
  last_look_ = now;
  while (Watch* const watch = next_hung()) {
    const absl::Duration silent = counted_ - watch->since_;
    mu_.unlock();
    watch->on_hang_(silent);
    mu_.lock();
    watch->telling_ = false;
    told_.signal_all();
  }
  // One look more than is needed, so that a busy device does not set the alarm for each batch.
  alarm_is_set_ = !watches_.empty() || std::exchange(begun_, false);
  if (alarm_is_set_) alarm_->set(now + period_);
  mu_.unlock();
}

}  // namespace svdserve::server
