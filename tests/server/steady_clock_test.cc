#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

// Rings are counted; the test waits for them without looking at the time.
struct Bell {
  void ring() {
    MutexLock lock(&mu);
    ++rings;
    changed.signal_all();
  }
  void await(int n) {
    MutexLock lock(&mu);
    while (rings < n) changed.wait(&mu);
  }
  Mutex mu;
  CondVar changed;
  int rings = 0;
};

TEST(SteadyClock, IsNearTheWallClockAndNeverGoesBack) {
  const auto clock = make_steady_clock();
  EXPECT_LT(absl::AbsDuration(clock->now() - absl::FromChrono(std::chrono::system_clock::now())), absl::Minutes(1));
  absl::Time before = clock->now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock->now();
    EXPECT_GE(now, before);
    before = now;
  }
}

TEST(SteadyClock, AlarmRingsOnceAndNotTooEarly) {
  const auto clock = make_steady_clock();
  Bell bell;
  absl::Time rang;
  const auto alarm = clock->make_alarm([&] {
    rang = clock->now();
    bell.ring();
  });
  const absl::Time when = clock->now() + absl::Milliseconds(2);
  alarm->set(when);
  bell.await(1);
  EXPECT_GE(rang, when);
}

TEST(SteadyClock, EarlierTimeReplacesALaterOne) {
  const auto clock = make_steady_clock();
  Bell bell;
  const auto alarm = clock->make_alarm([&] { bell.ring(); });
  alarm->set(clock->now() + absl::Hours(1));
  alarm->set(clock->now() + absl::Milliseconds(1));
  bell.await(1);
  alarm->set(absl::InfinitePast());
  bell.await(2);
}

TEST(SteadyClock, AlarmMaySetItself) {
  const auto clock = make_steady_clock();
  Bell bell;
  std::unique_ptr<Alarm> alarm;
  alarm = clock->make_alarm([&] {
    bell.ring();
    if (bell.rings < 3) alarm->set(clock->now());
  });
  alarm->set(clock->now());
  bell.await(3);
}

TEST(SteadyClock, DestructionWithAnAlarmSet) {
  const auto clock = make_steady_clock();
  const auto alarm = clock->make_alarm([] { FAIL() << "an hour has not passed"; });
  alarm->set(clock->now() + absl::Hours(1));
}

}  // namespace
}  // namespace svdserve::server
