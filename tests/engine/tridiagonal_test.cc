// Large Hermitian eigenproblems by TRIDIAGONAL, and the matrices of a batch that it computes. They are held to the
// contract's bounds by LAPACK and known spectra, and input is not always as it should be.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/large_engine.h"
#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/hermitian.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/progress_check.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
constexpr Triangle kTriangles[] = {Triangle::kLower, Triangle::kUpper};

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

LargePlan tridiagonal_plan(DType dtype, int64_t n, Order order = Order::kRowMajor,
                           Triangle triangle = Triangle::kLower) {
  LargeOptions options;
  options.kind = LargeKind::kHermitian;
  options.triangle = triangle;
  options.certificate = true;
  return large_plan_of({n, n, dtype, order}, options);
}

LargeResult run_tridiagonal(const Matrix& a) { return run_large(engine(), tridiagonal_plan(a.dtype, a.rows), a); }

// 10 n u, the bound of everything.
double bound_of(DType dtype, int64_t n) { return 10 * static_cast<double>(n) * real_type(dtype).unit_roundoff; }

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

// `known`: ascending, of A to much less than the bound; empty: unknown.
void expect_values(DType dtype, const std::vector<double>& values, const std::vector<double>& known) {
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  if (known.empty()) return;
  ASSERT_EQ(values.size(), known.size());
  const double bound = bound_of(dtype, static_cast<int64_t>(known.size())) * largest_of(known);
  for (size_t i = 0; i < known.size(); ++i) EXPECT_NEAR(values[i], known[i], bound) << i;
}

void expect_contract(const Matrix& a, const LargeResult& result, const std::vector<double>& known) {
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
  EXPECT_EQ(result.outcome.method, Method::kTridiagonal);
  EXPECT_FALSE(result.outcome.out_of_range);
  expect_values(a.dtype, result.values, known);
  const double bound = bound_of(a.dtype, a.rows);
  const double residual = eigen_residual(a, result.values, result.left);
  const double orthogonality = column_orthogonality(result.left);
  EXPECT_LE(residual, bound);
  EXPECT_LE(orthogonality, bound);
  EXPECT_NEAR(result.outcome.residual, residual, bound / 10);
  EXPECT_NEAR(result.outcome.left_orthogonality, orthogonality, bound / 10);
}

std::string label(const Matrix& a) { return std::string(name(a.dtype)) + ", n " + std::to_string(a.rows); }

TEST(TridiagonalTest, EveryTypeOrderAndTriangle) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {1, 2, 3, 33, 65, 200}) {
      Random random(static_cast<uint64_t>(n));
      const Matrix a = random_hermitian(dtype, n, random);
      SCOPED_TRACE(label(a));
      const std::vector<double> known = syevd(a);
      for (const Triangle triangle : kTriangles) {
        for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
          if (n == 200 && (order == Order::kRowMajor) != (triangle == Triangle::kLower)) continue;
          const LargePlan plan = tridiagonal_plan(dtype, n, order, triangle);
          expect_contract(a, run_large(engine(), plan, triangle_alone(a, triangle)), known);
        }
      }
    }
  }
}

TEST(TridiagonalTest, LargerOnes) {
  for (const DType dtype : kDTypes) {
    const int64_t n = kSanitized ? 100 : value_bytes(dtype) == 4 ? 300 : 600;
    Random random(8);
    const Matrix a = random_hermitian(dtype, n, random);
    SCOPED_TRACE(label(a));
    expect_contract(a, run_tridiagonal(a), syevd(a));
  }
}

// Eigenvalues that are hard to keep apart, or to keep; each hidden by a random unitary matrix.
TEST(TridiagonalTest, SpectraOfEveryKind) {
  const size_t n = 96;
  const auto spectrum = [&](auto value) {
    std::vector<double> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = value(static_cast<double>(i) / static_cast<double>(n - 1), i);
    return values;
  };
  const std::vector<std::vector<double>> spectra = {
      spectrum([](double, size_t i) { return i % 2 == 0 ? 1.0 : -1.0; }),
      spectrum([](double x, size_t i) { return std::pow(10, -12 * x) * (i % 3 == 0 ? -1 : 1); }),
      spectrum([](double, size_t i) { return i < 48 ? 1 + 1e-13 * static_cast<double>(i) : -1e-3; }),
      spectrum([](double x, size_t i) { return i % 2 == 0 ? 0.0 : 1 + x; }),
      spectrum([](double, size_t i) { return i == 7 ? -3.0 : 0.0; }),
      spectrum([](double x, size_t) { return 1 + x; }),
  };
  for (const DType dtype : kDTypes) {
    for (const std::vector<double>& values : spectra) {
      Random random(17);
      const Matrix a = with_eigenvalues(dtype, values, random);
      SCOPED_TRACE(label(a) + ", first value " + std::to_string(values.front()));
      expect_contract(a, run_tridiagonal(a), syevd(a));
    }
  }
}

// Matrices whose eigenvalues are known.
struct Known {
  const char* what;
  Matrix a;
  std::vector<double> values;
};

std::vector<Known> known_matrices() {
  const int64_t n = 41;
  std::vector<Known> all;
  const auto add = [&](const char* what, auto entry, auto value) {
    Known known{what, Matrix(DType::kF64, n, n), {}};
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) known.a.at(i, j) = entry(i, j);
      known.values.push_back(value(j));
    }
    std::sort(known.values.begin(), known.values.end());
    all.push_back(std::move(known));
  };
  const auto is_near = [](int64_t i, int64_t j) { return i - j == 1 || j - i == 1; };
  add(
      "zero", [](int64_t, int64_t) { return 0.0; }, [](int64_t) { return 0.0; });
  add(
      "identity", [](int64_t i, int64_t j) { return i == j ? 1.0 : 0.0; }, [](int64_t) { return 1.0; });
  add(
      "exchange", [=](int64_t i, int64_t j) { return i + j == n - 1 ? 1.0 : 0.0; },
      [=](int64_t j) { return j < n / 2 ? -1.0 : 1.0; });
  add(
      "ones", [](int64_t, int64_t) { return -1.0; }, [=](int64_t j) { return j == 0 ? double(-n) : 0.0; });
  add(
      "second differences", [=](int64_t i, int64_t j) { return i == j          ? 2.0
                                                               : is_near(i, j) ? -1.0
                                                                               : 0.0; },
      [=](int64_t j) { return 2 - 2 * std::cos(M_PI * static_cast<double>(j + 1) / static_cast<double>(n + 1)); });
  add(
      "Clement",
      [=](int64_t i, int64_t j) {
        const auto least = static_cast<double>(std::min(i, j) + 1);
        return is_near(i, j) ? std::sqrt(least * (static_cast<double>(n) - least)) : 0.0;
      },
      [=](int64_t j) { return static_cast<double>(2 * j - (n - 1)); });
  add(
      "diagonal", [](int64_t i, int64_t j) { return i == j ? static_cast<double>(i % 5) - 2 : 0.0; },
      [](int64_t j) { return static_cast<double>(j % 5) - 2; });
  return all;
}

TEST(TridiagonalTest, KnownEigenvalues) {
  for (const Known& known : known_matrices()) {
    SCOPED_TRACE(known.what);
    const LargeResult result = run_tridiagonal(known.a);
    expect_contract(known.a, result, known.values);
    EXPECT_EQ(result.outcome.rank, known.a.rows - std::count(result.values.begin(), result.values.end(), 0.0));
    EXPECT_EQ(result.outcome.rank == 0, largest_of(known.values) == 0);
  }
}

// A power of two changes nothing but the exponents of eigenvalues.
TEST(TridiagonalTest, AnyScale) {
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    Random random(21);
    const Matrix a = random_hermitian(dtype, 40, random);
    const LargeResult plain = run_tridiagonal(a);
    for (const int power : {-900, 900}) {
      Matrix scaled = a;
      for (auto& x : scaled.elements) x = {std::ldexp(x.real(), power), std::ldexp(x.imag(), power)};
      const LargeResult result = run_tridiagonal(scaled);
      EXPECT_EQ(result.left_bytes, plain.left_bytes);
      EXPECT_EQ(result.outcome.residual, plain.outcome.residual);
      for (size_t i = 0; i < plain.values.size(); ++i) {
        EXPECT_EQ(result.values[i], std::ldexp(plain.values[i], power));
      }
    }
  }
}

TEST(TridiagonalTest, TheEndsOfTheRange) {
  const auto diagonal = [](DType dtype, const std::vector<double>& values) {
    const auto n = static_cast<int64_t>(values.size());
    Matrix a(dtype, n, n);
    for (int64_t i = 0; i < n; ++i) a.at(i, i) = values[static_cast<size_t>(i)];
    return a;
  };
  using Values = std::vector<double>;
  EXPECT_EQ(run_tridiagonal(diagonal(DType::kF64, {5e-324, -1e-310, 0, 1e-300})).values,
            (Values{-1e-310, 0, 5e-324, 1e-300}));
  EXPECT_EQ(run_tridiagonal(diagonal(DType::kF64, {1.5e308, -1.7e308, 1, 0})).values,
            (Values{-1.7e308, 0, 1, 1.5e308}));
  Matrix ones(DType::kF32, 3, 3);
  for (auto& x : ones.elements) x = 0x1p127;
  const LargeResult beyond = run_tridiagonal(ones);
  EXPECT_EQ(beyond.outcome.status, LargeStatus::kOk);
  EXPECT_TRUE(beyond.outcome.out_of_range);
  EXPECT_EQ(beyond.values[2], std::numeric_limits<double>::infinity());
  EXPECT_EQ(beyond.outcome.residual, std::numeric_limits<double>::infinity());
}

TEST(TridiagonalTest, ValuesAloneAreThoseThatComeWithVectors) {
  Random random(5);
  const Matrix a = random_hermitian(DType::kC64, 60, random);
  LargeOptions options;
  options.kind = LargeKind::kHermitian;
  options.vectors = Vectors::kNone;
  const LargeResult alone = run_large(engine(), large_plan_of({60, 60, DType::kC64, Order::kRowMajor}, options), a);
  EXPECT_EQ(alone.outcome.status, LargeStatus::kOk);
  EXPECT_EQ(alone.values_bytes, run_tridiagonal(a).values_bytes);
}

// --- mistakes and interruptions -------------------------------------------------------------------------

TEST(TridiagonalTest, SweepsHaveNoOptionsHere) {
  const auto field = [](LargeOptions options) {
    options.kind = LargeKind::kHermitian;
    return plan_large({9, 9, DType::kF64, Order::kRowMajor}, options).error.field;
  };
  for (const Method method : {Method::kAuto, Method::kTridiagonal}) {
    EXPECT_EQ(field({.method = method, .tolerance = 1e-10}), "tolerance");
    EXPECT_EQ(field({.method = method, .max_sweeps = 3}), "max_sweeps");
    EXPECT_EQ(field({.method = method, .strategy = PivotStrategy::kRoundRobin}), "strategy");
    EXPECT_EQ(field({.method = method, .variant = BlockVariant::kFullBlock}), "variant");
  }
  // A plan's own options make the same plan.
  const LargePlan plan = tridiagonal_plan(DType::kF64, 9);
  EXPECT_EQ(large_plan_of(plan.problem, plan.options), plan);
}

TEST(TridiagonalTest, TheEntryThatIsNotFiniteIsNamed) {
  for (const DType dtype : kDTypes) {
    for (const Triangle triangle : kTriangles) {
      for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
        Random random(2);
        Matrix a = triangle_alone(random_hermitian(dtype, 40, random), triangle);
        const int64_t row = triangle == Triangle::kLower ? 37 : 4, col = 41 - row;
        a.at(row, col) = std::numeric_limits<double>::infinity();
        const LargeOutcome outcome = run_large(engine(), tridiagonal_plan(dtype, 40, order, triangle), a).outcome;
        EXPECT_EQ(outcome.status, LargeStatus::kNonFinite);
        EXPECT_EQ(outcome.row, row);
        EXPECT_EQ(outcome.col, col);
        EXPECT_EQ(outcome.detail, "entry (" + std::to_string(row) + ", " + std::to_string(col) + ") is not finite");
      }
    }
  }
}

TEST(TridiagonalTest, ProgressRisesAndACancelIsObeyed) {
  Random random(4);
  const Matrix a = random_hermitian(DType::kF64, 120, random);
  const LargePlan plan = tridiagonal_plan(DType::kF64, 120);
  double last = 0;
  expect_progress_and_cancel(
      engine(), plan, a, 4, [](const LargeProgress& p) { return p.fraction > 0; }, &last);
  EXPECT_EQ(last, 1);
}

// A back end whose eigensolver gives up some times.
struct Unreliable : host::HostLargeBackend<double> {
  explicit Unreliable(int times) : HostLargeBackend(host::LargeThreads(nullptr, 1, nullptr)), failures(times) {}
  bool eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done) {
    if (failures-- <= 0) return HostLargeBackend::eigenbasis(g, v, precision, done);
    set_zero(g);
    return false;
  }
  int failures;
};

TEST(TridiagonalTest, AnEigensolverThatGivesUpIsAskedTwice) {
  const host::BlasThreads one_thread_a_call;
  const int64_t n = 30;
  Random random(6);
  const Matrix a = random_hermitian(DType::kF64, n, random);
  const LargePlan plan = tridiagonal_plan(DType::kF64, n, Order::kColumnMajor);
  std::vector<double> operand(a.elements.size()), vectors(a.elements.size());
  store(a, Order::kColumnMajor, operand.data());
  for (const int failures : {1, 2}) {
    Unreliable backend(failures);
    LargeResult result;
    result.values.resize(n);
    LargeOperands operands;
    operands.matrix = operand.data();
    operands.left = vectors.data();
    operands.values = result.values.data();
    result.outcome = large::decompose(backend, plan, operands, {});
    if (failures == 2) {
      EXPECT_EQ(result.outcome.status, LargeStatus::kFault);
      EXPECT_NE(result.outcome.detail.find("FACTORED"), std::string::npos);
      continue;
    }
    result.left = Matrix(DType::kF64, n, n);
    std::copy(vectors.begin(), vectors.end(), result.left.elements.begin());
    expect_contract(a, result, syevd(a));
  }
}

// --- batches --------------------------------------------------------------------------------------------

Options batch_options(Triangle triangle, Vectors vectors) {
  Options options;
  options.decomposition = Decomposition::kHermitian;
  options.triangle = triangle;
  options.vectors = vectors;
  options.certificate = vectors != Vectors::kNone;
  return options;
}

// Matrix `m` of a batch as a large one's result.
LargeResult result_of(const Plan& plan, const PlanesResult& batch, int64_t m) {
  const int64_t n = plan.problem.rows;
  const DType dtype = plan.problem.dtype;
  LargeResult result;
  result.outcome.status = LargeStatus::kOk;
  result.outcome.method = Method::kTridiagonal;
  result.values = batch.numbers(dtype, Plane::kValues, m * n, n);
  const auto certificate = batch.numbers(dtype, Plane::kCertificate, m * kCertificateNumbers, kCertificateNumbers);
  result.outcome.residual = certificate[0];
  result.outcome.left_orthogonality = certificate[1];
  EXPECT_EQ(certificate[1], certificate[2]);
  const int64_t components = is_complex(dtype) ? 2 : 1;
  const auto flat = batch.numbers(dtype, Plane::kLeft, m * n * n * components, n * n * components);
  result.left = Matrix(dtype, n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto at =
          static_cast<size_t>((plan.problem.order == Order::kRowMajor ? i * n + j : j * n + i) * components);
      result.left.at(i, j) = {flat[at], components == 2 ? flat[at + 1] : 0.0};
    }
  }
  return result;
}

TEST(TridiagonalBatchTest, MeetsTheContract) {
  const SvdEngine batches({.threads = 2});
  constexpr int64_t kCount = 3;
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {33, 64, 96, 128}) {
      const Triangle triangle = kTriangles[n % 2];
      const Order order = n % 64 == 0 ? Order::kColumnMajor : Order::kRowMajor;
      Random random(static_cast<uint64_t>(n));
      std::vector<Matrix> matrices, given;
      for (int64_t m = 0; m < kCount; ++m) {
        matrices.push_back(random_hermitian(dtype, n, random));
        given.push_back(triangle_alone(matrices.back(), triangle));
      }
      SCOPED_TRACE(label(matrices[0]));
      const auto operands = pack(given, order);
      const Plan plan = plan_of({n, n, dtype, order}, batch_options(triangle, Vectors::kThin));
      const PlanesResult batch = run_planes(batches, plan, operands.data(), kCount);
      for (int64_t m = 0; m < kCount; ++m) {
        const Matrix& a = matrices[static_cast<size_t>(m)];
        EXPECT_EQ(batch.statuses[static_cast<size_t>(m)], MatrixStatus::kOk);
        expect_contract(a, result_of(plan, batch, m), syevd(a));
      }
      EXPECT_EQ(batch, run_planes_in_segments(batches, plan, operands.data(), kCount, random));
      const Plan alone = plan_of({n, n, dtype, order}, batch_options(triangle, Vectors::kNone));
      EXPECT_EQ(run_planes(batches, alone, operands.data(), kCount).planes[index_of(Plane::kValues)],
                batch.planes[index_of(Plane::kValues)]);
    }
  }
}

TEST(TridiagonalBatchTest, PhasesAreFixed) {
  const int64_t n = 40;
  for (const DType dtype : kDTypes) {
    Random random(14);
    const Matrix a = random_hermitian(dtype, n, random);
    Options options = batch_options(Triangle::kLower, Vectors::kThin);
    options.fix_phases = true;
    const Plan plan = plan_of({n, n, dtype, Order::kRowMajor}, options);
    const LargeResult result = result_of(plan, run_planes(SvdEngine(), plan, pack({a}, Order::kRowMajor).data(), 1), 0);
    expect_contract(a, result, syevd(a));
    for (int64_t j = 0; j < n; ++j) {
      std::complex<double> largest = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (std::norm(result.left.at(i, j)) > std::norm(largest)) largest = result.left.at(i, j);
      }
      EXPECT_GT(largest.real(), 0);
      EXPECT_EQ(largest.imag(), 0);
    }
  }
}

TEST(TridiagonalBatchTest, AMatrixThatIsNotFiniteHasNanAndLeavesItsNeighboursAlone) {
  const int64_t n = 35;
  Random random(15);
  std::vector<Matrix> matrices;
  for (int m = 0; m < 3; ++m) matrices.push_back(random_hermitian(DType::kC64, n, random));
  const Plan plan = plan_of({n, n, DType::kC64, Order::kRowMajor}, batch_options(Triangle::kLower, Vectors::kThin));
  const PlanesResult whole = run_planes(SvdEngine(), plan, pack(matrices, Order::kRowMajor).data(), 3);
  matrices[1].at(20, 3) = std::numeric_limits<double>::quiet_NaN();
  const PlanesResult batch = run_planes(SvdEngine(), plan, pack(matrices, Order::kRowMajor).data(), 3);
  EXPECT_EQ(batch.statuses, (std::vector{MatrixStatus::kOk, MatrixStatus::kNonFinite, MatrixStatus::kOk}));
  for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kCertificate}) {
    const auto count = static_cast<int64_t>(plane_bytes(plan, plane, 1) / sizeof(float));
    for (const int64_t m : {0, 2}) {
      EXPECT_EQ(batch.numbers(DType::kC64, plane, m * count, count),
                whole.numbers(DType::kC64, plane, m * count, count));
    }
    for (const double x : batch.numbers(DType::kC64, plane, count, count)) EXPECT_TRUE(std::isnan(x));
  }
}

}  // namespace
}  // namespace svdserve::numerics
