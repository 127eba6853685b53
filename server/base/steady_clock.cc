#include <chrono>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

using Steady = std::chrono::steady_clock;

// The wall clock's time at one moment, carried on by the steady clock: what now() means.
class Anchor {
 public:
  absl::Time now() const { return wall_ + absl::FromChrono(Steady::now() - steady_); }
  Steady::time_point to_steady(absl::Time t) const { return steady_ + absl::ToChronoNanoseconds(t - wall_); }

 private:
  const absl::Time wall_ = absl::Now();
  const Steady::time_point steady_ = Steady::now();
};

// Invariant: the thread sleeps until planned_ <= when_ or shorter, so an earlier time needs a signal and a later does
// not.
class SteadyAlarm final : public Alarm {
 public:
  SteadyAlarm(const Anchor* anchor, absl::AnyInvocable<void()> ring)
      : anchor_(anchor), ring_(std::move(ring)), thread_([this] { run(); }) {}

  ~SteadyAlarm() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      cv_.signal();
    }
    thread_.join();
  }

  void set(absl::Time when) override {
    MutexLock lock(&mu_);
    when_ = when;
    if (when < planned_) cv_.signal();
  }

 private:
  void run() {
    mu_.lock();
    while (!stopping_) {
      if (when_ <= anchor_->now()) {
        when_ = absl::InfiniteFuture();
        mu_.unlock();
        ring_();
        mu_.lock();
      } else {
        planned_ = when_;
        if (planned_ == absl::InfiniteFuture()) {
          cv_.wait(&mu_);
        } else {
          cv_.wait_until(&mu_, anchor_->to_steady(planned_));
        }
        planned_ = absl::InfinitePast();  // awake: it will look at when_ by itself
      }
    }
    mu_.unlock();
  }

  const Anchor* const anchor_;
  absl::AnyInvocable<void()> ring_;
  Mutex mu_;
  CondVar cv_;
  absl::Time when_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time planned_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

class SteadyClock final : public Clock {
 public:
  absl::Time now() override { return anchor_.now(); }
  std::unique_ptr<Alarm> make_alarm(absl::AnyInvocable<void()> ring) override {
    return std::make_unique<SteadyAlarm>(&anchor_, std::move(ring));
  }

 private:
  const Anchor anchor_{};
};

}  // namespace

std::unique_ptr<Clock> make_steady_clock() { return std::make_unique<SteadyClock>(); }

}  // namespace svdserve::server
