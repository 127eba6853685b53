// Large matrices keep the contract: values, bases and residuals for every dtype, kind of matrix, class of shape,
// strategy and variant. An absent result is said clearly.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "gmock/gmock.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

struct Case {
  Problem problem;
  LargeOptions options;
  std::string what;
};

std::string describe(const Case& c) {
  const Problem& p = c.problem;
  return std::string(name(p.dtype)) + " " + std::to_string(p.rows) + "x" + std::to_string(p.cols) + " " + c.what + " " +
         name(c.options.method) + " " + name(c.options.strategy) + " " + name(c.options.variant);
}

double orthogonality_bound(const Problem& p) {
  return std::max(10.0, std::sqrt(static_cast<double>(std::max(p.rows, p.cols))));
}

// Descending, and each within value_bound() of the reference.
void expect_values(const Problem& p, const std::vector<double>& values, const std::vector<long double>& reference) {
  const RealType real = real_type(p.dtype);
  const long double allowed = static_cast<long double>(value_bound(p)) * real.unit_roundoff * reference[0] +
                              static_cast<long double>(real.smallest_denormal) / 2;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_FALSE(std::signbit(values[i])) << i;
    if (i > 0) {
      ASSERT_LE(values[i], values[i - 1]) << i;
    }
    if (std::isinf(values[i])) {
      ASSERT_GT(reference[i] + allowed, real.largest) << i;
    } else {
      ASSERT_LE(std::abs(values[i] - reference[i]), allowed)
          << i << ": in units of u s_max "
          << static_cast<double>((values[i] - reference[i]) / (real.unit_roundoff * reference[0]));
    }
  }
}

void expect_bases(const Problem& p, const Matrix& a, const LargeResult& result) {
  const double u = real_type(p.dtype).unit_roundoff;
  const double longest = static_cast<double>(std::max(p.rows, p.cols));
  EXPECT_LE(column_orthogonality(result.left), orthogonality_bound(p) * static_cast<double>(p.rows) * u);
  EXPECT_LE(row_orthogonality(result.right), orthogonality_bound(p) * static_cast<double>(p.cols) * u);
  // Values that are rounded to denormals have lost more than u of themselves.
  if (!result.outcome.out_of_range && result.values[0] * u > real_type(p.dtype).smallest_denormal) {
    EXPECT_LE(residual_of(a, result), 10 * longest * u);
  }
}

LargeResult expect_contract(const Case& c, const Matrix& a, const std::vector<long double>& reference) {
  SCOPED_TRACE(describe(c));
  const LargePlan plan = large_plan_of(c.problem, c.options);
  LargeResult result = run_large(engine(), plan, a);
  EXPECT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  expect_values(c.problem, result.values, reference);
  if (c.options.vectors != Vectors::kNone) expect_bases(c.problem, a, result);
  return result;
}

class LargeEngineTest : public ::testing::TestWithParam<DType> {};

TEST_P(LargeEngineTest, KeepsTheContractForEveryKindAndShape) {
  const int64_t large = scaled(40, 24);
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{1, 1}, {1, 7},         {7, 1},           {2, 2},
                                                           {3, 3}, {large, large}, {large + 21, 17}, {17, large + 21}};
  int count = 0;
  for (const auto& [rows, cols] : shapes) {
    for (const Kind kind : kinds(GetParam())) {
      const Matrix a = generate(kind, GetParam(), rows, cols, 1);
      const auto reference = reference_singular_values(a);
      for (const Method method : {Method::kAuto, Method::kJacobi}) {
        Case c;
        c.problem = {rows, cols, GetParam(), ++count % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor};
        c.what = name(kind);
        c.options.method = method;
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
          c.options.vectors = vectors;
          expect_contract(c, a, reference);
        }
      }
    }
  }
}

// So tall or wide that they are reduced where they lie: one block of rows and many, one chain of blocks and two.
TEST_P(LargeEngineTest, KeepsTheContractForTallAndWideOnes) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{32, 1},   {1, 32},   {500, 17},
                                                           {17, 500}, {9000, 5}, {5, 9000}};
  int count = 0;
  for (const auto& [rows, cols] : shapes) {
    for (const Kind kind : kinds(GetParam())) {
      const Matrix a = generate(kind, GetParam(), rows, cols, 1);
      const auto reference = reference_singular_values(a);
      Case c;
      c.problem = {rows, cols, GetParam(), ++count % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor};
      c.what = name(kind);
      c.options.method = count % 3 == 0 ? Method::kJacobi : Method::kAuto;
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        c.options.vectors = vectors;
        expect_contract(c, a, reference);
      }
    }
  }
}

// More columns than a panel of reflectors and than a task has, many blocks.
TEST_P(LargeEngineTest, KeepsTheContractForTallOnesOfManyColumns) {
  const int64_t cols = 150, rows = 17 * cols;
  for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
    if (!is_long_run() && is_complex(GetParam()) != (order == Order::kRowMajor)) continue;
    Matrix a = generate(Kind::kNormal, GetParam(), rows, cols, 5);
    for (int64_t i = 0; i < rows; ++i) {  // rows in no order of size
      for (int64_t j = 0; j < cols; ++j) a.at(i, j) *= std::ldexp(1.0, static_cast<int>(i * 7 % 31) - 15);
    }
    const LargeResult result = run_large(engine(), large_plan_of({rows, cols, GetParam(), order}, {}), a);
    const double u = real_type(GetParam()).unit_roundoff;
    EXPECT_EQ(result.outcome.status, LargeStatus::kOk);
    EXPECT_LE(residual_of(a, result), 10 * static_cast<double>(rows) * u);
    EXPECT_LE(row_orthogonality(result.right), 10 * static_cast<double>(cols) * u);
    EXPECT_LE(column_orthogonality(result.left), 10 * static_cast<double>(rows) * u);
    // The number of threads that the blocks are spread over changes roundings alone.
    const auto own = make_host_large_engine(1);
    const LargeResult alone = run_large(*own, large_plan_of({rows, cols, GetParam(), order}, {}), a);
    for (int64_t j = 0; j < cols; ++j) {
      EXPECT_NEAR(alone.values[j], result.values[j], 2 * value_bound({rows, cols, GetParam()}) * u * result.values[0]);
    }
  }
}

TEST_P(LargeEngineTest, KeepsTheContractAtLargerOrders) {
  const int64_t n = kSanitized ? 96 : !is_long_run() ? 160 : is_complex(GetParam()) ? 256 : 512;
  const Matrix a = generate(Kind::kNormal, GetParam(), n, n, 7);
  const auto reference = reference_singular_values(a);
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    Case c;
    c.problem = {n, n, GetParam(), Order::kRowMajor};
    c.what = "normal";
    c.options.method = method;
    const LargeResult result = expect_contract(c, a, reference);
    EXPECT_EQ(result.outcome.warm_started, method == Method::kAuto);
  }
}

TEST_P(LargeEngineTest, EveryStrategyAndVariant) {
  const int64_t n = scaled(90, 70);
  const Matrix a = generate(Kind::kNormal, GetParam(), n, n, 3);
  const auto reference = reference_singular_values(a);
  for (int strategy = 0; strategy <= static_cast<int>(PivotStrategy::kLast); ++strategy) {
    for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
      Case c;
      c.problem = {n, n, GetParam(), Order::kColumnMajor};
      c.what = "normal";
      c.options.method = Method::kJacobi;
      c.options.strategy = static_cast<PivotStrategy>(strategy);
      c.options.variant = variant;
      const LargeResult result = expect_contract(c, a, reference);
      EXPECT_LE(result.outcome.sweeps, 16) << describe(c);
      EXPECT_GE(result.outcome.rotations, result.outcome.proper_rotations);
      EXPECT_GT(result.outcome.proper_rotations, n * (n - 1) / 2);
    }
  }
}

// A = B D, D over 1e+-150 (f32: 1e+-15), and over 1e+-12: every value to full relative accuracy.
TEST_P(LargeEngineTest, GradedColumnsLoseNoDigit) {
  const int64_t n = scaled(80, 40);
  Random random(5);
  Matrix gentle = generate(Kind::kNormal, GetParam(), n, n, 11);
  const auto basis = orthonormal_columns(GetParam(), n, n, random);
  for (int64_t j = 0; j < n; ++j) {
    const double scale = std::pow(10.0, random.uniform(-12, 12));
    for (int64_t i = 0; i < n; ++i) gentle.at(i, j) = (basis.at(i, j) + 0.03 * gentle.at(i, j)) * scale;
  }
  round_to_dtype(gentle);
  for (const Matrix& a :
       {generate(Kind::kColumnGraded, GetParam(), n, n, 1), generate(Kind::kColumnGraded, GetParam(), n / 2, n, 2),
        generate(Kind::kColumnGraded, GetParam(), 20 * n, n / 2, 3),
        generate(Kind::kColumnGraded, GetParam(), n / 4, 20 * n, 4), gentle}) {
    const auto reference = reference_singular_values(a);
    const double kappa = unit_column_condition(a);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      Case c;
      c.problem = {a.rows, a.cols, GetParam(), Order::kRowMajor};
      c.what = "graded";
      c.options.method = method;
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        c.options.vectors = vectors;
        const LargeResult result = expect_contract(c, a, reference);
        EXPECT_LE(relative_error(GetParam(), result.values, reference),
                  relative_bound(c.problem) * kappa * real_type(GetParam()).unit_roundoff)
            << describe(c) << " kappa " << kappa;
      }
    }
  }
}

// Dense spectra of condition 1e6 and 1e12, clusters of equal values, and half of them zero.
TEST_P(LargeEngineTest, DenseSpectra) {
  const int64_t n = scaled(120, 60);
  const auto spectrum = [&](auto f) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(f(static_cast<double>(i) / static_cast<double>(n - 1)));
    return values;
  };
  const std::pair<const char*, std::vector<double>> spectra[] = {
      {"condition 1e6", spectrum([](double x) { return std::pow(10, -6 * x); })},
      {"condition 1e12", spectrum([](double x) { return std::pow(10, -12 * x); })},
      {"two clusters", spectrum([](double x) { return x < 0.5 ? 1.0 : 1e-8; })},
      {"narrow clusters", spectrum([](double x) { return std::floor(4 * x) + 1 + 1e-10 * x; })},
      {"all equal", spectrum([](double) { return 3.0; })},
      {"rank half", spectrum([](double x) { return x < 0.5 ? 1.0 + x : 0.0; })},
  };
  uint64_t seed = 0;
  for (const auto& [what, values] : spectra) {
    Random random(++seed);
    const Matrix a = with_singular_values(GetParam(), n, n, values, random);
    const auto reference = reference_singular_values(a);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      Case c;
      c.problem = {n, n, GetParam(), Order::kRowMajor};
      c.what = what;
      c.options.method = method;
      expect_contract(c, a, reference);
    }
  }
}

TEST_P(LargeEngineTest, CertificateIsWhatTheResultsAre) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{60, 40}, {40, 60}, {900, 30}, {30, 900}}) {
    const Matrix a = generate(Kind::kNormal, GetParam(), rows, cols, 2);
    for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
      LargeOptions options;
      options.vectors = vectors;
      options.certificate = true;
      const LargePlan plan = large_plan_of({rows, cols, GetParam(), Order::kRowMajor}, options);
      const LargeResult result = run_large(engine(), plan, a);
      if (vectors == Vectors::kFull && std::max(rows, cols) > 60) continue;
      const double u = 60 * real_type(GetParam()).unit_roundoff;
      // The certificate's own rounding is that of double.
      const double slack = 60 * 0x1p-53;
      EXPECT_NEAR(result.outcome.residual, residual_of(a, result), slack);
      EXPECT_NEAR(result.outcome.left_orthogonality, column_orthogonality(result.left), slack);
      EXPECT_NEAR(result.outcome.right_orthogonality, row_orthogonality(result.right), slack);
      EXPECT_LE(result.outcome.residual, 10 * u);
      EXPECT_GT(result.outcome.left_orthogonality, 0);
    }
  }
}

TEST_P(LargeEngineTest, SameBitsTwiceInBothOrdersWithAndWithoutCertificate) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{150, 100}, {9000, 20}, {20, 9000}}) {
    const Matrix a = generate(Kind::kNormal, GetParam(), m, n, 2);
    LargeOptions options;
    options.method = Method::kJacobi;
    const LargePlan by_columns = large_plan_of({m, n, GetParam(), Order::kColumnMajor}, options);
    const LargeResult first = run_large(engine(), by_columns, a);
    const LargeResult second = run_large(engine(), by_columns, a);
    EXPECT_EQ(first.left_bytes, second.left_bytes);
    EXPECT_EQ(first.values_bytes, second.values_bytes);
    EXPECT_EQ(first.right_bytes, second.right_bytes);
    options.certificate = true;
    const LargeResult rows = run_large(engine(), large_plan_of({m, n, GetParam(), Order::kRowMajor}, options), a);
    EXPECT_EQ(rows.left.elements, first.left.elements);
    EXPECT_EQ(rows.values, first.values);
    EXPECT_EQ(rows.right.elements, first.right.elements);
  }
}

TEST_P(LargeEngineTest, NonFiniteEntriesAreToldWithTheirPosition) {
  for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{50, 40}, {40, 50}, {1300, 40}, {40, 1300}}) {
      Matrix a = generate(Kind::kNormal, GetParam(), rows, cols, 2);
      a.at(31, 17) = poison_value(Poison::kQuietNan);
      a.at(12, 33) = poison_value(Poison::kMinusInfinity);
      const LargeResult result = run_large(engine(), large_plan_of({rows, cols, GetParam(), order}, {}), a);
      EXPECT_EQ(result.outcome.status, LargeStatus::kNonFinite);
      EXPECT_EQ(result.outcome.row, order == Order::kRowMajor ? 12 : 31);
      EXPECT_EQ(result.outcome.col, order == Order::kRowMajor ? 33 : 17);
    }
  }
}

TEST_P(LargeEngineTest, OverflowingValuesAreInfiniteAndSaidToBe) {
  const Matrix a = generate(Kind::kOverflowing, GetParam(), 40, 40, 1);
  const LargeResult result = run_large(engine(), large_plan_of({40, 40, GetParam(), Order::kRowMajor}, {}), a);
  EXPECT_EQ(result.outcome.status, LargeStatus::kOk);
  EXPECT_TRUE(result.outcome.out_of_range);
  EXPECT_TRUE(std::isinf(result.values[0]));
  EXPECT_FALSE(std::isinf(result.values[39]));
}

// Their triangles are nothing but rounding errors, and those of rounding errors, from the second or fourth row on.
TEST_P(LargeEngineTest, MatricesOfFewDifferentNumbersConverge) {
  const int64_t rows = scaled(150, 60), cols = scaled(130, 50);
  const Matrix block = generate(Kind::kNormal, GetParam(), 4, 4, 9);
  for (const char* what : {"ones", "outer product", "checkerboard", "constant blocks"}) {
    Matrix a(GetParam(), rows, cols);
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        a.at(i, j) = what[0] == 'o' && what[1] == 'n' ? 1.0
                     : what[0] == 'o'                 ? block.at(i % 4, 0) * static_cast<double>(i / 4 + 1)
                     : what[1] == 'h'                 ? ((i + j) % 2 == 0 ? 1.0 : -1.0)
                                                      : block.at(4 * i / rows, 4 * j / cols);
      }
    }
    if (value_bytes(GetParam()) == 4) {
      for (auto& x : a.elements) x = std::complex<double>(std::complex<float>(x));
    }
    const auto reference = reference_singular_values(a);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      Case c;
      c.problem = {rows, cols, GetParam(), Order::kColumnMajor};
      c.what = what;
      c.options.method = method;
      EXPECT_LE(expect_contract(c, a, reference).outcome.sweeps, 30) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, LargeEngineTest, ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return name(info.param); });

TEST(Factor, ProgressNeverFallsAndEndsAtOne) {
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    const Matrix a = generate(Kind::kNormal, DType::kF64, 200, 120, 2);
    LargeOptions options;
    options.method = method;
    std::vector<LargeProgress> told;
    LargeControl control;
    control.progress = [&](const LargeProgress& progress) { told.push_back(progress); };
    const LargeResult result =
        run_large(engine(), large_plan_of({200, 120, DType::kF64, Order::kRowMajor}, options), a, {}, control);
    ASSERT_GT(told.size(), 8u);
    EXPECT_EQ(told.front().stage, LargeStage::kPrepare);
    EXPECT_EQ(told.front().off_diagonal, 1);
    for (size_t i = 1; i < told.size(); ++i) {
      EXPECT_GE(told[i].fraction, told[i - 1].fraction);
      EXPECT_GE(told[i].rotations, told[i - 1].rotations);
      EXPECT_GE(told[i].sweep, told[i - 1].sweep);
      EXPECT_GE(told[i].stage, told[i - 1].stage);
      EXPECT_LE(told[i].off_diagonal, 1);
      EXPECT_LE(told[i].fraction, told[i].next_fraction);
      EXPECT_GE(told[i].next_seconds, 0);
    }
    EXPECT_EQ(told.back().stage, LargeStage::kFinish);
    EXPECT_EQ(told.back().fraction, 1);
    EXPECT_EQ(told.back().rotations, result.outcome.rotations);
    EXPECT_EQ(told.back().sweep, result.outcome.sweeps);
    EXPECT_LE(told.back().off_diagonal, 1e-14);
  }
}

TEST(Factor, ACancelIsObeyedAtEveryStage) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 200, 120, 2);
  const LargePlan plan = large_plan_of({200, 120, DType::kF64, Order::kRowMajor}, {});
  for (const LargeStage stage : {LargeStage::kPrepare, LargeStage::kPrecondition, LargeStage::kWarmStart,
                                 LargeStage::kSweep, LargeStage::kFinish}) {
    std::atomic<bool> cancel{false};
    bool after = false;
    LargeControl control;
    control.cancel = &cancel;
    control.progress = [&](const LargeProgress& progress) {
      after |= cancel;  // told something although it was cancelled
      if (progress.stage == stage && progress.fraction < 1) cancel = true;
    };
    EXPECT_EQ(run_large(engine(), plan, a, {}, control).outcome.status, LargeStatus::kCancelled) << name(stage);
    EXPECT_FALSE(after) << name(stage);
  }
}

TEST(Factor, ACancelIsObeyedWhileATallOneIsRead) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 9000, 20, 2);
  const LargePlan plan = large_plan_of({9000, 20, DType::kF64, Order::kRowMajor}, {});
  for (const double fraction : {0.0, 0.03, 0.05, 0.9, 0.92, 0.95}) {
    std::atomic<bool> cancel{false};
    LargeControl control;
    control.cancel = &cancel;
    control.progress = [&](const LargeProgress& progress) { cancel = cancel || progress.fraction >= fraction; };
    EXPECT_EQ(run_large(engine(), plan, a, {}, control).outcome.status, LargeStatus::kCancelled) << fraction;
  }
}

TEST(Factor, TheLimitOfSweepsIsToldWithTheBestSoFar) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 100, 100, 2);
  LargeOptions options;
  options.method = Method::kJacobi;
  options.max_sweeps = 1;
  const LargeResult result = run_large(engine(), large_plan_of({100, 100, DType::kF64, Order::kRowMajor}, options), a);
  EXPECT_EQ(result.outcome.status, LargeStatus::kNotConverged);
  EXPECT_EQ(result.outcome.sweeps, 1);
  EXPECT_LE(residual_of(a, result), 1e-12);  // W is orthogonal, U not yet
  options.max_sweeps = 0;
  const LargeResult whole = run_large(engine(), large_plan_of({100, 100, DType::kF64, Order::kRowMajor}, options), a);
  EXPECT_NEAR(result.values[0], whole.values[0], 0.3 * whole.values[0]);
}

TEST(Factor, ATolerantRunStopsEarlier) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 100, 100, 2);
  LargeOptions options;
  options.method = Method::kJacobi;
  options.tolerance = 1e-3;
  const auto loose = run_large(engine(), large_plan_of({100, 100, DType::kF64, Order::kRowMajor}, options), a);
  options.tolerance = 0;
  const auto tight = run_large(engine(), large_plan_of({100, 100, DType::kF64, Order::kRowMajor}, options), a);
  EXPECT_EQ(loose.outcome.status, LargeStatus::kOk);
  EXPECT_LT(loose.outcome.sweeps, tight.outcome.sweeps);
  EXPECT_LE(column_orthogonality(loose.left), 1);
  EXPECT_GE(column_orthogonality(loose.left) + row_orthogonality(loose.right), 1e-7);
}

TEST(Factor, OneThreadAndManyAgreeWithinTheContract) {
  const Matrix a = generate(Kind::kNormal, DType::kC128, 70, 130, 2);
  const auto reference = reference_singular_values(a);
  for (const int threads : {1, 2}) {
    const auto own = make_host_large_engine(threads);
    const LargeResult result = run_large(*own, large_plan_of({70, 130, DType::kC128, Order::kRowMajor}, {}), a);
    expect_values({70, 130, DType::kC128, Order::kRowMajor}, result.values, reference);
    expect_bases({70, 130, DType::kC128, Order::kRowMajor}, a, result);
  }
}

TEST(Factor, PhasesAreNamedAndCounted) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 200, 200, 2);
  LargeOptions options;
  options.method = Method::kJacobi;
  const auto result = run_large(engine(), large_plan_of({200, 200, DType::kF64, Order::kRowMajor}, options), a);
  std::vector<std::string> names;
  for (const LargePhaseTime& phase : result.outcome.phases) {
    names.push_back(phase.name);
    EXPECT_GE(phase.seconds, 0);
    if (phase.name == "postmultiply") {
      EXPECT_GT(phase.flops, 3 * 2 * 200.0 * 200 * 200);
    }
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"load", "qr", "gram", "inner", "postmultiply", "finish"}));
}

TEST(LargePlanTest, SaysWhatIsWrong) {
  const auto field = [](Problem problem, LargeOptions options) { return plan_large(problem, options).error.field; };
  const Problem square{10, 10, DType::kF64, Order::kRowMajor};
  EXPECT_EQ(field({0, 10, DType::kF64, Order::kRowMajor}, {}), "rows");
  EXPECT_EQ(field({10, kMaxLargeDimension + 1, DType::kF64, Order::kRowMajor}, {}), "cols");
  EXPECT_EQ(field(square, {.method = Method::kBidiagonal}), "method");
  EXPECT_EQ(field(square, {.method = Method::kBisection}), "method");
  EXPECT_EQ(field(square, {.tolerance = -1}), "tolerance");
  EXPECT_EQ(field(square, {.tolerance = 1.5}), "tolerance");
  EXPECT_EQ(field(square, {.tolerance = std::nan("")}), "tolerance");
  EXPECT_EQ(field(square, {.max_sweeps = -1}), "max_sweeps");
  EXPECT_EQ(field(square, {.max_sweeps = kLargestMaxSweeps + 1}), "max_sweeps");
  EXPECT_TRUE(plan_large(square, {.max_sweeps = kLargestMaxSweeps}).plan);
  EXPECT_EQ(field(square, {.vectors = Vectors::kNone, .certificate = true}), "certificate");
  for (const LargeKind kind :
       {LargeKind::kSvd, LargeKind::kHyperbolicSvd, LargeKind::kHermitianFactor, LargeKind::kGeneral}) {
    EXPECT_EQ(field(square, {.kind = kind, .triangle = Triangle::kUpper}), "triangle");
  }
  EXPECT_TRUE(plan_large(square, {.kind = LargeKind::kHermitian, .triangle = Triangle::kUpper}).plan);
  EXPECT_EQ(field({9, 10, DType::kF64, Order::kRowMajor}, {.kind = LargeKind::kHyperbolicSvd}), "signature");
  EXPECT_EQ(field(square, {.kind = LargeKind::kHyperbolicSvd, .vectors = Vectors::kFull}), "vectors");
  EXPECT_TRUE(plan_large(square, {}).plan);
}

TEST(LargePlanTest, KnowsItsBytes) {
  const LargePlan thin = large_plan_of({300, 200, DType::kC64, Order::kRowMajor}, {});
  EXPECT_EQ(thin.operand_bytes(), 300u * 200 * 8);
  EXPECT_EQ(thin.left_bytes(), 300u * 200 * 8);
  EXPECT_EQ(thin.values_bytes(), 200u * 4);
  EXPECT_EQ(thin.right_bytes(), 200u * 200 * 8);
  const LargePlan full = large_plan_of({300, 200, DType::kC64, Order::kRowMajor}, {.vectors = Vectors::kFull});
  EXPECT_EQ(full.left_bytes(), 300u * 300 * 8);
  const LargePlan none = large_plan_of({300, 200, DType::kC64, Order::kRowMajor}, {.vectors = Vectors::kNone});
  EXPECT_EQ(none.left_bytes() + none.right_bytes(), 0u);
  EXPECT_NE(thin.options.strategy, PivotStrategy::kAuto);
  EXPECT_NE(thin.options.variant, BlockVariant::kAuto);
  // Beyond 4 GiB nothing wraps.
  EXPECT_EQ(large_plan_of({90'000, 90'000, DType::kF64, Order::kRowMajor}, {}).operand_bytes(), 64'800'000'000u);
  EXPECT_GT(engine().memory(thin).host_bytes, thin.operand_bytes());
  // A GiB that is much taller than wide, and its basis, need little beside them.
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    const int64_t cols = (int64_t{1} << 10) / static_cast<int64_t>(element_bytes(dtype));
    for (const bool certificate : {false, true}) {
      const LargePlan tall = large_plan_of({1 << 20, cols, dtype, Order::kRowMajor}, {.certificate = certificate});
      EXPECT_EQ(tall.operand_bytes(), uint64_t{1} << 30);
      EXPECT_LE(engine().memory(tall).host_bytes, uint64_t{64} << 20) << name(dtype);
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
