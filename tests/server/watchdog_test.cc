#include "server/device/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

// Work that is watched, and what was said of it.
struct Work {
  Work(Watchdog* watchdog, absl::Duration bound)
      : watch(std::make_unique<Watchdog::Watch>(watchdog, bound, [this](absl::Duration s) {
          silent = s;
          ++calls;
        })) {}
  int calls = 0;
  absl::Duration silent;
  std::unique_ptr<Watchdog::Watch> watch;
};

TEST(Watchdog, WorkHangsAfterTheLeastTime) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, absl::Milliseconds(1));
  clock.advance(9.5 * kSecond);
  EXPECT_EQ(work.calls, 0);
  clock.advance(1.5 * kSecond);
  EXPECT_EQ(work.calls, 1);
  EXPECT_EQ(work.silent, 10 * kSecond);
  clock.advance(100 * kSecond);
  EXPECT_EQ(work.calls, 1);
  EXPECT_TRUE(work.watch->stop());
}

TEST(Watchdog, WorkThatMayTakeLongHasTwentyTimesItsBound) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, 3 * kSecond);
  clock.advance(59 * kSecond);
  EXPECT_EQ(work.calls, 0);
  clock.advance(2 * kSecond);
  EXPECT_EQ(work.calls, 1);
}

TEST(Watchdog, WorkWithoutABoundNeverHangs) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, absl::InfiniteDuration());
  clock.advance(10000 * kSecond);
  EXPECT_EQ(work.calls, 0);
}

TEST(Watchdog, ProgressBeginsTheTimeAnew) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, kSecond / 10);
  for (int i = 0; i < 20; ++i) {
    clock.advance(9 * kSecond);
    work.watch->progress();
  }
  EXPECT_EQ(work.calls, 0);
  clock.advance(9 * kSecond);
  EXPECT_EQ(work.calls, 0);
  clock.advance(3 * kSecond);
  EXPECT_EQ(work.calls, 1);
}

TEST(Watchdog, WorkThatWaitsForSomethingElseDoesNotHang) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, absl::ZeroDuration());
  work.watch->pause(true);
  clock.advance(1000 * kSecond);
  EXPECT_EQ(work.calls, 0);
  work.watch->progress();
  work.watch->pause(false);
  clock.advance(9 * kSecond);
  EXPECT_EQ(work.calls, 0);
  clock.advance(3 * kSecond);
  EXPECT_EQ(work.calls, 1);
}

TEST(Watchdog, WorkThatEndsInTimeIsForgotten) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  for (int i = 0; i < 10; ++i) {
    Work work(&watchdog, kSecond / 10);
    clock.advance(9 * kSecond);
    EXPECT_FALSE(work.watch->stop());
    clock.advance(9 * kSecond);
    EXPECT_EQ(work.calls, 0);
  }
}

TEST(Watchdog, EachWorkHasItsOwnTime) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work first(&watchdog, kSecond / 10);
  clock.advance(5 * kSecond);
  Work second(&watchdog, kSecond / 10);
  clock.advance(6 * kSecond);
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 0);
  clock.advance(5 * kSecond);
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 1);
}

TEST(Watchdog, SetsNoAlarmWhileThereIsNothingToWatch) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  EXPECT_EQ(clock.next_alarm(), absl::InfiniteFuture());
  {
    Work work(&watchdog, kSecond);
    EXPECT_EQ(clock.next_alarm(), clock.now() + kSecond);
  }
  clock.advance(3 * kSecond);
  EXPECT_EQ(clock.next_alarm(), absl::InfiniteFuture());
  Work work(&watchdog, kSecond / 10);
  clock.advance(11 * kSecond);
  EXPECT_EQ(work.calls, 1);
}

// A clock that goes on while its alarms do not ring, as for a process that was stopped.
class PausedClock final : public Clock {
 public:
  absl::Time now() override { return inner.now() + paused; }
  std::unique_ptr<Alarm> make_alarm(absl::AnyInvocable<void()> ring) override {
    class Shifted final : public Alarm {
     public:
      Shifted(std::unique_ptr<Alarm> alarm, PausedClock* clock) : alarm_(std::move(alarm)), clock_(clock) {}
      void set(absl::Time when) override { alarm_->set(when - clock_->paused); }

     private:
      const std::unique_ptr<Alarm> alarm_;
      PausedClock* const clock_;
    };
    return std::make_unique<Shifted>(inner.make_alarm(std::move(ring)), this);
  }
  FakeClock inner;
  absl::Duration paused;
};

TEST(Watchdog, APauseOfTheProcessMakesNoWorkSuspect) {
  PausedClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  Work work(&watchdog, kSecond / 10);
  clock.inner.advance(3 * kSecond);
  clock.paused += absl::Hours(1);
  clock.inner.advance(5 * kSecond);
  EXPECT_EQ(work.calls, 0);  // the hour counted as two looks at most
  clock.inner.advance(3 * kSecond);
  EXPECT_EQ(work.calls, 1);
}

// The work ends while it is said to hang: what the callback uses is still there.
TEST(Watchdog, TheEndOfWorkWaitsForItsCallback) {
  FakeClock clock;
  Watchdog watchdog(10 * kSecond, &clock);
  std::atomic<bool> in_callback{false}, may_go_on{false}, stopped{false};
  Watchdog::Watch watch(&watchdog, kSecond / 10, [&](absl::Duration) {
    in_callback = true;
    while (!may_go_on) std::this_thread::yield();
    EXPECT_FALSE(stopped);
  });
  std::thread time([&] { clock.advance(11 * kSecond); });
  while (!in_callback) std::this_thread::yield();
  std::thread worker([&] {
    EXPECT_TRUE(watch.stop());
    stopped = true;
  });
  may_go_on = true;
  time.join();
  worker.join();
}

TEST(Watchdog, ManyThreadsWithARealClock) {
  const auto clock = make_steady_clock();
  Watchdog watchdog(absl::Milliseconds(2), clock.get());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&watchdog] {
      std::atomic<int> told{0};
      const auto tell = [&told](absl::Duration) { ++told; };
      for (int i = 0; i < 500; ++i) {
        told = 0;
        Watchdog::Watch watch(&watchdog, absl::ZeroDuration(), tell);
        watch.progress();
        const bool hung = watch.stop();
        EXPECT_EQ(hung, told == 1);
      }
      told = 0;
      Watchdog::Watch watch(&watchdog, absl::ZeroDuration(), tell);
      while (told == 0) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace svdserve::server
