// A clock that moves when the test says so. Alarms ring on the test's thread, inside advance().
#ifndef SVDSERVE_TESTS_SERVER_FAKE_CLOCK_H_
#define SVDSERVE_TESTS_SERVER_FAKE_CLOCK_H_

#include <memory>
#include <set>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {

// Thread-safe, but advance() is called by one thread, and no alarm is destroyed while it runs.
class FakeClock final : public Clock {
 public:
  absl::Time now() override {
    MutexLock lock(&mu_);
    return now_;
  }

  std::unique_ptr<Alarm> make_alarm(absl::AnyInvocable<void()> ring) override {
    auto alarm = std::make_unique<FakeAlarm>(this, std::move(ring));
    MutexLock lock(&mu_);
    alarms_.insert(alarm.get());
    return alarm;
  }

  // Moves on by `step`, stopping at every alarm on the way.
  void advance(absl::Duration step) {
    const absl::Time end = now() + step;
    while (FakeAlarm* alarm = next_due(end)) alarm->ring();
    MutexLock lock(&mu_);
    now_ = end;
  }

  // When the next alarm rings; InfiniteFuture: none is set.
  absl::Time next_alarm() {
    MutexLock lock(&mu_);
    absl::Time next = absl::InfiniteFuture();
    for (const FakeAlarm* alarm : alarms_) next = std::min(next, alarm->when);
    return next;
  }

 private:
  struct FakeAlarm final : public Alarm {
    FakeAlarm(FakeClock* c, absl::AnyInvocable<void()> r) : clock(c), ring(std::move(r)) {}
    ~FakeAlarm() override {
      MutexLock lock(&clock->mu_);
      clock->alarms_.erase(this);
    }
    void set(absl::Time t) override {
      MutexLock lock(&clock->mu_);
      when = t;
    }
    FakeClock* const clock;
    absl::AnyInvocable<void()> ring;
    absl::Time when = absl::InfiniteFuture();  // guarded by clock->mu_
  };

  FakeAlarm* next_due(absl::Time end) {
    MutexLock lock(&mu_);
    FakeAlarm* next = nullptr;
    for (FakeAlarm* alarm : alarms_) {
      if (alarm->when <= end && (next == nullptr || alarm->when < next->when)) next = alarm;
    }
    if (next == nullptr) return nullptr;
    now_ = std::max(now_, next->when);
    next->when = absl::InfiniteFuture();
    return next;
  }

  Mutex mu_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(24);
  std::set<FakeAlarm*> alarms_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAKE_CLOCK_H_
