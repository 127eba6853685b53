#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

// Rings are counted; the test waits for them without looking at the time.
struct Bell {
  void Ring() {
    MutexLock lock(&mu);
    ++rings;
    changed.SignalAll();
  }
  void Await(int n) {
    MutexLock lock(&mu);
    while (rings < n) changed.Wait(&mu);
  }
  Mutex mu;
  CondVar changed;
  int rings = 0;
};

TEST(SteadyClock, IsNearTheWallClockAndNeverGoesBack) {
  const auto clock = MakeSteadyClock();
  EXPECT_LT(absl::AbsDuration(clock->Now() - absl::FromChrono(std::chrono::system_clock::now())), absl::Minutes(1));
  absl::Time before = clock->Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock->Now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(SteadyClock, AlarmRingsOnceAndNotTooEarly) {
  const auto clock = MakeSteadyClock();
  Bell bell;
  absl::Time rang;
  const auto alarm = clock->MakeAlarm([&] {
    rang = clock->Now();
    bell.Ring();
  });
  const absl::Time when = clock->Now() + absl::Milliseconds(2);
  alarm->Set(when);
  bell.Await(1);
  EXPECT_GE(rang, when);
}

TEST(SteadyClock, EarlierTimeReplacesALaterOne) {
  const auto clock = MakeSteadyClock();
  Bell bell;
  const auto alarm = clock->MakeAlarm([&] { bell.Ring(); });
  alarm->Set(clock->Now() + absl::Hours(1));
  alarm->Set(clock->Now() + absl::Milliseconds(1));
  bell.Await(1);
  alarm->Set(absl::InfinitePast());
  bell.Await(2);
}

TEST(SteadyClock, AlarmMaySetItself) {
  const auto clock = MakeSteadyClock();
  Bell bell;
  std::unique_ptr<Alarm> alarm;
  alarm = clock->MakeAlarm([&] {
    bell.Ring();
    if (bell.rings < 3) alarm->Set(clock->Now());
  });
  alarm->Set(clock->Now());
  bell.Await(3);
}

TEST(SteadyClock, DestructionWithAnAlarmSet) {
  const auto clock = MakeSteadyClock();
  const auto alarm = clock->MakeAlarm([] { FAIL() << "an hour has not passed"; });
  alarm->Set(clock->Now() + absl::Hours(1));
}

}  // namespace
}  // namespace svdserve::server
