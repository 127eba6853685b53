// Matrices that leave a device while they are not used: the same bits, and no more than two of them there at a time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

constexpr int64_t kWidth = 4, kGroup = 16;

// Groups of few lines.
template <class E>
struct GroupingHome : NarrowHome<E> {
  static constexpr int64_t kGroupOfLines = kGroup;
  explicit GroupingHome(const large::LargeWatch* watch) : NarrowHome<E>(watch, kWidth) {}
};

// A device beside another memory. Numbers of matrices in the device's are counted.
template <class E>
struct ParkingHome : GroupingHome<E> {
  using Base = GroupingHome<E>;
  using View = large::LargeView<E>;
  using Base::copy;
  using Base::release;
  using Base::write_out;

  explicit ParkingHome(const large::LargeWatch* watch) : Base(watch) {}

  View matrix(int64_t rows, int64_t cols) {
    const View view = Base::matrix(rows, cols);
    live += rows * cols;
    peak = std::max(peak, live);
    return view;
  }
  void release(View view) {
    if (parked.erase(view.data) > 0) return;
    live -= view.rows * view.cols;
    Base::release(view);
  }
  // The numbers that were parked mean nothing in their old place.
  View park(View a) {
    if (is_parked(a) || a.rows * a.cols == 0) return a;
    std::vector<E> entries(static_cast<size_t>(a.rows * a.cols));
    const View there{entries.data(), a.rows, a.cols, a.rows};
    Base::copy(a, there);
    for (int64_t j = 0; j < a.cols; ++j) {
      std::fill_n(a.data + j * a.ld, a.rows, E(std::numeric_limits<double>::quiet_NaN()));
    }
    release(a);
    parked[there.data] = std::move(entries);
    ++times;
    return there;
  }
  View unpark(View a) {
    if (!is_parked(a)) return a;
    const View here = matrix(a.rows, a.cols);
    Base::copy(a, here);
    release(a);
    return here;
  }
  bool is_parked(View a) const {
    const auto it = parked.upper_bound(a.data);
    return it != parked.begin() && a.data < std::prev(it)->first + std::prev(it)->second.size();
  }

  int64_t live = 0, peak = 0;
  int times = 0;
  std::map<const E*, std::vector<E>> parked;
};

struct Usage {
  int64_t peak = 0;
  int times = 0;
};

// members: of a ring that has the sweeps; 0: there is none.
template <template <class> class Home>
class Engine final : public RingTestEngineBase<Engine<Home>, SvdDriver> {
 public:
  explicit Engine(int members = 0)
      : RingTestEngineBase<Engine, SvdDriver>(members, kWidth, std::chrono::minutes(5), true) {}
  const Usage& usage() const { return usage_; }

  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    Home<E> home(&watch);
    LargeOutcome outcome = this->members() == 0 ? SvdDriver()(home, plan, operands, control)
                                                : on_ring(home, watch, plan, operands, control);
    if constexpr (large::kParks<Home<E>>) {
      usage_ = {home.peak, home.times};
      EXPECT_TRUE(home.parked.empty() || outcome.status != LargeStatus::kOk) << "a parked matrix is left";
    }
    return outcome;
  }

 private:
  template <class E>
  LargeOutcome on_ring(Home<E>& home, const large::LargeWatch& watch, const LargePlan& plan,
                       const LargeOperands& operands, const LargeControl& control) const {
    return this->template run_on<PlainMember<E>>(home, new_members<PlainMember, E>, watch, plan, operands, control);
  }

  mutable Usage usage_;
};

std::vector<LargeCase> cases() {
  std::vector<LargeCase> cases;
  for_svds([&](const LargeOptions& options, const std::string& title) {
    cases.push_back({title + ", square", 70, 70, options});
    cases.push_back({title + ", taller", 90, 60, options});
    cases.push_back({title + ", wider", 60, 90, options});
    cases.push_back({title + ", tall", 180, 60, options});
    cases.push_back({title + ", flat", 50, 100, options});
    cases.push_back({title + ", rows of all sizes", 70, 70, options, Kind::kSteepRows});
    cases.push_back({title + ", columns of all sizes", 70, 70, options, Kind::kSteepColumns});
    cases.push_back({title + ", of low rank", 70, 70, options, Kind::kLowRank});
    cases.push_back({title + ", zero lines", 90, 60, options, Kind::kZeroLines});
    cases.push_back({title + ", Kahan's", 70, 70, options, Kind::kKahan});
  });
  LargeOptions hyperbolic = certified(Method::kAuto);
  hyperbolic.kind = LargeKind::kHyperbolicSvd;
  cases.push_back({"hyperbolic", 90, 60, hyperbolic});
  return cases;
}

class LargeParkingTest : public ::testing::TestWithParam<DType> {};

// Two matrices at a time and a group of lines; an eigenbasis has two beside the Gram matrix on a host.
TEST_P(LargeParkingTest, TheSameBitsWithTwoMatrices) {
  const Engine<GroupingHome> plain;
  const Engine<ParkingHome> parking;
  for (const LargeCase& c : cases()) {
    SCOPED_TRACE(c.title);
    const LargeResult want = run(plain, GetParam(), c);
    expect_same_bits(want, run(parking, GetParam(), c));
    const int64_t m = std::max(c.rows, c.cols), n = std::min(c.rows, c.cols);
    const bool full = c.options.vectors == Vectors::kFull, vectors = c.options.vectors != Vectors::kNone;
    const bool may_start = c.options.method == Method::kAuto && !has_signature(c.options.kind);
    const int64_t tall = m * n, square = n * n, basis = m * (full ? m : n);
    int64_t most = may_start ? tall + std::max(basis + square, 4 * square) : std::max(tall + basis, 2 * square);
    most += kGroup * m;
    if (full) most = std::max(most, 2 * m * m);
    EXPECT_LE(parking.usage().peak, most) << "m n = " << m * n;
    if (!vectors) continue;
    EXPECT_GT(parking.usage().times, 0);
    const double u = value_bytes(GetParam()) == 4 ? 0x1p-24 : 0x1p-53, bound = 10 * static_cast<double>(m) * u;
    EXPECT_LE(residual_of(c.operand(GetParam()), want), bound);
    if (!has_signature(c.options.kind)) {
      EXPECT_LE(column_orthogonality(want.left), bound);
      EXPECT_LE(row_orthogonality(want.right), bound);
    }
  }
}

// With states of either, which a device with more memory, or less, goes on from.
TEST_P(LargeParkingTest, GoesOnFromStates) {
  const Engine<GroupingHome> plain;
  const Engine<ParkingHome> parking;
  for (const LargeCase& c : cases()) {
    SCOPED_TRACE(c.title);
    const LargeResult want = run(plain, GetParam(), c);
    MemoryStates whole;
    expect_same_bits(want, run(parking, GetParam(), c, &whole));
    for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, whole.saved.size() - 1}) {
      if (count == 0 || count >= whole.saved.size()) continue;
      SCOPED_TRACE(testing::Message() << "stopped after state " << count);
      MemoryStates states;
      states.stop_after(count);
      (void)run(parking, GetParam(), c, &states);
      states.never_stop();
      MemoryStates again;
      again.states = states.states;
      expect_same_bits(want, run(parking, GetParam(), c, &states));
      expect_same_bits(want, run(plain, GetParam(), c, &again));
    }
  }
}

// A ring whose home parks, with any number of members.
TEST_P(LargeParkingTest, IsTheHomeOfARing) {
  const Engine<GroupingHome> plain(2);
  const Engine<ParkingHome> one(1), four(4);
  for (const LargeCase& c : cases()) {
    if (c.kind != Kind::kNormal) continue;
    SCOPED_TRACE(c.title);
    const LargeResult want = run(plain, GetParam(), c);
    ASSERT_EQ(want.outcome.status, LargeStatus::kOk) << want.outcome.detail;
    for (const auto* const parking : {&one, &four}) {
      expect_same_bits(want, run(*parking, GetParam(), c));
      EXPECT_TRUE(parking->usage().times > 0 || c.options.vectors == Vectors::kNone);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, LargeParkingTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
