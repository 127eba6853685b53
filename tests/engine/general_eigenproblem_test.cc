// One large general eigenproblem through the engine: every type, order and selection of results against the contract's
// bound. Input is not always as it should be. general_eigen_test.cc has the matrices that are hard for QR.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/progress_check.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/unit_columns.h"

namespace svdserve::numerics {
namespace {

using Wide = std::complex<long double>;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

LargePlan general_plan(DType dtype, int64_t n, Vectors vectors = Vectors::kFull, Order order = Order::kRowMajor) {
  LargeOptions options;
  options.kind = LargeKind::kGeneral;
  options.vectors = vectors;
  options.certificate = vectors != Vectors::kNone;
  return large_plan_of({n, n, dtype, order}, options);
}

Matrix random_matrix(DType dtype, int64_t n, Random& random) {
  Matrix a(dtype, n, n);
  for (auto& x : a.elements) x = {random.normal(), is_complex(dtype) ? random.normal() : 0.0};
  round_to_dtype(a);
  return a;
}

long double norm_of(const Matrix& a) {
  long double sum = 0;
  for (const auto& x : a.elements) sum += std::norm(Wide(x));
  return std::sqrt(sum);
}

// |A X - X L|_F / |A|_F in long double.
double residual(const Matrix& a, const Matrix& x, const std::vector<std::complex<double>>& values) {
  const int64_t n = a.rows;
  long double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      Wide difference = -Wide(values[static_cast<size_t>(j)]) * Wide(x.at(i, j));
      for (int64_t k = 0; k < n; ++k) difference += Wide(a.at(i, k)) * Wide(x.at(k, j));
      sum += std::norm(difference);
    }
  }
  return static_cast<double>(std::sqrt(sum) / norm_of(a));
}

std::vector<std::complex<double>> conjugates(std::vector<std::complex<double>> values) {
  for (auto& x : values) x = std::conj(x);
  return values;
}

// A value of a real matrix that has an imaginary part stands beside its conjugate, and so does its vector.
void expect_conjugate_pairs(const LargeResult& result) {
  const auto& values = result.complex_values;
  for (size_t j = 0; j < values.size(); ++j) {
    if (values[j].imag() == 0) continue;
    ASSERT_LT(j + 1, values.size());
    EXPECT_GT(values[j].imag(), 0);
    EXPECT_EQ(values[j + 1], std::conj(values[j]));
    for (int64_t i = 0; i < result.left.rows; ++i) {
      const auto column = static_cast<int64_t>(j);
      EXPECT_EQ(result.left.at(i, column + 1), std::conj(result.left.at(i, column)));
    }
    ++j;
  }
}

void expect_contract(const Matrix& a, const LargePlan& plan, const LargeResult& result) {
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  EXPECT_EQ(result.outcome.method, Method::kQr);
  EXPECT_FALSE(result.outcome.out_of_range);
  const double u = real_type(a.dtype).unit_roundoff, bound = 10 * static_cast<double>(a.rows) * u;
  Wide sum = 0;
  for (const auto& x : result.complex_values) sum += Wide(x);
  for (int64_t i = 0; i < a.rows; ++i) sum -= Wide(a.at(i, i));
  EXPECT_LE(static_cast<double>(std::abs(sum) / norm_of(a)), bound);
  if (!is_complex(a.dtype)) expect_conjugate_pairs(result);
  if (plan.left_columns == 0) return;
  double worst = residual(a, result.left, result.complex_values);
  expect_unit_columns(result.left, bound);
  if (plan.right_rows > 0) {
    const Matrix w = conjugate_transpose(result.right);
    worst = std::max(worst, residual(conjugate_transpose(a), w, conjugates(result.complex_values)));
    expect_unit_columns(w, bound);
  }
  EXPECT_LE(worst, bound);
  EXPECT_NEAR(result.outcome.residual, worst, bound / 10);
}

TEST(GeneralEigenproblemTest, EveryTypeOrderAndSelection) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {1, 2, 3, 10, 33, 90}) {
      Random random(static_cast<uint64_t>(n));
      const Matrix a = random_matrix(dtype, n, random);
      SCOPED_TRACE(std::string(name(dtype)) + ", n " + std::to_string(n));
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
        const Order order = n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
        const LargePlan plan = general_plan(dtype, n, vectors, order);
        expect_contract(a, plan, run_large(engine(), plan, a));
      }
    }
  }
}

TEST(GeneralEigenproblemTest, ALargerOne) {
  for (const DType dtype : {DType::kF64, DType::kC64}) {
    const int64_t n = kSanitized ? 100 : 300;
    Random random(8);
    const Matrix a = random_matrix(dtype, n, random);
    const LargePlan plan = general_plan(dtype, n, Vectors::kThin);
    expect_contract(a, plan, run_large(engine(), plan, a));
  }
}

TEST(GeneralEigenproblemTest, TheBitsAreTheSameTwice) {
  Random random(3);
  const Matrix a = random_matrix(DType::kF64, 120, random);
  const LargePlan plan = general_plan(DType::kF64, 120);
  const LargeResult first = run_large(engine(), plan, a), second = run_large(engine(), plan, a);
  EXPECT_EQ(first.values_bytes, second.values_bytes);
  EXPECT_EQ(first.left_bytes, second.left_bytes);
  EXPECT_EQ(first.right_bytes, second.right_bytes);
}

TEST(GeneralEigenproblemTest, ZeroAndIdentity) {
  for (const DType dtype : kDTypes) {
    Matrix a(dtype, 5, 5);
    const LargePlan plan = general_plan(dtype, 5);
    const LargeResult zero = run_large(engine(), plan, a);
    EXPECT_EQ(zero.outcome.status, LargeStatus::kOk);
    EXPECT_EQ(zero.outcome.rank, 0);
    EXPECT_EQ(zero.outcome.residual, 0);
    EXPECT_EQ(zero.complex_values, std::vector<std::complex<double>>(5));
    for (int64_t i = 0; i < 5; ++i) a.at(i, i) = 1;
    const LargeResult one = run_large(engine(), plan, a);
    EXPECT_EQ(one.complex_values, std::vector<std::complex<double>>(5, 1));
    EXPECT_EQ(one.outcome.rank, 5);
  }
}

// A power of two changes the exponents of the values, and nothing else.
TEST(GeneralEigenproblemTest, HugeAndTinyOnes) {
  Random random(4);
  const Matrix a = random_matrix(DType::kF64, 30, random);
  const LargePlan plan = general_plan(DType::kF64, 30);
  const LargeResult plain = run_large(engine(), plan, a);
  for (const int exponent : {900, -900}) {
    Matrix b = a;
    for (auto& x : b.elements) x = {std::ldexp(x.real(), exponent), 0};
    const LargeResult scaled = run_large(engine(), plan, b);
    EXPECT_EQ(scaled.left_bytes, plain.left_bytes);
    EXPECT_EQ(scaled.right_bytes, plain.right_bytes);
    for (size_t j = 0; j < 30; ++j) {
      EXPECT_EQ(scaled.complex_values[j].real(), std::ldexp(plain.complex_values[j].real(), exponent));
      EXPECT_EQ(scaled.complex_values[j].imag(), std::ldexp(plain.complex_values[j].imag(), exponent));
    }
  }
}

// D B D^-1, B random and the entries of D over `decades`.
Matrix balanced_badly(DType dtype, int64_t n, double decades, uint64_t seed) {
  Random random(seed);
  Matrix a = random_matrix(dtype, n, random);
  std::vector<double> d(static_cast<size_t>(n));
  for (double& x : d) x = std::pow(10.0, decades * (random.uniform() - 0.5));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a.at(i, j) *= d[static_cast<size_t>(i)] / d[static_cast<size_t>(j)];
  }
  round_to_dtype(a);
  return a;
}

// Balancing hides components of some of these from the norm, and the residual misses the bound. Repeated without it, all
// keep it.
TEST(GeneralEigenproblemTest, BalancingNeverCostsTheResidual) {
  for (const DType dtype : {DType::kF64, DType::kC128, DType::kF32}) {
    const double decades = dtype == DType::kF32 ? 36 : 300;
    const uint64_t matrices = kSanitized ? 20 : 200;
    for (uint64_t seed = 1; seed <= matrices; ++seed) {
      SCOPED_TRACE(std::string(name(dtype)) + ", seed " + std::to_string(seed));
      const Matrix a = balanced_badly(dtype, 20, decades, seed);
      for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
        const LargePlan plan = general_plan(dtype, 20, vectors);
        expect_contract(a, plan, run_large(engine(), plan, a));
      }
    }
  }
}

// Nobody asked for a certificate: the results are the same.
TEST(GeneralEigenproblemTest, TheCertificateChangesNoResult) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Matrix a = balanced_badly(DType::kF64, 20, 300, seed);
    LargePlan plan = general_plan(DType::kF64, 20);
    const LargeResult with = run_large(engine(), plan, a);
    plan.options.certificate = false;
    const LargeResult without = run_large(engine(), plan, a);
    ASSERT_EQ(with.values_bytes, without.values_bytes) << seed;
    ASSERT_EQ(with.left_bytes, without.left_bytes) << seed;
    ASSERT_EQ(with.right_bytes, without.right_bytes) << seed;
  }
}

TEST(GeneralEigenproblemTest, AValueBeyondTheRangeIsInfiniteAndSaysSo) {
  for (const DType dtype : kDTypes) {
    Matrix a(dtype, 3, 3);
    std::fill(a.elements.begin(), a.elements.end(), real_type(dtype).largest);
    const LargeResult result = run_large(engine(), general_plan(dtype, 3), a);
    EXPECT_EQ(result.outcome.status, LargeStatus::kOk);
    EXPECT_TRUE(result.outcome.out_of_range);
    EXPECT_EQ(result.outcome.residual, std::numeric_limits<double>::infinity());
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(std::count_if(result.complex_values.begin(), result.complex_values.end(),
                            [&](const auto& x) { return x.real() == infinity; }),
              1);
  }
}

TEST(GeneralEigenproblemTest, TheEntryThatIsNotFiniteIsNamed) {
  for (const DType dtype : kDTypes) {
    for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
      Random random(2);
      Matrix a = random_matrix(dtype, 40, random);
      a.at(7, 31) = std::numeric_limits<double>::quiet_NaN();
      const LargeOutcome outcome = run_large(engine(), general_plan(dtype, 40, Vectors::kThin, order), a).outcome;
      EXPECT_EQ(outcome.status, LargeStatus::kNonFinite);
      EXPECT_EQ(outcome.detail, "entry (7, 31) is not finite");
      EXPECT_EQ(outcome.row, 7);
      EXPECT_EQ(outcome.col, 31);
    }
  }
}

TEST(GeneralEigenproblemTest, OptionsThatItDoesNotTake) {
  const auto field = [](LargeOptions options, int64_t cols = 9) {
    options.kind = LargeKind::kGeneral;
    return plan_large({9, cols, DType::kF64, Order::kRowMajor}, options).error.field;
  };
  EXPECT_EQ(field({}, 8), "cols");
  for (const Method method : {Method::kFactored, Method::kTridiagonal, Method::kBidiagonal}) {
    EXPECT_EQ(field({.method = method}), "method");
  }
  EXPECT_EQ(field({.tolerance = 1e-10}), "tolerance");
  EXPECT_EQ(field({.max_sweeps = 3}), "max_sweeps");
  EXPECT_EQ(field({.strategy = PivotStrategy::kRoundRobin}), "strategy");
  EXPECT_EQ(field({.variant = BlockVariant::kFullBlock}), "variant");
  EXPECT_EQ(field({.vectors = Vectors::kNone, .certificate = true}), "certificate");
  LargeOptions qr_of_svd;
  qr_of_svd.method = Method::kQr;
  EXPECT_EQ(plan_large({9, 9, DType::kF64, Order::kRowMajor}, qr_of_svd).error.field, "method");
  const LargePlan plan = general_plan(DType::kF32, 9);
  EXPECT_EQ(large_plan_of(plan.problem, plan.options), plan);
  EXPECT_EQ(plan.values_bytes(), 9u * 8);
  EXPECT_EQ(plan.left_bytes(), 81u * 8);
}

TEST(GeneralEigenproblemTest, ProgressRisesAndACancelIsObeyed) {
  Random random(4);
  const Matrix a = random_matrix(DType::kF64, 150, random);
  const LargePlan plan = general_plan(DType::kF64, 150);
  double last = 0;
  expect_progress_and_cancel(
      engine(), plan, a, 6, [](const LargeProgress& p) { return p.fraction > 0; }, &last);
  EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace svdserve::numerics
