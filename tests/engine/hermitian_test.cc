// Large Hermitian eigenproblems by FACTORED: relative accuracy against references of 150 digits, the contract's bounds,
// and input that is not as it should be.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/hermitian.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/progress_check.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

using Complex128 = std::complex<double>;
using Signs = std::vector<int8_t>;

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

LargeOptions options_of(LargeKind kind) {
  LargeOptions options;
  options.kind = kind;
  options.method = Method::kFactored;
  options.certificate = true;
  return options;
}

// --- references of 150 digits: tests/support/hermitian_references.py ------------------------------------

struct Reference {
  Matrix matrix;
  Signs signs;  // of a factor
  std::vector<long double> eigenvalues;
};

Reference read(const std::string& name) {
  std::ifstream file(std::string(TEST_DATA) + "/hermitian/" + name + ".txt");
  Reference found;
  std::string kind, number;
  int64_t rows = 0, cols = 0;
  file >> kind >> rows >> cols;
  found.matrix = Matrix(kind == "complex" ? DType::kC128 : DType::kF64, rows, cols);
  if (rows != cols) {
    for (int64_t j = 0; j < cols; ++j) {
      file >> number;
      found.signs.push_back(static_cast<int8_t>(std::stoi(number)));
    }
  }
  const auto next = [&] {
    file >> number;
    return std::strtod(number.c_str(), nullptr);
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const double re = next();
      found.matrix.at(i, j) = {re, kind == "complex" ? next() : 0.0};
    }
  }
  for (int64_t i = 0; i < rows && file >> number; ++i) {
    found.eigenvalues.push_back(std::strtold(number.c_str(), nullptr));
  }
  return found;
}

double bound_of(int64_t n, double condition) {
  return 10 * static_cast<double>(std::max<int64_t>(n, 8)) * condition * 0x1p-53;
}

// The largest relative error of an eigenvalue; infinite where a zero is not exact.
double worst_error(const std::vector<double>& found, const std::vector<long double>& exact) {
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const long double error = std::abs(static_cast<long double>(found[i]) - exact[i]);
    if (exact[i] == 0) {
      worst = error == 0 ? worst : std::numeric_limits<double>::infinity();
    } else {
      worst = std::max(worst, static_cast<double>(error / std::abs(exact[i])));
    }
  }
  return worst;
}

class RelativeAccuracyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RelativeAccuracyTest, EveryEigenvalueHasItsDigits) {
  const Reference reference = read(GetParam());
  const Matrix& a = reference.matrix;
  ASSERT_EQ(static_cast<int64_t>(reference.eigenvalues.size()), a.rows);
  const LargeKind kind = reference.signs.empty() ? LargeKind::kHermitian : LargeKind::kHermitianFactor;
  const LargePlan plan = large_plan_of({a.rows, a.cols, a.dtype, Order::kRowMajor}, options_of(kind));
  const LargeResult result = run_large(engine(), plan, a, reference.signs);
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  const double error = worst_error(result.values, reference.eigenvalues);
  EXPECT_LE(error, 1e-12);
  // The bound is about G. The eigenvalues of these M are determined by its entries as well.
  if (kind == LargeKind::kHermitianFactor) {
    EXPECT_LE(error, bound_of(a.rows, result.outcome.factor_condition));
  }
  EXPECT_LE(result.outcome.residual, 10 * static_cast<double>(a.rows) * 0x1p-53);
  EXPECT_LE(column_orthogonality(result.left), 10 * static_cast<double>(a.rows) * 0x1p-53);
  EXPECT_EQ(result.outcome.rank, a.rows - std::count(reference.eigenvalues.begin(), reference.eigenvalues.end(), 0.0L));
  std::printf("%s: largest relative error %.1e", GetParam(), error);
  if (kind == LargeKind::kHermitian && a.dtype == DType::kF64) {
    std::printf(", LAPACK's dsyev %.1e", worst_error(syev(a), reference.eigenvalues));
  }
  std::printf("\n");
}

INSTANTIATE_TEST_SUITE_P(Table, RelativeAccuracyTest,
                         ::testing::Values("graded_sorted", "graded_shuffled", "graded_shuffled_complex",
                                           "scaled_shuffled", "scaled_shuffled_complex", "saddle_point", "both_signs",
                                           "random", "low_rank", "factor"),
                         [](const auto& info) { return std::string(info.param); });

// --- the contract ---------------------------------------------------------------------------------------

void expect_contract(const Matrix& a, const LargeResult& result) {
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  EXPECT_EQ(result.outcome.method, Method::kFactored);
  const double n = static_cast<double>(a.rows), u = real_type(a.dtype).unit_roundoff;
  EXPECT_TRUE(std::is_sorted(result.values.begin(), result.values.end()));
  const double residual = eigen_residual(a, result.values, result.left),
               orthogonality = column_orthogonality(result.left);
  EXPECT_LE(residual, 10 * std::max(n, 4.0) * u);
  EXPECT_LE(orthogonality, 10 * std::max(n, 4.0) * u);
  EXPECT_NEAR(result.outcome.residual, residual, std::max(n, 4.0) * u);
  EXPECT_NEAR(result.outcome.left_orthogonality, orthogonality, std::max(n, 4.0) * u);
  double trace = 0, sum = 0, norm = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    trace += a.at(i, i).real();
    sum += result.values[static_cast<size_t>(i)];
    norm = std::max(norm, std::abs(result.values[static_cast<size_t>(i)]));
  }
  EXPECT_LE(std::abs(trace - sum), 10 * n * std::max(n, 1.0) * u * norm);
}

TEST(HermitianTest, EveryTypeOrderAndTriangle) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const int64_t n : {1, 2, 3, 7, 33, 100}) {
      Random random(static_cast<uint64_t>(n));
      const Matrix a = random_hermitian(dtype, n, random);
      for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
        LargeOptions options = options_of(LargeKind::kHermitian);
        options.triangle = triangle;
        const Order order = triangle == Triangle::kLower ? Order::kRowMajor : Order::kColumnMajor;
        expect_contract(a,
                        run_large(engine(), large_plan_of({n, n, dtype, order}, options), triangle_alone(a, triangle)));
      }
    }
  }
}

TEST(HermitianTest, ValuesAloneAreThoseThatComeWithVectors) {
  Random random(5);
  const Matrix a = random_hermitian(DType::kC128, 60, random);
  const Problem problem{60, 60, DType::kC128, Order::kRowMajor};
  const LargeResult whole = run_large(engine(), large_plan_of(problem, options_of(LargeKind::kHermitian)), a);
  LargeOptions options = options_of(LargeKind::kHermitian);
  options.vectors = Vectors::kNone;
  options.certificate = false;
  const LargeResult alone = run_large(engine(), large_plan_of(problem, options), a);
  ASSERT_EQ(alone.outcome.status, LargeStatus::kOk);
  for (size_t i = 0; i < whole.values.size(); ++i) {
    EXPECT_NEAR(alone.values[i] / whole.values[i], 1, bound_of(60, whole.outcome.factor_condition));
  }
}

Matrix diagonal_of(const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  Matrix a(DType::kF64, n, n);
  for (int64_t i = 0; i < n; ++i) a.at(i, i) = values[static_cast<size_t>(i)];
  return a;
}

TEST(HermitianTest, SpecialMatrices) {
  const int64_t n = 20;
  const Matrix zero(DType::kF64, n, n);
  Matrix exchange(DType::kF64, n, n), ones(DType::kF64, n, n), hollow(DType::kF64, n, n), toeplitz(DType::kF64, n, n);
  for (int64_t i = 0; i < n; ++i) {
    exchange.at(i, n - 1 - i) = 1;
    toeplitz.at(i, i) = 2;
    if (i + 1 < n) toeplitz.at(i, i + 1) = toeplitz.at(i + 1, i) = -1;
    for (int64_t j = 0; j < n; ++j) {
      ones.at(i, j) = -1;
      hollow.at(i, j) = i == j ? 0 : 1;
    }
  }
  const Matrix tiny = diagonal_of({5e-324, -1e-310, 0, 1e-300}), huge = diagonal_of({1.5e308, -1.7e308, 1, 0});
  struct Case {
    const Matrix& a;
    int64_t rank;
  };
  for (const Case& c : {Case{zero, 0}, Case{exchange, n}, Case{ones, 1}, Case{hollow, n}, Case{toeplitz, n}}) {
    const LargePlan plan = large_plan_of({n, n, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitian));
    const LargeResult result = run_large(engine(), plan, c.a);
    expect_contract(c.a, result);
    EXPECT_EQ(result.outcome.rank, c.rank);
    EXPECT_EQ(std::count(result.values.begin(), result.values.end(), 0.0), n - c.rank);
  }
  const LargePlan small = large_plan_of({4, 4, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitian));
  EXPECT_EQ(run_large(engine(), small, tiny).values, (std::vector<double>{-1e-310, 0, 5e-324, 1e-300}));
  const auto of_huge = run_large(engine(), small, huge).values;
  EXPECT_NEAR(of_huge[0] / -1.7e308, 1, 1e-15);
  EXPECT_EQ(of_huge[1], 0);
  EXPECT_NEAR(of_huge[3] / 1.5e308, 1, 1e-15);
}

TEST(HermitianTest, DefiniteMatricesOfEitherSign) {
  for (const double sign : {1.0, -1.0}) {
    Random random(3);
    Matrix a = random_hermitian(DType::kF64, 50, random);
    for (int64_t i = 0; i < 50; ++i) a.at(i, i) += 40;
    for (auto& x : a.elements) x *= sign;
    const LargePlan plan = large_plan_of({50, 50, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitian));
    const LargeResult result = run_large(engine(), plan, a);
    expect_contract(a, result);
    EXPECT_GT(sign * result.values[0], 0);
    EXPECT_GT(sign * result.values[49], 0);
  }
}

// M of one factor, whose eigenvalues are told from the factor and from M.
TEST(HermitianTest, AFactorStandsForItsMatrix) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    Random random(11);
    const int64_t m = 40, n = 25;
    Matrix g(dtype, m, n);
    Signs signs;
    for (auto& x : g.elements) x = {random.normal(), is_complex(dtype) ? random.normal() : 0.0};
    round_to_dtype(g);
    for (int64_t j = 0; j < n; ++j) signs.push_back(random.coin() ? 1 : -1);
    const LargePlan plan = large_plan_of({m, n, dtype, Order::kRowMajor}, options_of(LargeKind::kHermitianFactor));
    const LargeResult result = run_large(engine(), plan, g, signs);
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    Matrix product(is_complex(dtype) ? DType::kC128 : DType::kF64, m, m);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        for (int64_t k = 0; k < n; ++k) {
          product.at(i, j) += static_cast<double>(signs[static_cast<size_t>(k)]) * g.at(i, k) * std::conj(g.at(j, k));
        }
      }
    }
    const double u = real_type(dtype).unit_roundoff;
    EXPECT_LE(eigen_residual(product, result.values, result.left), 10 * static_cast<double>(m) * u);
    EXPECT_LE(column_orthogonality(result.left), 10 * static_cast<double>(m) * u);
    EXPECT_EQ(std::count(result.values.begin(), result.values.end(), 0.0), m - n);
    EXPECT_EQ(std::count_if(result.values.begin(), result.values.end(), [](double x) { return x < 0; }),
              std::count(signs.begin(), signs.end(), int8_t{-1}));
  }
}

TEST(HermitianTest, CertificatesOfFactorsOfAnySize) {
  for (const double size : {1e-150, 1e-100, 1e100, 1e150}) {
    Random random(12);
    Matrix g(DType::kF64, 12, 9);
    for (auto& x : g.elements) x = size * random.normal();
    const LargePlan plan =
        large_plan_of({12, 9, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitianFactor));
    const LargeResult result = run_large(engine(), plan, g, {1, 1, -1, 1, -1, -1, 1, 1, 1});
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    EXPECT_GT(result.outcome.residual, 0);
    EXPECT_LE(result.outcome.residual, 10 * 12 * 0x1p-53);
    EXPECT_GT(std::abs(result.values[0]), 0.1 * size * size);
  }
}

TEST(HermitianTest, LargerOnesMeetTheContract) {
  const int64_t n = kSanitized ? 60 : is_long_run() ? 1000 : 250;
  Random random(8);
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    const Matrix a = random_hermitian(dtype, n, random);
    const LargePlan plan = large_plan_of({n, n, dtype, Order::kColumnMajor}, options_of(LargeKind::kHermitian));
    expect_contract(a, run_large(engine(), plan, a));
  }
}

// --- mistakes and interruptions -------------------------------------------------------------------------

std::string field(const Problem& problem, const LargeOptions& options) {
  return plan_large(problem, options).error.field;
}

TEST(HermitianTest, MistakesAreNamed) {
  const Problem square{9, 9, DType::kF64, Order::kRowMajor}, tall{9, 8, DType::kF64, Order::kRowMajor};
  const Problem wide{8, 9, DType::kF64, Order::kRowMajor};
  EXPECT_EQ(field(tall, {.kind = LargeKind::kHermitian}), "cols");
  EXPECT_EQ(field(wide, {.kind = LargeKind::kHermitian}), "cols");
  EXPECT_EQ(field(wide, {.kind = LargeKind::kHermitianFactor}), "signature");
  EXPECT_EQ(field(square, {.kind = LargeKind::kHermitian, .vectors = Vectors::kFull}), "vectors");
  EXPECT_EQ(field(square, {.kind = LargeKind::kHermitian, .method = Method::kFactored, .tolerance = 2}), "tolerance");
  EXPECT_EQ(field(square, {.kind = LargeKind::kHermitian, .vectors = Vectors::kNone, .certificate = true}),
            "certificate");
}

TEST(HermitianTest, MethodsAreThoseOfTheirKind) {
  const Problem square{9, 9, DType::kF64, Order::kRowMajor};
  const auto method = [&](LargeKind kind, Method asked) {
    return large_plan_of(square, {.kind = kind, .method = asked}).options.method;
  };
  EXPECT_EQ(method(LargeKind::kHermitian, Method::kAuto), Method::kTridiagonal);
  EXPECT_EQ(method(LargeKind::kHermitianFactor, Method::kAuto), Method::kFactored);
  EXPECT_EQ(method(LargeKind::kSvd, Method::kAuto), Method::kAuto);
  for (const Method asked : {Method::kTridiagonal, Method::kFactored, Method::kJacobi}) {
    EXPECT_EQ(method(LargeKind::kHermitian, asked), asked);
  }
  for (const Method asked : {Method::kFactored, Method::kJacobi}) {
    EXPECT_EQ(method(LargeKind::kHermitianFactor, asked), asked);
  }
  EXPECT_EQ(field(square, {.kind = LargeKind::kHermitianFactor, .method = Method::kTridiagonal}), "method");
  EXPECT_EQ(field(square, {.kind = LargeKind::kHermitian, .method = Method::kBisection}), "method");
  for (const LargeKind kind : {LargeKind::kSvd, LargeKind::kHyperbolicSvd}) {
    EXPECT_EQ(field(square, {.kind = kind, .method = Method::kFactored}), "method");
    EXPECT_EQ(field(square, {.kind = kind, .method = Method::kTridiagonal}), "method");
  }
}

// JACOBI is FACTORED but for the warm start of a definite matrix.
TEST(HermitianTest, JacobiNeverStartsWarm) {
  Random random(3);
  const Matrix a = with_eigenvalues(DType::kF64, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, random);
  for (const Method method : {Method::kFactored, Method::kJacobi}) {
    LargeOptions options = options_of(LargeKind::kHermitian);
    options.method = method;
    const LargeResult result = run_large(engine(), large_plan_of({10, 10, DType::kF64, Order::kRowMajor}, options), a);
    EXPECT_EQ(result.outcome.method, method);
    EXPECT_EQ(result.outcome.warm_started, method == Method::kFactored);
    EXPECT_NEAR(result.values[9], 10, 1e-13);
  }
}

TEST(HermitianTest, TheFirstEntryThatIsNotFiniteIsNamed) {
  Random random(2);
  for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
    Matrix a = random_hermitian(DType::kC128, 12, random);
    const int64_t row = triangle == Triangle::kLower ? 9 : 4, col = 13 - row;
    a.at(row, col) = {1, std::numeric_limits<double>::infinity()};
    LargeOptions options = options_of(LargeKind::kHermitian);
    options.triangle = triangle;
    const LargeResult result = run_large(engine(), large_plan_of({12, 12, DType::kC128, Order::kRowMajor}, options), a);
    EXPECT_EQ(result.outcome.status, LargeStatus::kNonFinite);
    EXPECT_EQ(result.outcome.row, row);
    EXPECT_EQ(result.outcome.col, col);
  }
}

// G of n columns, graded over 40 decades or not. G J G^H is definite where all signs are equal.
Matrix factor_of(DType dtype, int64_t m, int64_t n, bool graded, Random& random) {
  Matrix g(dtype, m, n);
  for (int64_t j = 0; j < n; ++j) {
    const double scale =
        graded ? std::pow(10.0, -(value_bytes(dtype) == 4 ? 10.0 : 40.0) * static_cast<double>(j) / n) : 1;
    for (int64_t i = 0; i < m; ++i) {
      const double re = random.normal(), im = is_complex(dtype) ? random.normal() : 0;
      g.at(i, j) = {re * scale, im * scale};
    }
  }
  round_to_dtype(g);
  return g;
}

// Each way through the SVD of G: definite or not, with a warm start, with a second QR, or with neither.
TEST(HermitianTest, ValuesAloneOnEveryWay) {
  Random random(17);
  for (const DType dtype : {DType::kF64, DType::kC64}) {
    for (const bool graded : {false, true}) {
      for (const bool definite : {false, true}) {
        for (const Method method : {Method::kFactored, Method::kJacobi}) {
          const int64_t m = 30, n = 24;
          const Matrix g = factor_of(dtype, m, n, graded, random);
          Signs signs(static_cast<size_t>(n), 1);
          for (size_t j = 0; j < signs.size() && !definite; j += 3) signs[j] = -1;
          LargeOptions options;
          options.kind = LargeKind::kHermitianFactor;
          options.method = method;
          const Problem problem{m, n, dtype, Order::kRowMajor};
          const LargeResult whole = run_large(engine(), large_plan_of(problem, options), g, signs);
          options.vectors = Vectors::kNone;
          const LargeResult alone = run_large(engine(), large_plan_of(problem, options), g, signs);
          ASSERT_EQ(whole.outcome.status, LargeStatus::kOk) << whole.outcome.detail;
          ASSERT_EQ(alone.outcome.status, LargeStatus::kOk) << alone.outcome.detail;
          const double u = real_type(dtype).unit_roundoff;
          for (size_t j = 0; j < whole.values.size(); ++j) {
            EXPECT_NEAR(alone.values[j], whole.values[j], 1000 * u * std::abs(whole.values[j])) << graded << definite;
          }
        }
      }
    }
  }
}

TEST(HermitianTest, AFactorWithoutFullRankIsRefused) {
  Matrix g(DType::kF64, 6, 2);
  for (int64_t i = 0; i < 6; ++i) g.at(i, 0) = g.at(i, 1) = 1;
  const LargePlan plan = large_plan_of({6, 2, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitianFactor));
  EXPECT_EQ(run_large(engine(), plan, g, {1, -1}).outcome.status, LargeStatus::kRankDeficient);
}

TEST(HermitianTest, ProgressRisesAndACancelIsObeyed) {
  Random random(4);
  const Matrix a = random_hermitian(DType::kF64, 120, random);
  const LargePlan plan = large_plan_of({120, 120, DType::kF64, Order::kRowMajor}, options_of(LargeKind::kHermitian));
  double last = 0;
  expect_progress_and_cancel(
      engine(), plan, a, 4, [](const LargeProgress& p) { return p.sweep >= 1; }, &last);
  EXPECT_LE(last, 1);
}

}  // namespace
}  // namespace svdserve::numerics
