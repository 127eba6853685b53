// A member throws, hangs or is late in any call. The others end, the ring goes on with those that are left, and the results
// have the same bits. Checkpoints bound the work that is repeated.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

enum class Fault : uint8_t { kNone, kThrow, kHang, kLate, kCancel };

// The faults of a test, by the number of a call among those of all members. Thread safe.
class FaultPlan {
 public:
  void begin(Fault fault, std::vector<int64_t> at) {
    fault_ = fault;
    at_ = std::move(at);
    calls_ = 0;
    cancel = false;
    const std::lock_guard lock(mutex_);
    released_ = false;
  }
  int64_t calls() const { return calls_; }
  // Before a call. A thread that hangs does so until release().
  Fault next() {
    const int64_t number = calls_++;
    return std::find(at_.begin(), at_.end(), number) != at_.end() ? fault_ : Fault::kNone;
  }
  void hang() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_; });
  }
  // Lets threads that hang go, and waits until they have.
  void release() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    while (alive > 0) std::this_thread::yield();
  }

  std::atomic<int> alive{0};  // members
  std::atomic<bool> cancel{false};

 private:
  Fault fault_ = Fault::kNone;
  std::vector<int64_t> at_;
  std::atomic<int64_t> calls_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
} faults;

template <class E>
class FaultyMember : host::HostMember<E> {
 public:
  using Base = host::HostMember<E>;
  using Element = E;

  FaultyMember(int /*device*/, const std::shared_ptr<host::SharedTracking>& tracking) : Base(nullptr, 1, tracking) {
    ++faults.alive;
  }
  ~FaultyMember() { --faults.alive; }

  void reserve(const ring::RingShape& shape) {
    fail();
    Base::reserve(shape);
  }
  void take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    fail();
    Base::take(place, columns);
  }
  void give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns) {
    fail();
    Base::give(place, columns);
  }
  void mark(ring::RingMark /*mark*/) { fail(); }
  void await(const FaultyMember& /*member*/, ring::RingMark /*mark*/) { fail(); }
  void send(const ring::UnionPlace& place, FaultyMember& to, int to_slot) {
    fail();
    Base::send(place, to, to_slot);
  }
  void p_step(const large::PStep<E>& step) {
    fail();
    Base::p_step(step);
  }
  void reset_counters() {
    fail();
    Base::reset_counters();
  }
  large::PStepCounters read_counters() {
    fail();
    return Base::read_counters();
  }
  void tell(std::vector<LargePhaseTime>& phases) const { Base::tell(phases); }
  void stop() {
    stopped_ = true;
    Base::stop();
  }

 private:
  void fail() {
    switch (faults.next()) {
      case Fault::kNone:
        return;
      case Fault::kThrow:
        throw std::runtime_error("this member is lost");
      case Fault::kHang:
        faults.hang();
        throw std::runtime_error("this member hung");
      case Fault::kLate:  // the call is done when nobody waits for it any more
        while (!stopped_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      case Fault::kCancel:
        faults.cancel = true;
        faults.hang();
        return;
    }
  }

  std::atomic<bool> stopped_{false};
};

using Engine = RingTestEngineOf<FaultyMember, SvdDriver>;

constexpr int kMembers = 4;
constexpr int64_t kOrder = 37, kWidth = 2;
// A member that nothing is wrong with may be late, too, on a busy machine. The others have the same bits.
constexpr std::chrono::milliseconds kDeadline{300};

class RingFaultsTest : public ::testing::Test {
 protected:
  RingFaultsTest() {
    LargeOptions options;
    options.method = Method::kJacobi;
    plan_ = large_plan_of({kOrder, kOrder, DType::kC128, Order::kRowMajor}, options);
    faults.begin(Fault::kNone, {});
    undisturbed_ = run_large(Engine(kMembers, kWidth), plan_, a_);
    calls_ = faults.calls();
  }
  ~RingFaultsTest() override { faults.release(); }

  // A run with faults at these calls ends well.
  void expect_same(Fault fault, const std::vector<int64_t>& at, bool checkpoints = true) {
    SCOPED_TRACE(testing::Message() << "call " << at[0] << " of " << calls_);
    faults.begin(fault, at);
    const Engine engine(kMembers, kWidth, fault == Fault::kThrow ? std::chrono::minutes(5) : kDeadline, checkpoints);
    const LargeResult result = run_large(engine, plan_, a_);
    faults.release();
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    EXPECT_TRUE(result.values_bytes == undisturbed_.values_bytes);
    EXPECT_TRUE(result.left_bytes == undisturbed_.left_bytes);
    EXPECT_TRUE(result.right_bytes == undisturbed_.right_bytes);
    EXPECT_EQ(result.outcome.rotations, undisturbed_.outcome.rotations);
    const ring::RingReport report = engine.report();
    if (faults.calls() > at[0]) {  // times decide how often counters are read
      EXPECT_GE(report.lost, 1);
      EXPECT_LT(report.members, kMembers);
    }
    if (!checkpoints) {
      EXPECT_EQ(report.checkpoints, 1);  // on the way home
      return;
    }
    size_t steps = 0;
    for (const auto& part : large::super_block_sweep((kOrder + kWidth - 1) / kWidth)) steps += part.size();
    EXPECT_LE(report.repeated, 2 * static_cast<int64_t>(steps) * report.lost);
  }
  std::vector<int64_t> moments(int count, uint64_t seed) const {
    Random random(seed);
    std::vector<int64_t> moments = {0, calls_ - 1};
    while (static_cast<int>(moments.size()) < count) moments.push_back(random.integer(0, calls_ - 1));
    return moments;
  }

  const Matrix a_ = generate(Kind::kNormal, DType::kC128, kOrder, kOrder, 5);
  LargePlan plan_;
  LargeResult undisturbed_;
  int64_t calls_ = 0;
};

TEST_F(RingFaultsTest, AMemberThatThrows) {
  ASSERT_EQ(undisturbed_.outcome.status, LargeStatus::kOk);
  ASSERT_GT(calls_, 1000);
  for (int64_t at = 0; at < calls_; at += at < 200 ? 5 : 97) expect_same(Fault::kThrow, {at});
}

TEST_F(RingFaultsTest, AMemberThatHangs) {
  for (const int64_t at : moments(20, 1)) expect_same(Fault::kHang, {at});
}

TEST_F(RingFaultsTest, AMemberThatIsLate) {
  for (const int64_t at : moments(10, 2)) expect_same(Fault::kLate, {at});
}

TEST_F(RingFaultsTest, OneMemberAfterTheOther) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<int64_t> at = moments(5, seed);
    at.erase(at.begin(), at.begin() + 2);
    expect_same(Fault::kThrow, at);
  }
}

TEST_F(RingFaultsTest, WithoutCheckpointsItBeginsAgain) {
  for (const int64_t at : moments(20, 4)) expect_same(Fault::kThrow, {at}, false);
}

TEST_F(RingFaultsTest, WithoutAMemberItFails) {
  std::vector<int64_t> all(static_cast<size_t>(calls_));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  faults.begin(Fault::kThrow, all);
  const LargeResult result = run_large(Engine(kMembers, kWidth), plan_, a_);
  EXPECT_EQ(result.outcome.status, LargeStatus::kFault);
  EXPECT_TRUE(result.outcome.device_lost);
  EXPECT_EQ(result.outcome.detail, "no member is left: this member is lost");
  EXPECT_EQ(faults.alive, 0);
}

// Without checkpoints all p-steps are computed again.
TEST_F(RingFaultsTest, WhereMembersCannotBeMadeFewerOrHomeCompute) {
  for (const int most : {2, 1, 0}) {
    for (const bool checkpoints : {true, false}) {
      for (const int64_t at : moments(12, static_cast<uint64_t>(most))) {
        SCOPED_TRACE(testing::Message() << "at most " << most << " members after call " << at << " of " << calls_);
        faults.begin(Fault::kThrow, {at});
        Engine engine(kMembers, kWidth, std::chrono::minutes(5), checkpoints);
        engine.set_most_new_members(static_cast<size_t>(most));
        const LargeResult result = run_large(engine, plan_, a_);
        ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
        EXPECT_TRUE(result.values_bytes == undisturbed_.values_bytes);
        EXPECT_TRUE(result.left_bytes == undisturbed_.left_bytes);
        EXPECT_TRUE(result.right_bytes == undisturbed_.right_bytes);
        EXPECT_EQ(result.outcome.rotations, undisturbed_.outcome.rotations);
        EXPECT_EQ(result.outcome.proper_rotations, undisturbed_.outcome.proper_rotations);
        const bool came = faults.calls() > at;  // times decide how often counters are read
        EXPECT_EQ(result.outcome.device_lost, came);
        EXPECT_EQ(result.outcome.members, came ? std::max(most, 1) : kMembers);
        const std::string reason = most == 2 ? "this member is lost" : "no room for a member";
        EXPECT_EQ(result.outcome.detail, came ? reason : "");
      }
    }
  }
}

TEST_F(RingFaultsTest, ACancelIsObeyedWhileAMemberHangs) {
  for (const int64_t at : moments(5, 3)) {
    SCOPED_TRACE(testing::Message() << "call " << at << " of " << calls_);
    faults.begin(Fault::kCancel, {at});
    LargeControl control;
    control.cancel = &faults.cancel;
    const LargeResult result = run_large(Engine(kMembers, kWidth, kDeadline), plan_, a_, {}, control);
    // Times decide how often counters are read, by less than 100 calls. So the last moments may never come.
    const bool came = faults.calls() > at;
    EXPECT_EQ(result.outcome.status, came ? LargeStatus::kCancelled : LargeStatus::kOk);
    EXPECT_TRUE(came || at > calls_ / 2);
    faults.release();
    EXPECT_EQ(faults.alive, 0);
  }
}

}  // namespace
}  // namespace svdserve::numerics
