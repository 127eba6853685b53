#include <chrono>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

using Steady = std::chrono::steady_clock;

// The wall clock's time at one moment, carried on by the steady clock: what Now() means.
class Anchor {
 public:
  absl::Time Now() const { return wall_ + absl::FromChrono(Steady::now() - steady_); }
  Steady::time_point ToSteady(absl::Time t) const { return steady_ + absl::ToChronoNanoseconds(t - wall_); }

 private:
  const absl::Time wall_ = absl::Now();
  const Steady::time_point steady_ = Steady::now();
};

// Invariant: the thread sleeps until planned_ <= when_ or shorter, so an earlier time needs a signal and a later does
// not.
class SteadyAlarm final : public Alarm {
 public:
  SteadyAlarm(const Anchor* anchor, absl::AnyInvocable<void()> ring)
      : anchor_(anchor), ring_(std::move(ring)), thread_([this] { Run(); }) {}

  ~SteadyAlarm() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      cv_.Signal();
    }
    thread_.join();
  }

  void Set(absl::Time when) override {
    MutexLock lock(&mu_);
    when_ = when;
    if (when < planned_) cv_.Signal();
  }

 private:
  void Run() {
    mu_.Lock();
    while (!stopping_) {
      if (when_ <= anchor_->Now()) {
        when_ = absl::InfiniteFuture();
        mu_.Unlock();
        ring_();
        mu_.Lock();
      } else {
        planned_ = when_;
        if (planned_ == absl::InfiniteFuture()) {
          cv_.Wait(&mu_);
        } else {
          cv_.WaitUntil(&mu_, anchor_->ToSteady(planned_));
        }
        planned_ = absl::InfinitePast();  // awake: it will look at when_ by itself
      }
    }
    mu_.Unlock();
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
  absl::Time Now() override { return anchor_.Now(); }
  std::unique_ptr<Alarm> MakeAlarm(absl::AnyInvocable<void()> ring) override {
    return std::make_unique<SteadyAlarm>(&anchor_, std::move(ring));
  }

 private:
  const Anchor anchor_{};
};

}  // namespace

std::unique_ptr<Clock> MakeSteadyClock() { return std::make_unique<SteadyClock>(); }

}  // namespace svdserve::server
