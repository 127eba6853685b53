// The queue of large matrices by itself: who takes what, and when. The whole way of a matrix is in large_queue_test.cc.
#include "server/device/large/large_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "tests/server/fake_large_engine.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Counts events that a test awaits. Thread-safe.
class Events {
 public:
  void note(int what) {
    MutexLock lock(&mu_);
    noted_.push_back(what);
    changed_.signal_all();
  }
  std::vector<int> await(size_t count) {
    MutexLock lock(&mu_);
    while (noted_.size() < count) changed_.wait(&mu_);
    return noted_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<int> noted_;
};

class Task final : public LargeTask {
 public:
  Task(int name, Events* events) : name_(name), events_(events) {}
  bool run(int, Reservation) override {
    events_->note(name_);
    return true;
  }
  void on_no_device() override { ADD_FAILURE(); }

 private:
  const int name_;
  Events* const events_;
};

// Reserves what is at most `room`, and counts attempts for more.
struct Memory {
  bool reserve(int64_t bytes) {
    MutexLock lock(&mu);
    if (bytes <= room) return true;
    ++refused;
    changed.signal_all();
    return false;
  }
  void set_room(int64_t bytes) {
    MutexLock lock(&mu);
    room = bytes;
  }
  int64_t refusals() {
    MutexLock lock(&mu);
    return refused;
  }
  // Blocks until the queue was looked at once more, from its front to its end or to where the device stopped.
  void await_another_look(LargeRunner* runner) {
    const int64_t before = refusals();
    // The second of two more looks begins after the first has ended.
    while (refusals() < before + 2) {
      runner->retry();
      MutexLock lock(&mu);
      if (refused < before + 2)
        changed.wait_until(&mu, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }
  Mutex mu;
  CondVar changed;
  int64_t room ABSL_GUARDED_BY(mu) = 0, refused ABSL_GUARDED_BY(mu) = 0;
};

std::vector<LargeDevice> devices(const std::vector<int64_t>& memory_bytes) {
  std::vector<LargeDevice> made;
  for (const int64_t bytes : memory_bytes) {
    made.push_back(
        {"fake", bytes, std::make_unique<FakeLargeEngine>(std::make_shared<LargeControls>(), LargeWorkspace{})});
  }
  return made;
}

TEST(LargeRunner, TheHostIsACandidateOnlyWhereNoGpuIs) {
  LargeRunner runner(devices({100, 100, 0}), [](int64_t, Reservation*) { return true; });
  EXPECT_THAT(runner.candidates({0, 0, 0}), ElementsAre(0, 1));
  EXPECT_THAT(runner.candidates({std::nullopt, 0, 0}), ElementsAre(1));
  EXPECT_THAT(runner.candidates({std::nullopt, std::nullopt, 0}), ElementsAre(2));
  EXPECT_THAT(runner.candidates({std::nullopt, std::nullopt, std::nullopt}), IsEmpty());
  Events events;
  EXPECT_FALSE(runner.submit(std::make_shared<Task>(1, &events), {std::nullopt, std::nullopt, std::nullopt}));
}

// The first needs more memory than there is. Those behind it pass, but not for ever.
TEST(LargeRunner, AMatrixThatWaitsForMemoryIsPassedByABoundedNumber) {
  Events events;
  Memory memory;
  memory.set_room(5);
  LargeRunner runner(devices({0}), [&](int64_t bytes, Reservation*) { return memory.reserve(bytes); });
  constexpr int kLarge = 1000, kFree = 2000;
  ASSERT_TRUE(runner.submit(std::make_shared<Task>(kLarge, &events), {10}));
  for (int i = 0; i < LargeRunner::kMostPasses + 3; ++i) {
    ASSERT_TRUE(runner.submit(std::make_shared<Task>(i, &events), {1}));
  }
  std::vector<int> wanted;
  for (int i = 0; i < LargeRunner::kMostPasses; ++i) wanted.push_back(i);
  EXPECT_EQ(events.await(wanted.size()), wanted);
  memory.await_another_look(&runner);
  EXPECT_EQ(events.await(0), wanted) << "the rest waits for the first";
  ASSERT_TRUE(runner.submit(std::make_shared<Task>(kFree, &events), {0}));  // reserves nothing, so it may pass
  wanted.push_back(kFree);
  EXPECT_EQ(events.await(wanted.size()), wanted);
  memory.set_room(10);
  runner.retry();
  wanted.push_back(kLarge);
  for (int i = 0; i < 3; ++i) wanted.push_back(LargeRunner::kMostPasses + i);
  EXPECT_EQ(events.await(wanted.size()), wanted);
}

// Each device prepares once, and a gang has nothing but its members. The first matrix does not wait for it.
TEST(LargeRunner, DevicesPrepareBesideTheFirstMatrix) {
  const auto single = std::make_shared<LargeControls>(), gang = std::make_shared<LargeControls>();
  single->hold_preparation(true);
  std::vector<LargeDevice> both;
  both.push_back({"fake", 100, std::make_unique<FakeLargeEngine>(single, LargeWorkspace{})});
  both.push_back({"gang", 100, std::make_unique<FakeLargeEngine>(gang, LargeWorkspace{}), {0}});
  Events events;
  {
    LargeRunner runner(std::move(both), [](int64_t, Reservation*) { return true; });
    single->await_preparation();
    const bool is_taken = runner.submit(std::make_shared<Task>(1, &events), {0, std::nullopt});
    EXPECT_TRUE(is_taken);
    if (is_taken) events.await(1);
    EXPECT_EQ(runner.loads().preparing, 1);
    single->hold_preparation(false);
    while (runner.loads().preparing > 0) std::this_thread::yield();
  }
  EXPECT_EQ(single->preparations(), 1);
  EXPECT_EQ(gang->preparations(), 0);
}

// Notes the device that computes it.
class PlacedTask final : public LargeTask {
 public:
  explicit PlacedTask(Events* events) : events_(events) {}
  bool run(int device, Reservation) override {
    events_->note(device);
    return true;
  }
  void on_no_device() override { ADD_FAILURE(); }

 private:
  Events* const events_;
};

// A GPU that has room for all of a matrix comes before those that leave a part of it to the host's memory.
TEST(LargeRunner, TheIdleDeviceThatReservesLeastTakesIt) {
  const auto any = [](int64_t, Reservation*) { return true; };
  for (const auto& [demand, device] : {std::pair<LargeDemand, int>{{20, 0, 10}, 1},
                                       {{20, 30, 10}, 2},
                                       {{10, 10, 10}, 0},
                                       {{std::nullopt, 30, 40}, 1}}) {
    Events events;
    LargeRunner runner(devices({100, 100, 100}), any);
    ASSERT_TRUE(runner.submit(std::make_shared<PlacedTask>(&events), demand));
    EXPECT_THAT(events.await(1), ElementsAre(device));
  }
  // Where that one has too little of the host's memory left, the next one is no better.
  Events events;
  LargeRunner runner(devices({100, 100}), [](int64_t bytes, Reservation*) { return bytes <= 10; });
  ASSERT_TRUE(runner.submit(std::make_shared<PlacedTask>(&events), {20, 10}));
  EXPECT_THAT(events.await(1), ElementsAre(1));
}

TEST(LargeRunner, WhatIsWithdrawnLetsTheOthersGoOn) {
  Events events;
  Memory memory;
  LargeRunner runner(devices({0}), [&](int64_t bytes, Reservation*) { return memory.reserve(bytes); });
  const auto first = std::make_shared<Task>(1, &events), second = std::make_shared<Task>(2, &events);
  ASSERT_TRUE(runner.submit(first, {10}));
  ASSERT_TRUE(runner.submit(second, {10}));
  memory.await_another_look(&runner);
  EXPECT_EQ(runner.loads().total.waiting, 2);
  EXPECT_TRUE(runner.withdraw(first.get()));
  EXPECT_FALSE(runner.withdraw(first.get()));
  memory.set_room(10);
  runner.retry();
  EXPECT_THAT(events.await(1), ElementsAre(2));
}

}  // namespace
}  // namespace svdserve::server
