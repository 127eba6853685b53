// Matrices that lie in the host's memory, of which a device has some panels at a time. Results are accurate, with the
// same bits for any room, and from states.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/backends/streamed/streamed_backend.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/back_end_engine.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_cases.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/ring_engine.h"

namespace svdserve::numerics {
namespace {

constexpr int64_t kWidth = 3;
constexpr int kPlenty = 1000;  // panels

// A device that counts its matrices, and forgets what it gives back.
template <class E>
struct Device : NarrowHome<E> {
  using Base = NarrowHome<E>;
  using View = large::LargeView<E>;
  using Base::release;

  explicit Device(const large::LargeWatch* watch) : Base(watch, kWidth) {}
  View matrix(int64_t rows, int64_t cols) {
    const View view = Base::matrix(rows, cols);
    live += sizes[view.data] = view.ld * view.cols;
    peak = std::max(peak, live);
    return view;
  }
  void release(View view) {
    const int64_t size = sizes.at(view.data);
    std::fill_n(view.data, size, E(std::numeric_limits<double>::quiet_NaN()));
    live -= size;
    Base::release(view);
  }

  large::LoadReport load(const void* matrix, const Problem& problem, bool adjoint, View a) {
    brought += a.rows * a.cols;
    return Base::load(matrix, problem, adjoint, a);
  }
  void store(View a, bool adjoint, void* matrix, const Problem& problem) {
    taken += a.rows * a.cols;
    Base::store(a, adjoint, matrix, problem);
  }

  std::map<const E*, int64_t> sizes;
  int64_t live = 0, peak = 0;      // elements
  int64_t brought = 0, taken = 0;  // to the device, and from it
};

// Groups of few lines, as a matrix of many columns has them.
template <class E>
struct Backend : streamed::StreamedBackend<Device<E>> {
  using streamed::StreamedBackend<Device<E>>::StreamedBackend;
  static constexpr int64_t kGroupOfLines = 90;
};

class StreamedEngine final : public BackEndEngine<StreamedEngine> {
 public:
  // Room for so many panels of the largest matrix. members: of a ring that has the sweeps; 0: there is none.
  explicit StreamedEngine(int panels, int members = 0) : panels_(panels), members_(members) {}
  // Elements on the device at most, and of a panel.
  int64_t peak() const { return peak_; }
  int64_t panel() const { return panel_; }
  // Elements that came to the device and left it.
  int64_t brought() const { return brought_; }
  int64_t taken() const { return taken_; }

  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    Device<E> device(&watch);
    const int64_t m = std::max(plan.problem.rows, plan.problem.cols);
    const int64_t widest =
        std::max({plan.left_columns, plan.right_rows, std::min(plan.problem.rows, plan.problem.cols)});
    const int64_t ld = device.matrix(m, 1).ld;
    const uint64_t bytes = streamed::panel_bytes<E>(ld, widest, kWidth);
    panel_ = static_cast<int64_t>(bytes / sizeof(E));
    Backend<E> backend(device, static_cast<uint64_t>(panels_) * bytes, watch);
    LargeOutcome outcome = members_ > 0 ? on_ring(backend, watch, plan, operands, control)
                                        : large::block_jacobi(backend, plan, operands, control);
    peak_ = device.peak;
    brought_ = device.brought;
    taken_ = device.taken;
    return outcome;
  }

 private:
  template <class Home>
  LargeOutcome on_ring(Home& home, const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                       const LargeControl& control) const {
    using Own = typename Home::Element;
    ring::RingBackend<Home, PlainMember<Own>> backend(home, new_members<PlainMember, Own>, {members_}, watch);
    LargeOutcome outcome = large::block_jacobi(backend, plan, operands, control);
    backend.tell(outcome);
    return outcome;
  }

  const int panels_, members_;
  mutable int64_t peak_ = 0, panel_ = 0, brought_ = 0, taken_ = 0;
};

double roundoff_of(DType dtype) { return value_bytes(dtype) == 4 ? 0x1p-24 : 0x1p-53; }

// For what does not depend on a matrix's kind: JACOBI's shapes, and graded columns.
bool is_of_shapes(const LargeCase& c) {
  if (c.options.method == Method::kAuto || c.options.vectors == Vectors::kFull) return false;
  return c.kind == Kind::kNormal || c.kind == Kind::kColumnGraded;
}

std::vector<LargeCase> cases() {
  std::vector<LargeCase> cases;
  const LargeOptions jacobi = certified(Method::kJacobi, Vectors::kThin);
  for (const Kind kind : {Kind::kSteepRows, Kind::kSteepColumns, Kind::kColumnGraded, Kind::kLowRank, Kind::kZeroLines,
                          Kind::kClusters, Kind::kKahan}) {
    cases.push_back({"kind " + std::to_string(static_cast<int>(kind)), 56, 51, jacobi, kind});
  }
  for_svds([&](const LargeOptions& options, const std::string& title) {
    cases.push_back({title + ", square", 53, 53, options});
    cases.push_back({title + ", wider", 50, 72, options, Kind::kNormal, Order::kColumnMajor});
    cases.push_back({title + ", tall", 110, 48, options});
    if (options.method == Method::kAuto) return;
    cases.push_back({title + ", square by columns", 48, 48, options, Kind::kNormal, Order::kColumnMajor});
    cases.push_back({title + ", of low rank", 60, 52, options, Kind::kLowRank});
    cases.push_back({title + ", narrow", 40, 5, options});
    cases.push_back({title + ", one column", 7, 1, options});
  });
  LargeOptions cut_otherwise = jacobi;
  cut_otherwise.strategy = PivotStrategy::kRowCyclic;
  cases.push_back({"row-cyclic", 50, 50, cut_otherwise});
  return cases;
}

class LargeStreamedTest : public ::testing::TestWithParam<DType> {};
// Doubles alone, which floats become on their way in.
class LargeStreamedBitsTest : public LargeStreamedTest {};

// Against references in long double, and the bounds of large matrices.
TEST_P(LargeStreamedTest, IsAccurateWithRoomForFewPanels) {
  const StreamedEngine engine(streamed::kLeastPanels);
  const double u = roundoff_of(GetParam());
  for (const LargeCase& c : cases()) {
    SCOPED_TRACE(c.title);
    const Matrix a = c.operand(GetParam());
    const LargeResult result = run(engine, GetParam(), c);
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    const std::vector<long double> reference = reference_singular_values(a);
    const auto n = static_cast<double>(std::max(c.rows, c.cols));
    const bool graded = c.kind == Kind::kColumnGraded;
    for (size_t i = 0; i < result.values.size(); ++i) {
      const double scale = static_cast<double>(graded ? reference[i] : reference[0]);
      EXPECT_LE(std::abs(result.values[i] - static_cast<double>(reference[i])), 10 * n * u * scale) << i;
    }
    // Beside the panels there are the scalars of three QRs at most, and one temporary of the device's own.
    EXPECT_LE(engine.peak(), (streamed::kLeastPanels + 1) * engine.panel() + 3 * 64 * large::kSuperBlocks);
    if (c.options.vectors == Vectors::kNone) continue;
    EXPECT_LE(residual_of(a, result), 10 * n * u);
    EXPECT_LE(column_orthogonality(result.left), 10 * n * u);
    EXPECT_LE(row_orthogonality(result.right), 10 * n * u);
    if (!c.options.certificate) continue;
    EXPECT_NEAR(result.outcome.residual, residual_of(a, result), n * u);
    EXPECT_NEAR(result.outcome.left_orthogonality, column_orthogonality(result.left), n * u);
    EXPECT_NEAR(result.outcome.right_orthogonality, row_orthogonality(result.right), n * u);
  }
}

TEST_P(LargeStreamedBitsTest, HasTheSameBitsForAnyRoom) {
  const StreamedEngine least(streamed::kLeastPanels), more(streamed::kLeastPanels + 9), all(kPlenty);
  for (const LargeCase& c : cases()) {
    SCOPED_TRACE(c.title);
    const LargeResult want = run(least, GetParam(), c);
    expect_same_bits(want, run(more, GetParam(), c));
    expect_same_bits(want, run(all, GetParam(), c));
  }
}

TEST_P(LargeStreamedTest, DecomposesIndefiniteMatrices) {
  const StreamedEngine least(streamed::kLeastPanels), all(kPlenty);
  LargeOptions options;
  options.kind = LargeKind::kHyperbolicSvd;
  options.certificate = true;
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{90, 60}, {70, 70}, {33, 2}}) {
    const LargeCase c{"", rows, cols, options};
    const LargeResult result = run(least, GetParam(), c);
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    const double bound = 100 * static_cast<double>(rows) * roundoff_of(GetParam());
    EXPECT_LE(residual_of(c.operand(GetParam()), result), bound);
    EXPECT_LE(column_orthogonality(result.left), bound);
    EXPECT_LE(signature_error(result.right, c.signature()), bound);
    expect_same_bits(result, run(all, GetParam(), c));
  }
}

// From states of a device with little room, and those of one with more.
TEST_P(LargeStreamedBitsTest, GoesOnFromStates) {
  const StreamedEngine least(streamed::kLeastPanels), more(kPlenty);
  for (const LargeCase& c : cases()) {
    if (!is_of_shapes(c)) continue;
    SCOPED_TRACE(c.title);
    const LargeResult want = run(least, GetParam(), c);
    MemoryStates whole;
    expect_same_bits(want, run(least, GetParam(), c, &whole));
    for (const size_t count : {size_t{1}, size_t{2}, size_t{4}, whole.saved.size() - 1}) {
      if (count == 0 || count >= whole.saved.size()) continue;
      MemoryStates states;
      states.stop_after(count);
      (void)run(least, GetParam(), c, &states);
      states.never_stop();
      expect_same_bits(want, run(more, GetParam(), c, &states));
    }
  }
}

// A ring whose home has panels alone: the same bits with any number of members.
TEST_P(LargeStreamedBitsTest, IsTheHomeOfARing) {
  const StreamedEngine one(streamed::kLeastPanels, 1), two(kPlenty, 2), four(streamed::kLeastPanels, 4);
  for (const LargeCase& c : cases()) {
    if (!is_of_shapes(c)) continue;
    SCOPED_TRACE(c.title);
    const LargeResult want = run(one, GetParam(), c);
    ASSERT_EQ(want.outcome.status, LargeStatus::kOk) << want.outcome.detail;
    expect_same_bits(want, run(two, GetParam(), c));
    const LargeResult got = run(four, GetParam(), c);
    expect_same_bits(want, got);
    EXPECT_EQ(got.outcome.members, c.cols > 1 && large::can_be_cut(c.options.strategy) ? 4 : want.outcome.members);
    if (c.options.vectors == Vectors::kNone) continue;
    const double bound = 10 * static_cast<double>(std::max(c.rows, c.cols)) * roundoff_of(GetParam());
    EXPECT_LE(residual_of(c.operand(GetParam()), want), bound);
  }
}

TEST_P(LargeStreamedTest, NamesTheFirstEntryThatIsNotFinite) {
  const StreamedEngine engine(streamed::kLeastPanels);
  for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{90, 60}, {60, 90}}) {
      LargeCase c{"", rows, cols, {}};
      c.order = order;
      Matrix a = c.operand(GetParam());
      const std::pair<int64_t, int64_t> by_rows = {11, 58}, by_columns = {52, 3};
      for (const auto& [i, j] : {by_rows, by_columns, std::pair<int64_t, int64_t>{55, 57}}) {
        a.at(i, j) = std::numeric_limits<double>::quiet_NaN();
      }
      const LargeResult result = run_large(engine, c.plan(GetParam()), a);
      EXPECT_EQ(result.outcome.status, LargeStatus::kNonFinite);
      const auto& [row, col] = order == Order::kRowMajor ? by_rows : by_columns;
      EXPECT_EQ(result.outcome.row, row) << rows << " x " << cols;
      EXPECT_EQ(result.outcome.col, col) << rows << " x " << cols;
    }
  }
}

TEST_P(LargeStreamedTest, StopsWhenItIsCancelled) {
  const StreamedEngine engine(streamed::kLeastPanels);
  const LargeCase c{"", 90, 60, {}};
  std::atomic<bool> cancel = false;
  LargeControl control;
  control.cancel = &cancel;
  control.progress = [&](const LargeProgress& progress) { cancel = cancel || progress.sweep >= 2; };
  const LargeResult result = run_large(engine, c.plan(GetParam()), c.operand(GetParam()), {}, control);
  EXPECT_EQ(result.outcome.status, LargeStatus::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LargeStreamedTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });
INSTANTIATE_TEST_SUITE_P(DTypes, LargeStreamedBitsTest, ::testing::Values(DType::kF64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

// Transfers in whole matrices, of U and V with the certificate. With room for 1.75 matrices: the operand twice, results
// and QRs, products by groups, and no sweep moves anything. With room for one, each sweep has four ways each way.
TEST(StreamedTransfersTest, AreOfFewMatrices) {
  constexpr int64_t kOrder = 192;
  const LargeCase c{"", kOrder, kOrder, certified(Method::kJacobi, Vectors::kThin)};
  const auto matrices = [](int64_t elements) {
    return static_cast<double>(elements) / static_cast<double>(kOrder * kOrder);
  };
  const StreamedEngine roomy(28), narrow(16);
  ASSERT_EQ(run(roomy, DType::kF64, c).outcome.status, LargeStatus::kOk);
  EXPECT_LE(matrices(roomy.brought()), 32);
  EXPECT_LE(matrices(roomy.taken()), 24);
  const LargeResult result = run(narrow, DType::kF64, c);
  EXPECT_LE(matrices(narrow.brought()), 72 + 4.5 * result.outcome.sweeps);
  EXPECT_LE(matrices(narrow.taken()), 42 + 4.5 * result.outcome.sweeps);
}

// Every pair of blocks comes once a sweep, in parts that have two super-blocks each, and no block twice in a p-step.
TEST(StreamedSweepTest, HasEveryPairOnce) {
  for (const int blocks : {2, 3, 15, 16, 17, 31, 32, 33, 64, 100}) {
    std::set<std::pair<int, int>> met;
    const large::SuperBlocks cut{blocks};
    const auto super_block_of = [&](int block) {
      int i = 0;
      while (cut.first(i + 1) <= block) ++i;
      return i;
    };
    for (const large::PivotSweep& part : streamed::sweep_by_super_blocks(blocks)) {
      std::set<std::pair<int, int>> super_blocks;
      for (const large::PivotStep& step : part) {
        std::set<int> busy;
        for (const large::BlockPair pair : step) {
          EXPECT_LT(pair.p, pair.q);
          EXPECT_TRUE(met.emplace(pair.p, pair.q).second) << pair.p << ", " << pair.q;
          EXPECT_TRUE(busy.insert(pair.p).second && busy.insert(pair.q).second);
          super_blocks.emplace(super_block_of(pair.p), super_block_of(pair.q));
        }
      }
      EXPECT_EQ(super_blocks.size(), 1u);
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(blocks) * static_cast<size_t>(blocks - 1) / 2);
  }
}

// The rotations of the sweep that a ring has: each pair finds its blocks after the same pairs as there.
TEST(StreamedSweepTest, HasTheOrderOfTheUncutSweep) {
  for (const int blocks : {16, 33, 64}) {
    const auto histories = [&](const std::vector<large::PivotSweep>& parts) {
      std::map<std::pair<int, int>, std::pair<int, int>> before;  // the partners that p and q had last
      std::vector<int> last(static_cast<size_t>(blocks), -1);
      for (const large::PivotSweep& part : parts) {
        for (const large::PivotStep& step : part) {
          for (const large::BlockPair pair : step) {
            int& of_p = last[static_cast<size_t>(pair.p)];
            int& of_q = last[static_cast<size_t>(pair.q)];
            before[{pair.p, pair.q}] = {of_p, of_q};
            of_p = pair.q;
            of_q = pair.p;
          }
        }
      }
      return before;
    };
    EXPECT_EQ(histories(streamed::sweep_by_super_blocks(blocks)), histories(large::super_block_sweep(blocks)));
  }
}

}  // namespace
}  // namespace svdserve::numerics
