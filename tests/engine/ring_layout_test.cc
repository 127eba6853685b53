// The order of a ring's sweep, and where its columns are meanwhile, by members that check it and compute nothing.
#include "engine/backends/ring/ring_layout.h"

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/ring/ring_backend.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/recording_member.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

using large::BlockPair;
using large::PivotStep;
using large::PivotSweep;

PivotSweep whole(const std::vector<PivotSweep>& parts) {
  PivotSweep sweep;
  for (const PivotSweep& part : parts) sweep.insert(sweep.end(), part.begin(), part.end());
  return sweep;
}

TEST(SuperBlockSweep, HasEachPairOnceInDisjointSteps) {
  for (int blocks = 2; blocks <= 150; ++blocks) {
    SCOPED_TRACE(testing::Message() << blocks << " blocks");
    std::set<std::pair<int, int>> visited;
    for (const PivotStep& step : whole(large::super_block_sweep(blocks))) {
      std::set<int> taken;
      ASSERT_FALSE(step.empty());
      for (const auto [p, q] : step) {
        ASSERT_TRUE(0 <= p && p < q && q < blocks) << p << ", " << q;
        ASSERT_TRUE(taken.insert(p).second && taken.insert(q).second) << p << ", " << q << " meet another pair";
        ASSERT_TRUE(visited.insert({p, q}).second) << p << ", " << q << " come twice";
      }
    }
    ASSERT_EQ(visited.size(), static_cast<size_t>(blocks * (blocks - 1) / 2));
  }
}

TEST(SuperBlockSweep, IsTheRecursiveOneForPowersOfTwo) {
  const auto as_set = [](const PivotStep& step) {
    std::set<std::pair<int, int>> pairs;
    for (const auto [p, q] : step) pairs.insert({p, q});
    return pairs;
  };
  for (const int blocks : {16, 32, 64, 128}) {
    const PivotSweep cut = whole(large::super_block_sweep(blocks));
    const PivotSweep recursive = large::pivot_sweep(PivotStrategy::kRecursive, blocks);
    ASSERT_EQ(cut.size(), recursive.size());
    for (size_t i = 0; i < cut.size(); ++i) EXPECT_EQ(as_set(cut[i]), as_set(recursive[i])) << blocks << ", step " << i;
  }
}

// The p-steps that a ring was given, block by block, as the members should have them.
struct Expected {
  explicit Expected(int blocks) : partners(static_cast<size_t>(blocks)) {}
  void add(const PivotStep& step) {
    for (const auto [p, q] : step) {
      partners[static_cast<size_t>(p)].push_back(q);
      partners[static_cast<size_t>(q)].push_back(p);
    }
  }
  std::vector<std::vector<int>> partners;
};

// A ring of recording members, with a matrix of one row whose entries are the numbers of their columns.
class RecordedRing {
 public:
  using Backend = ring::RingBackend<NarrowHome<double>, RecordingMember>;

  RecordedRing(int members, int64_t n, int64_t width, uint64_t seed)
      : record(seed, n, width),
        home_(&watch_, width),
        ring(home_, maker(), {members, std::chrono::minutes(5)}, watch_),
        x_(ring.matrix(1, n)),
        f_(ring.exponents(n)) {
    for (int64_t j = 0; j < n; ++j) {
      x_.data[j] = static_cast<double>(j);
      f_[j] = static_cast<int32_t>(j);
    }
    record.partners.resize(static_cast<size_t>((n + width - 1) / width));
    step_.x = x_;
    step_.f = f_;
    step_.width = width;
  }

  void p_step(const PivotStep& pairs) {
    step_.pairs = pairs.data();
    step_.count = static_cast<int>(pairs.size());
    ring.p_step(step_);
  }
  // All columns are where they were.
  bool is_back() {
    ring.sync();
    for (int64_t j = 0; j < x_.cols; ++j) {
      if (x_.data[j] != static_cast<double>(j) || f_[j] != j) return false;
    }
    return true;
  }

  RingRecord record;

 private:
  Backend::Maker maker() {
    return [this](const std::vector<int>& devices) {
      ring::Members<RecordingMember> members;
      for (const int device : devices) members.push_back(std::make_shared<RecordingMember>(device, &record));
      return members;
    };
  }

  const LargeControl control_;
  const large::LargeWatch watch_{control_};
  NarrowHome<double> home_;

 public:
  Backend ring;

 private:
  large::LargeView<double> x_;
  int32_t* f_;
  large::PStep<double> step_;
};

class RingLayoutTest : public ::testing::TestWithParam<int> {};

// Each pair comes once a sweep in the sweep's order, with 2 D - 1 swaps. Nothing is computed or sent that is not there.
// Nothing is sent into a slot that is in use. The members' progress has many orders.
TEST_P(RingLayoutTest, MembersHaveWhatTheyComputeWith) {
  const int members = GetParam();
  Random random(static_cast<uint64_t>(members));
  for (const int64_t n : {2, 3, 5, 16, 17, 31, 32, 33, 50, 64, 101}) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(testing::Message() << "n = " << n << ", seed " << seed);
      const int64_t width = 1 + static_cast<int64_t>(seed);
      const int blocks = static_cast<int>((n + width - 1) / width);
      if (blocks < 2) continue;
      RecordedRing recorded(members, n, width, seed);
      Expected expected(blocks);
      const PivotSweep sweep = whole(recorded.ring.pivot_sweep_in_parts(PivotStrategy::kAuto, blocks));
      for (int s = 0; s < 3; ++s) {
        recorded.ring.reset_counters();
        for (const PivotStep& step : sweep) {
          recorded.p_step(step);
          expected.add(step);
          if (random.integer(0, 3) == 0) (void)recorded.ring.read_counters();
        }
        EXPECT_EQ(recorded.ring.read_counters().pairs, blocks * (blocks - 1) / 2);
      }
      EXPECT_TRUE(recorded.is_back());
      EXPECT_EQ(recorded.record.errors, std::vector<std::string>());
      EXPECT_EQ(recorded.record.partners, expected.partners);
      EXPECT_EQ(recorded.ring.report().checkpoints, 3);
      // The first sweep begins where it is put. Few blocks leave super-steps out.
      if (blocks >= 16) {
        EXPECT_EQ(recorded.ring.report().swaps, members == 1 ? 0 : 3 * (2 * members - 1) - 1);
      }
    }
  }
}

// Any p-steps at all, as packed sweeps might have them.
TEST_P(RingLayoutTest, TakesPairsInAnyOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr int kBlocks = 21;
    Random random(seed);
    RecordedRing recorded(GetParam(), 2 * kBlocks - 1, 2, seed);
    Expected expected(kBlocks);
    recorded.ring.reset_counters();
    for (int i = 0; i < 30; ++i) {
      std::vector<int> order(kBlocks);
      for (int b = 0; b < kBlocks; ++b) order[static_cast<size_t>(b)] = b;
      for (size_t b = order.size(); b-- > 1;) {
        std::swap(order[b], order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(b)))]);
      }
      PivotStep step;
      for (int64_t k = random.integer(1, kBlocks / 2); k-- > 0;) {
        const int a = order[static_cast<size_t>(2 * k)], b = order[static_cast<size_t>(2 * k + 1)];
        step.push_back({std::min(a, b), std::max(a, b)});
      }
      recorded.p_step(step);
      expected.add(step);
    }
    EXPECT_TRUE(recorded.is_back());
    EXPECT_EQ(recorded.record.errors, std::vector<std::string>());
    EXPECT_EQ(recorded.record.partners, expected.partners);
  }
}

INSTANTIATE_TEST_SUITE_P(, RingLayoutTest, ::testing::Values(1, 2, 4, 8),
                         [](const auto& param) { return std::to_string(param.param) + "_members"; });

// The checks of the fake find what they are there for.
TEST(RecordingMember, FindsMistakes) {
  RingRecord record(1, 4, 2);
  record.partners.resize(2);
  RecordingMember one(0, &record), other(1, &record);
  const ring::RingShape shape{1, 0, 4, 2, 2, 0};
  const ring::UnionPlace to{0, 0, 2, 0, 1};
  one.reserve(shape);
  other.reserve(shape);
  std::vector<double> x = {0, 1};
  std::vector<int32_t> f(2);
  one.take(to, {x.data(), f.data(), nullptr, 2});
  EXPECT_TRUE(record.errors.empty());
  one.take(to, {x.data(), f.data(), nullptr, 2});
  EXPECT_EQ(record.errors.size(), 1u);  // into a slot that is in use
  one.send(to, other, 2);
  one.send(to, other, 2);
  (void)one.read_counters();
  EXPECT_GE(record.errors.size(), 3u);  // sends what is not there, into a slot that is in use
  const size_t before = record.errors.size();
  const int64_t places[] = {0, 2};
  const BlockPair pair{0, 1};
  large::PStep<double> step;
  step.pairs = &pair;
  step.count = 1;
  step.places = places;
  one.p_step(step);
  (void)one.read_counters();
  EXPECT_EQ(record.errors.size(), before + 4);  // computes without its columns
}

}  // namespace
}  // namespace svdserve::numerics
