// The queue of large matrices by itself: who takes what, and when. The whole way of a matrix is in large_queue_test.cc.
#include "server/device/large/factor_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "tests/server/fake_factor_engine.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Counts events that a test awaits. Thread-safe.
class Events {
 public:
  void Note(int what) {
    MutexLock lock(&mu_);
    noted_.push_back(what);
    changed_.SignalAll();
  }
  std::vector<int> Await(size_t count) {
    MutexLock lock(&mu_);
    while (noted_.size() < count) changed_.Wait(&mu_);
    return noted_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<int> noted_;
};

class Task final : public FactorTask {
 public:
  Task(int name, Events* events) : name_(name), events_(events) {}
  bool Run(int, Reservation) override {
    events_->Note(name_);
    return true;
  }
  void OnNoDevice() override { ADD_FAILURE(); }

 private:
  const int name_;
  Events* const events_;
};

// Reserves what is at most `room`, and counts attempts for more.
struct Memory {
  bool Reserve(int64_t bytes) {
    MutexLock lock(&mu);
    if (bytes <= room) return true;
    ++refused;
    changed.SignalAll();
    return false;
  }
  void SetRoom(int64_t bytes) {
    MutexLock lock(&mu);
    room = bytes;
  }
  int64_t Refused() {
    MutexLock lock(&mu);
    return refused;
  }
  // Blocks until the queue was looked at once more, from its front to its end or to where the device stopped.
  void AwaitAnotherLook(FactorRunner* runner) {
    const int64_t before = Refused();
    // The second of two more looks begins after the first has ended.
    while (Refused() < before + 2) {
      runner->Retry();
      MutexLock lock(&mu);
      if (refused < before + 2) changed.WaitUntil(&mu, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
    }
  }
  Mutex mu;
  CondVar changed;
  int64_t room ABSL_GUARDED_BY(mu) = 0, refused ABSL_GUARDED_BY(mu) = 0;
};

std::vector<FactorDevice> devices(const std::vector<int64_t>& memory_bytes) {
  std::vector<FactorDevice> made;
  for (const int64_t bytes : memory_bytes) {
    made.push_back(
        {"fake", bytes, std::make_unique<FakeFactorEngine>(std::make_shared<FactorControls>(), FactorMemory{})});
  }
  return made;
}

TEST(FactorRunner, TheHostIsACandidateOnlyWhereNoGpuIs) {
  FactorRunner runner(devices({100, 100, 0}), [](int64_t, Reservation*) { return true; });
  EXPECT_THAT(runner.Candidates({0, 0, 0}), ElementsAre(0, 1));
  EXPECT_THAT(runner.Candidates({std::nullopt, 0, 0}), ElementsAre(1));
  EXPECT_THAT(runner.Candidates({std::nullopt, std::nullopt, 0}), ElementsAre(2));
  EXPECT_THAT(runner.Candidates({std::nullopt, std::nullopt, std::nullopt}), IsEmpty());
  Events events;
  EXPECT_FALSE(runner.Submit(std::make_shared<Task>(1, &events), {std::nullopt, std::nullopt, std::nullopt}));
}

// The first needs more memory than there is. Those behind it pass, but not for ever.
TEST(FactorRunner, AMatrixThatWaitsForMemoryIsPassedByABoundedNumber) {
  Events events;
  Memory memory;
  memory.SetRoom(5);
  FactorRunner runner(devices({0}), [&](int64_t bytes, Reservation*) { return memory.Reserve(bytes); });
  constexpr int kLarge = 1000, kFree = 2000;
  ASSERT_TRUE(runner.Submit(std::make_shared<Task>(kLarge, &events), {10}));
  for (int i = 0; i < FactorRunner::kMostPasses + 3; ++i) {
    ASSERT_TRUE(runner.Submit(std::make_shared<Task>(i, &events), {1}));
  }
  std::vector<int> wanted;
  for (int i = 0; i < FactorRunner::kMostPasses; ++i) wanted.push_back(i);
  EXPECT_EQ(events.Await(wanted.size()), wanted);
  memory.AwaitAnotherLook(&runner);
  EXPECT_EQ(events.Await(0), wanted) << "the rest waits for the first";
  ASSERT_TRUE(runner.Submit(std::make_shared<Task>(kFree, &events), {0}));  // reserves nothing, so it may pass
  wanted.push_back(kFree);
  EXPECT_EQ(events.Await(wanted.size()), wanted);
  memory.SetRoom(10);
  runner.Retry();
  wanted.push_back(kLarge);
  for (int i = 0; i < 3; ++i) wanted.push_back(FactorRunner::kMostPasses + i);
  EXPECT_EQ(events.Await(wanted.size()), wanted);
}

TEST(FactorRunner, WhatIsWithdrawnLetsTheOthersGoOn) {
  Events events;
  Memory memory;
  FactorRunner runner(devices({0}), [&](int64_t bytes, Reservation*) { return memory.Reserve(bytes); });
  const auto first = std::make_shared<Task>(1, &events), second = std::make_shared<Task>(2, &events);
  ASSERT_TRUE(runner.Submit(first, {10}));
  ASSERT_TRUE(runner.Submit(second, {10}));
  memory.AwaitAnotherLook(&runner);
  EXPECT_EQ(runner.loads().total.waiting, 2);
  EXPECT_TRUE(runner.Withdraw(first.get()));
  EXPECT_FALSE(runner.Withdraw(first.get()));
  memory.SetRoom(10);
  runner.Retry();
  EXPECT_THAT(events.Await(1), ElementsAre(2));
}

}  // namespace
}  // namespace svdserve::server
