// Gangs of GPUs in the queue of large matrices, by itself. Whole matrices on gangs are in large_ring_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "server/device/large/large_runner.h"
#include "tests/server/fake_large_engine.h"
#include "tests/support/numerics/effort.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kGpus = 4;
// Devices of a runner of this test: GPUs 0 .. 3, gangs that overlap, the host.
enum : int { kFrontPair = kGpus, kMiddlePair, kAllFour, kHost, kDevices };
const std::vector<std::vector<int>> kMembers = {{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {0, 1, 2, 3}, {kHost}};

std::vector<LargeDevice> overlapping_devices() {
  std::vector<LargeDevice> made;
  for (int i = 0; i < kDevices; ++i) {
    LargeDevice device;
    device.name = "fake:" + std::to_string(i);
    device.memory_bytes = i == kHost ? 0 : 100;
    device.engine = std::make_unique<FakeLargeEngine>(std::make_shared<LargeControls>(), LargeWorkspace{});
    if (kMembers[static_cast<size_t>(i)].size() > 1) device.members = kMembers[static_cast<size_t>(i)];
    made.push_back(std::move(device));
  }
  return made;
}

LargeDemand demand_of(const std::set<int>& devices, int64_t bytes = 0) {
  LargeDemand demand(kDevices);
  for (const int d : devices) demand[static_cast<size_t>(d)] = bytes;
  return demand;
}

// How a task that computes ends.
enum class End : uint8_t { kGood, kFailed, kLost };

// Where tasks compute until the test ends them. It checks that no device has two. Thread-safe.
class Floor {
 public:
  // On the device's thread, until end().
  End compute(int task, int device) {
    MutexLock lock(&mu_);
    for (const int m : kMembers[static_cast<size_t>(device)]) {
      EXPECT_TRUE(users_.emplace(m, task).second) << "device " << m << " has two";
    }
    ++begun_;
    computing_[task] = device;
    changed_.signal_all();
    while (!ends_.contains(task)) changed_.wait(&mu_);
    const End end = ends_[task];
    ends_.erase(task);
    computing_.erase(task);
    for (const int m : kMembers[static_cast<size_t>(device)]) users_.erase(m);
    return end;
  }
  void end(int task, End how) {
    MutexLock lock(&mu_);
    ends_[task] = how;
    ++ended_;
    changed_.signal_all();
  }
  // Waits until the runner has seen every end, and what it gave to devices is here.
  void await_quiet(const LargeRunner& runner) {
    while (true) {
      int64_t computing = 0;
      {
        MutexLock lock(&mu_);
        computing = begun_ - ended_;
      }
      // The runner has given at least what has begun, and seen at most what was ended.
      if (runner.loads().total.running == computing) return;
      std::this_thread::yield();
    }
  }
  // The device of each task that computes.
  std::map<int, int> computing() {
    MutexLock lock(&mu_);
    return computing_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int64_t begun_ = 0, ended_ = 0;
  std::map<int, int> computing_, users_;  // by task; by device
  std::map<int, End> ends_;
};

// A matrix. As a job does, it goes back to the front of the queue when a device has failed it.
class GangTask final : public LargeTask, public std::enable_shared_from_this<GangTask> {
 public:
  GangTask(int name, LargeDemand demand, Floor* floor) : name_(name), floor_(floor), demand_(std::move(demand)) {}

  bool submit(LargeRunner* runner) {
    runner_ = runner;
    return runner->submit(shared_from_this(), demand_);
  }
  bool run(int device, Reservation) override {
    const End end = floor_->compute(name_, device);
    if (end == End::kGood) {
      ++done;
      return true;
    }
    demand_[static_cast<size_t>(device)].reset();
    again = true;
    if (!runner_->submit(shared_from_this(), demand_, LargeRunner::Position::kFirst)) ++told;
    return end != End::kLost;
  }
  void on_no_device() override { ++told; }
  const LargeDemand& demand() const { return demand_; }

  std::atomic<int> done{0}, told{0};
  std::atomic<bool> again{false};
  int withdrawn = 0;

 private:
  const int name_;
  Floor* const floor_;
  LargeRunner* runner_ = nullptr;
  LargeDemand demand_;  // its own thread's, or the test's while it waits
};

// One random schedule: tasks come, compute, fail, are cancelled; devices are lost; memory is short now and then.
class Schedule {
 public:
  explicit Schedule(unsigned seed) : random_(seed), short_of_memory_(seed % 3 != 0) {}

  void play() {
    constexpr int kSingles = 50, kGangs = 2;
    std::vector<bool> is_gang(kSingles + kGangs, false);
    std::fill_n(is_gang.begin(), kGangs, true);
    std::shuffle(is_gang.begin(), is_gang.end(), random_);
    const size_t stop_at = one_in(4) ? below(is_gang.size()) : is_gang.size();
    for (size_t next = 0; next < stop_at && !::testing::Test::HasFailure(); step()) {
      if (one_in(2)) submit(is_gang[next++]);
    }
    if (stop_at < is_gang.size()) {
      cancel_all();
    } else {
      finish_all();
    }
    runner_.reset();
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const GangTask& task = *tasks_[i];
      EXPECT_EQ(task.done + task.told + task.withdrawn, 1) << "task " << i;
    }
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool one_in(size_t n) { return below(n) == 0; }

  bool reserve(int64_t bytes) {
    MutexLock lock(&memory_mu_);
    return bytes == 0 || !short_of_memory_ || memory_random_() % 4 != 0;
  }
  void end_shortage() {
    MutexLock lock(&memory_mu_);
    short_of_memory_ = false;
  }

  void submit(bool is_gang) {
    std::set<int> devices = {kHost};
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      if (is_gang || !one_in(3)) devices.insert(gpu);
    }
    if (is_gang) devices.insert(one_in(2) ? kFrontPair : kMiddlePair);
    if (is_gang && one_in(3)) devices.insert(kAllFour);
    if (one_in(20)) devices.erase(kHost);
    const int name = static_cast<int>(tasks_.size());
    tasks_.push_back(std::make_shared<GangTask>(name, demand_of(devices, static_cast<int64_t>(below(3))), &floor_));
    observe([&] {
      if (!tasks_.back()->submit(runner_.get())) tasks_.back()->withdrawn = 1;
      return std::set<int>{};
    });
  }

  void step() {
    const size_t kind = below(20);
    if (kind < 13) {
      end_one(kind == 0 ? End::kFailed : kind == 1 && losses_ < 3 ? End::kLost : End::kGood);
    } else if (kind == 13 && !tasks_.empty()) {
      withdraw(below(tasks_.size()));
    } else if (kind == 14 && losses_ < 3 && one_in(5)) {
      lose(static_cast<int>(below(kHost)));
    } else {
      observe([&] {
        runner_->retry();
        return std::set<int>{};
      });
    }
  }
  void end_one(End how) {
    const std::map<int, int> computing = floor_.computing();
    if (computing.empty()) return;
    const auto which = std::next(computing.begin(), static_cast<std::ptrdiff_t>(below(computing.size())));
    if (how == End::kLost && which->second == kHost) how = End::kGood;
    if (how == End::kLost) forget_holds();
    observe([&] {
      floor_.end(which->first, how);
      const auto& freed = kMembers[static_cast<size_t>(which->second)];
      return std::set<int>(freed.begin(), freed.end());
    });
  }
  void withdraw(size_t task) {
    observe([&] {
      tasks_[task]->withdrawn += runner_->withdraw(tasks_[task].get());
      return std::set<int>{};
    });
  }
  void lose(int device) {
    forget_holds();
    observe([&] {
      runner_->mark_lost(device);
      return std::set<int>{};
    });
  }
  // Gangs may have other candidates now.
  void forget_holds() {
    ++losses_;
    holds_.clear();
  }

  // Does something and waits for what comes of it. Which devices it frees, it returns. Then checks that no task has
  // begun where one further in front holds devices.
  template <class F>
  void observe(const F& something) {
    const std::map<int, int> before = floor_.computing();
    const std::set<int> freed = something();
    floor_.await_quiet(*runner_);
    const std::map<int, int> after = floor_.computing();
    std::set<int> busy;
    for (const auto& [task, device] : before) {
      const auto& members = kMembers[static_cast<size_t>(device)];
      busy.insert(members.begin(), members.end());
    }
    for (const int device : freed) busy.erase(device);
    for (size_t i = 0; i < tasks_.size(); ++i) check_holds(static_cast<int>(i), busy, before, after);
  }
  // busy: devices that computed all along.
  void check_holds(int gang, const std::set<int>& busy, const std::map<int, int>& before,
                   const std::map<int, int>& after) {
    const GangTask& task = *tasks_[static_cast<size_t>(gang)];
    if (task.done + task.told + task.withdrawn > 0 || before.contains(gang) || after.contains(gang)) {
      holds_.erase(gang);
      return;
    }
    const std::vector<int> candidates = runner_->candidates(task.demand());
    if (candidates.size() != 1 || candidates[0] < kGpus || candidates[0] == kHost) return;
    const std::vector<int>& members = kMembers[static_cast<size_t>(candidates[0])];
    for (const int m : members) {
      if (busy.contains(m)) holds_.insert(gang);
    }
    if (!holds_.contains(gang)) return;
    for (const auto& [other, device] : after) {
      if (before.contains(other) || other < gang || tasks_[static_cast<size_t>(other)]->again) continue;
      for (const int m : kMembers[static_cast<size_t>(device)]) {
        EXPECT_EQ(std::count(members.begin(), members.end(), m), 0)
            << "task " << other << " began on device " << m << ", which task " << gang << " holds";
      }
    }
  }

  // Without a shortage of memory, and as long as matrices end, none waits for ever.
  void finish_all() {
    end_shortage();
    runner_->retry();
    floor_.await_quiet(*runner_);
    while (!floor_.computing().empty()) {
      const size_t kind = below(10);
      end_one(kind == 0 ? End::kFailed : kind == 1 && losses_ < 3 ? End::kLost : End::kGood);
    }
    EXPECT_EQ(runner_->loads().total.waiting, 0) << "they wait for ever";
    EXPECT_EQ(runner_->loads().held, 0);
  }
  // As when the server ends in the middle.
  void cancel_all() {
    for (const auto& task : tasks_) task->withdrawn += runner_->withdraw(task.get());
    floor_.await_quiet(*runner_);
    for (const auto& [task, device] : floor_.computing()) floor_.end(task, End::kGood);
  }

  std::mt19937 random_, memory_random_{random_()};
  Mutex memory_mu_;
  bool short_of_memory_;
  Floor floor_;
  std::vector<std::shared_ptr<GangTask>> tasks_;
  std::set<int> holds_;  // tasks that hold devices
  int losses_ = 0;
  std::unique_ptr<LargeRunner> runner_ = std::make_unique<LargeRunner>(
      overlapping_devices(), [this](int64_t bytes, Reservation*) { return reserve(bytes); });
};

class LargeGangTest : public ::testing::Test {
 protected:
  ~LargeGangTest() override {
    for (const auto& task : tasks) task->withdrawn += runner.withdraw(task.get());
    floor.await_quiet(runner);
    for (const auto& [task, device] : floor.computing()) floor.end(task, End::kGood);
  }
  int submit(const std::set<int>& devices, int64_t bytes = 0) {
    const int name = static_cast<int>(tasks.size());
    tasks.push_back(std::make_shared<GangTask>(name, demand_of(devices, bytes), &floor));
    EXPECT_TRUE(tasks.back()->submit(&runner));
    floor.await_quiet(runner);
    return name;
  }
  void end(int task, End how = End::kGood) {
    floor.end(task, how);
    floor.await_quiet(runner);
  }
  std::map<int, int> computing() { return floor.computing(); }

  Floor floor;
  std::atomic<bool> refuses{false};
  std::vector<std::shared_ptr<GangTask>> tasks;
  LargeRunner runner{overlapping_devices(), [this](int64_t bytes, Reservation*) { return bytes == 0 || !refuses; }};
};

TEST_F(LargeGangTest, TheLargestHealthyGangsAreTheCandidates) {
  const LargeDemand all = demand_of({0, 1, 2, 3, kFrontPair, kMiddlePair, kAllFour, kHost});
  EXPECT_THAT(runner.candidates(all), ElementsAre(kAllFour));
  runner.mark_lost(3);
  EXPECT_THAT(runner.candidates(all), ElementsAre(kFrontPair, kMiddlePair));
  EXPECT_THAT(runner.candidates(demand_of({0, 1, kHost})), ElementsAre(0, 1));
  runner.mark_lost(kFrontPair);
  EXPECT_THAT(runner.candidates(all), ElementsAre(kMiddlePair));
  runner.mark_lost(2);
  EXPECT_THAT(runner.candidates(all), ElementsAre(0, 1)) << "its members are healthy";
  runner.mark_lost(0);
  runner.mark_lost(1);
  EXPECT_THAT(runner.candidates(all), ElementsAre(kHost));
}

TEST_F(LargeGangTest, AGangHoldsItsIdleMembers) {
  const int single = submit({1});
  const int gang = submit({kFrontPair});
  EXPECT_EQ(runner.loads().held, 1);
  EXPECT_EQ(runner.loads().gangs.waiting, 1);
  EXPECT_EQ(runner.loads().of_device[0].waiting, 1);
  const int later = submit({0, 1});
  EXPECT_THAT(computing(), ElementsAre(std::pair(single, 1))) << "GPU 0 is held";
  const int elsewhere = submit({0, 3});
  EXPECT_THAT(computing(), ElementsAre(std::pair(single, 1), std::pair(elsewhere, 3)));
  end(single);
  EXPECT_THAT(computing(), ElementsAre(std::pair(gang, kFrontPair), std::pair(elsewhere, 3)));
  const LargeRunner::Loads loads = runner.loads();
  EXPECT_EQ(loads.held, 0);
  EXPECT_EQ(loads.gangs.running, 1);
  EXPECT_EQ(loads.total.running, 2);
  EXPECT_EQ(loads.of_device[0].running + loads.of_device[1].running, 2);
  end(gang);
  EXPECT_THAT(computing(), ElementsAre(std::pair(later, 0), std::pair(elsewhere, 3)));
}

TEST_F(LargeGangTest, OfTwoGangsTheFirstGoesFirst) {
  const int single = submit({1});
  const int first = submit({kFrontPair}), second = submit({kMiddlePair});
  EXPECT_EQ(runner.loads().held, 2) << "GPU 0 for the first, GPU 2 for the second";
  end(single);
  EXPECT_THAT(computing(), ElementsAre(std::pair(first, kFrontPair)));
  EXPECT_EQ(runner.loads().held, 1);
  end(first);
  EXPECT_THAT(computing(), ElementsAre(std::pair(second, kMiddlePair)));
}

TEST_F(LargeGangTest, AGangTakesAnotherThatIsIdle) {
  submit({0});
  const int gang = submit({kFrontPair, kMiddlePair});
  EXPECT_EQ(computing()[gang], kMiddlePair);
}

TEST_F(LargeGangTest, AGangThatIsWithdrawnLetsItsMembersGo) {
  submit({1});
  const int gang = submit({kAllFour});
  const int later = submit({3});
  EXPECT_FALSE(computing().contains(later));
  tasks[static_cast<size_t>(gang)]->withdrawn += runner.withdraw(tasks[static_cast<size_t>(gang)].get());
  floor.await_quiet(runner);
  EXPECT_EQ(computing()[later], 3);
}

TEST_F(LargeGangTest, AMemberThatIsLostWhileAGangWaits) {
  const int single = submit({3});
  const int gang = submit({0, 1, 2, kFrontPair, kAllFour, kHost});
  EXPECT_EQ(runner.loads().held, 3);
  runner.mark_lost(2);
  floor.await_quiet(runner);
  EXPECT_THAT(computing(), ElementsAre(std::pair(single, 3), std::pair(gang, kFrontPair)));
}

TEST_F(LargeGangTest, AGangThatIsLostGoesOnWithFewer) {
  const int gang = submit({0, 1, 2, 3, kFrontPair, kMiddlePair, kAllFour, kHost});
  EXPECT_EQ(computing()[gang], kAllFour);
  end(gang, End::kLost);
  EXPECT_EQ(computing()[gang], kFrontPair);
  end(gang, End::kLost);
  EXPECT_EQ(computing()[gang], kMiddlePair);
  end(gang, End::kLost);
  EXPECT_EQ(computing()[gang], 0) << "each of the members is healthy until it is lost by itself";
  end(gang, End::kLost);
  EXPECT_EQ(computing()[gang], 1);
}

// It holds its members although they are all idle: else they would never be so at once with the memory.
TEST_F(LargeGangTest, AGangKeepsItsMembersWhileItLacksMemory) {
  const int single = submit({0});
  const int gang = submit({kFrontPair}, 1);
  refuses = true;
  end(single);
  EXPECT_EQ(runner.loads().held, 2);
  const int later = submit({0, 1});
  EXPECT_THAT(computing(), IsEmpty());
  refuses = false;
  runner.retry();
  floor.await_quiet(runner);
  EXPECT_THAT(computing(), ElementsAre(std::pair(gang, kFrontPair)));
  end(gang);
  EXPECT_TRUE(computing().contains(later));
}

TEST(LargeGang, RandomSchedulesOfTwoGangsAndFiftyMatrices) {
  constexpr unsigned kSchedules = numerics::kSanitized ? 200 : 1000;
  for (unsigned seed = 0; seed < kSchedules && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule(seed).play();
  }
}

}  // namespace
}  // namespace svdserve::server
