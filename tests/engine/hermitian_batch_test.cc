// Batches of Hermitian eigenproblems keep the contract for every type and family, against a reference of 113 bits. One
// triangle alone is read. The bits belong to the matrix.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/hermitian_references.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/lapack_peer.h"

namespace svdserve::numerics {
namespace {

Options hermitian(Vectors vectors, Triangle triangle = Triangle::kLower, Method method = Method::kAuto) {
  return {.decomposition = Decomposition::kHermitian, .triangle = triangle, .method = method, .vectors = vectors};
}

// --- the contract ---------------------------------------------------------------------------------------

class HermitianBatchTest : public ::testing::TestWithParam<DType> {
 protected:
  // rounds: of every family.
  void test_size(int64_t n, bool with_reference, Method method = Method::kAuto, int64_t rounds = 1) {
    const DType dtype = GetParam();
    std::vector<Matrix> matrices;
    std::vector<const HermitianFamily*> of;
    for (int64_t round = 0; round < rounds; ++round) {
      for (const HermitianFamily& family : hermitian_families()) {
        matrices.push_back(family.make(dtype, n, random_));
        of.push_back(&family);
      }
    }
    const Order order = n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
    const Triangle triangle = n % 3 == 0 ? Triangle::kUpper : Triangle::kLower;
    const auto bytes = pack(matrices, order);
    const auto count = static_cast<int64_t>(matrices.size());
    const Plan plan = plan_of({n, n, dtype, order}, hermitian(Vectors::kThin, triangle, method));
    const PlanesResult result = run_planes(engine_, plan, bytes.data(), count);
    const Plan alone = plan_of({n, n, dtype, order}, hermitian(Vectors::kNone, triangle, method));
    const PlanesResult values = run_planes(engine_, alone, bytes.data(), count);
    const double bound = 10.0 * static_cast<double>(std::max<int64_t>(n, 4));
    for (int64_t i = 0; i < count; ++i) {
      const std::string where = std::string(name(dtype)) + " " + std::to_string(n) + " " + of[i]->name;
      EXPECT_EQ(result.statuses[i], MatrixStatus::kOk) << where;
      const auto lambda = result.numbers(dtype, Plane::kValues, i * n, n);
      EXPECT_TRUE(std::is_sorted(lambda.begin(), lambda.end())) << where;
      EXPECT_EQ(values.numbers(dtype, Plane::kValues, i * n, n), lambda) << where;
      const HermitianErrors errors = hermitian_errors(plan, matrices[i], result, i, lambda, with_reference);
      EXPECT_LE(errors.eigenvalue, bound) << where;
      EXPECT_LE(errors.residual, bound) << where;
      EXPECT_LE(errors.orthogonality, bound) << where;
      worst_.eigenvalue = std::max(worst_.eigenvalue, errors.eigenvalue / bound);
      worst_.residual = std::max(worst_.residual, errors.residual / bound);
      worst_.orthogonality = std::max(worst_.orthogonality, errors.orthogonality / bound);
    }
  }

  const SvdEngine engine_;
  Random random_{7};
  HermitianErrors worst_;  // relative to their bounds
};

TEST_P(HermitianBatchTest, KeepsTheContract) {
  for (int64_t n = 1; n <= 32; ++n) {
    const bool has_reference = is_long_run() || n <= (kSanitized ? 9 : 17) || n == 32;
    if (!is_left_out(n)) test_size(n, has_reference);
  }
  std::printf("%s: of the bounds: eigenvalues %.3f, residual %.3f, orthogonality %.3f\n", name(GetParam()),
              worst_.eigenvalue, worst_.residual, worst_.orthogonality);
}

// By both methods, TRIDIAGONAL and JACOBI.
TEST_P(HermitianBatchTest, SmallMatricesOfEveryKindKeepTheContract) {
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    worst_ = {};
    for (int64_t n = 1; n <= kLargestTridiagonal; ++n) test_size(n, true, method, scaled(1000, 4));
    std::printf("%s %s: of the bounds: eigenvalues %.3f, residual %.3f, orthogonality %.3f\n", name(GetParam()),
                name(method), worst_.eigenvalue, worst_.residual, worst_.orthogonality);
  }
}

TEST_P(HermitianBatchTest, KeepsTheContractBeyondTheLanes) {
  for (const int64_t n : {33, 47, 64, 100, 128, 129, 256, 512}) {
    if ((kSanitized && n != 33) || (n > 129 && !is_long_run())) continue;
    test_size(n, n <= 64 && (n == 33 || is_long_run()));
  }
  std::printf("%s: of the bounds: eigenvalues %.3f, residual %.3f, orthogonality %.3f\n", name(GetParam()),
              worst_.eigenvalue, worst_.residual, worst_.orthogonality);
}

// Eigenvalues against 150 digits, beside LAPACK's on the same data.
TEST_P(HermitianBatchTest, EigenvaluesAgainst150Digits) {
  const DType dtype = GetParam();
  std::map<int64_t, std::pair<double, double>> worst;  // of n: ours and LAPACK's, in units of u |M|_2
  for (const HermitianReference& reference : hermitian_references(TEST_DATA "/hermitian/batch.txt", dtype)) {
    const int64_t n = reference.matrix.rows;
    if (kSanitized && n > 32) continue;
    const Plan plan = plan_of({n, n, dtype, Order::kRowMajor}, hermitian(Vectors::kThin));
    const PlanesResult result = run_planes(engine_, plan, pack({reference.matrix}, Order::kRowMajor).data(), 1);
    const long double largest =
        std::max(std::abs(reference.eigenvalues.front()), std::abs(reference.eigenvalues.back()));
    const auto error_of = [&](const std::vector<double>& found) {
      long double most = 0;
      for (size_t j = 0; j < found.size(); ++j) most = std::max(most, std::abs(found[j] - reference.eigenvalues[j]));
      return static_cast<double>(most / (largest * real_type(dtype).unit_roundoff));
    };
    const double error = error_of(result.numbers(dtype, Plane::kValues, 0, n));
    EXPECT_LE(error, 10 * n) << "family " << reference.family << ", n = " << n;
    auto& [ours, lapacks] = worst[n];
    ours = std::max(ours, error);
    if (value_bytes(dtype) == 8) lapacks = std::max(lapacks, error_of(syevd(reference.matrix)));
  }
  for (const auto& [n, errors] : worst) {
    std::printf("%s n = %3d: largest error %.1f u |M|", name(dtype), static_cast<int>(n), errors.first);
    if (value_bytes(dtype) == 8)
      std::printf(", LAPACK's %s %.1f", is_complex(dtype) ? "zheevd" : "dsyevd", errors.second);
    std::printf("\n");
  }
}

// --- one triangle -----------------------------------------------------------------------------------------

TEST_P(HermitianBatchTest, TheOtherTriangleAndImaginaryPartsOfTheDiagonalAreNotRead) {
  const DType dtype = GetParam();
  for (const int64_t n : {2, 4, 7, 32, 40}) {
    const Matrix whole = random_hermitian(dtype, n, random_);
    for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
      for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
        Matrix half = whole;
        const double nan = std::numeric_limits<double>::quiet_NaN();
        for (int64_t j = 0; j < n; ++j) {
          if (is_complex(dtype)) half.at(j, j) = {half.at(j, j).real(), 5.0};
          for (int64_t i = 0; i < n; ++i) {
            if (triangle == Triangle::kLower ? i < j : i > j) half.at(i, j) = {nan, is_complex(dtype) ? nan : 0};
          }
        }
        const Plan plan = plan_of({n, n, dtype, order}, hermitian(Vectors::kThin, triangle));
        EXPECT_EQ(run_planes(engine_, plan, pack({half}, order).data(), 1),
                  run_planes(engine_, plan, pack({whole}, order).data(), 1))
            << n;
      }
    }
  }
}

TEST_P(HermitianBatchTest, BothTrianglesGiveTheSameBitsUpTo32) {
  const DType dtype = GetParam();
  for (const int64_t n : {1, 3, 4, 9, 32}) {
    const auto bytes = pack({random_hermitian(dtype, n, random_)}, Order::kRowMajor);
    const Problem problem{n, n, dtype, Order::kRowMajor};
    EXPECT_EQ(run_planes(engine_, plan_of(problem, hermitian(Vectors::kThin, Triangle::kLower)), bytes.data(), 1),
              run_planes(engine_, plan_of(problem, hermitian(Vectors::kThin, Triangle::kUpper)), bytes.data(), 1));
  }
}

// --- single matrices --------------------------------------------------------------------------------------

TEST_P(HermitianBatchTest, DiagonalMatricesAreExact) {
  const DType dtype = GetParam();
  Matrix a(dtype, 3, 3);
  a.at(0, 0) = 3;
  a.at(1, 1) = -1;
  a.at(2, 2) = 2;
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    const Plan plan = plan_of({3, 3, dtype, Order::kColumnMajor}, hermitian(Vectors::kThin, Triangle::kLower, method));
    const PlanesResult result = run_planes(engine_, plan, pack({a}, Order::kColumnMajor).data(), 1);
    EXPECT_EQ(result.numbers(dtype, Plane::kValues, 0, 3), (std::vector<double>{-1, 2, 3}));
    const Dense u = load(plan.problem, result, Plane::kLeft, 0, 3, 3);
    const int64_t rows[] = {1, 2, 0};
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(u.at(i, j), Wide(i == rows[j] ? 1 : 0));
    }
  }
}

TEST_P(HermitianBatchTest, AMatrixThatIsNotFiniteLeavesItsNeighboursAlone) {
  const DType dtype = GetParam();
  for (const int64_t n : {3, 8, 17, 40}) {
    std::vector<Matrix> matrices;
    for (int i = 0; i < 5; ++i) matrices.push_back(random_hermitian(dtype, n, random_));
    const Problem problem{n, n, dtype, Order::kRowMajor};
    const Plan plan = plan_of(problem, hermitian(Vectors::kThin));
    const PlanesResult clean = run_planes(engine_, plan, pack(matrices, Order::kRowMajor).data(), 5);
    matrices[2].at(n - 1, 0) = std::numeric_limits<double>::infinity();
    PlanesResult result = run_planes(engine_, plan, pack(matrices, Order::kRowMajor).data(), 5);
    EXPECT_EQ(result.statuses[2], MatrixStatus::kNonFinite);
    for (const double x : result.numbers(dtype, Plane::kValues, 2 * n, n)) EXPECT_TRUE(std::isnan(x));
    for (const int64_t i : {0, 1, 3, 4}) {
      EXPECT_EQ(result.statuses[i], MatrixStatus::kOk);
      EXPECT_EQ(result.numbers(dtype, Plane::kValues, i * n, n), clean.numbers(dtype, Plane::kValues, i * n, n));
    }
  }
}

TEST_P(HermitianBatchTest, ValuesBeyondTheRangeAreInfiniteAndSaySo) {
  const DType dtype = GetParam();
  for (const int64_t n : {2, 5, 20, 40}) {
    Matrix a(dtype, n, n);
    std::fill(a.elements.begin(), a.elements.end(), real_type(dtype).largest);
    const Plan plan = plan_of({n, n, dtype, Order::kRowMajor}, hermitian(Vectors::kThin));
    const PlanesResult result = run_planes(engine_, plan, pack({a}, Order::kRowMajor).data(), 1);
    EXPECT_EQ(result.statuses[0], MatrixStatus::kOutOfRange) << n;
    EXPECT_EQ(result.numbers(dtype, Plane::kValues, n - 1, 1)[0], std::numeric_limits<double>::infinity());
  }
}

// Two of them are infinite: 2 L of the vector (1, 1, 0, 0, ..) / sqrt 2, and 1.8 L of (0, 0, 1, 1, ..) / sqrt 2.
TEST_P(HermitianBatchTest, ValuesBeyondTheRangeKeepTheOrderOfTheirVectors) {
  const DType dtype = GetParam();
  for (const int64_t n : {4, 5, 20, 40}) {
    for (const double first : {1.0, 0.9}) {
      Matrix a(dtype, n, n);
      for (const int64_t i : {0, 1}) {
        for (const int64_t j : {0, 1}) {
          a.at(i, j) = real_type(dtype).largest * first;
          a.at(i + 2, j + 2) = real_type(dtype).largest * (1.9 - first);
        }
      }
      const Plan plan = plan_of({n, n, dtype, Order::kColumnMajor}, hermitian(Vectors::kThin));
      const PlanesResult result = run_planes(engine_, plan, pack({a}, Order::kColumnMajor).data(), 1);
      EXPECT_EQ(result.statuses[0], MatrixStatus::kOutOfRange) << n;
      const int64_t components = is_complex(dtype) ? 2 : 1;
      const auto u = result.numbers(dtype, Plane::kLeft, 0, n * n * components);
      const int64_t row = first == 1 ? 0 : 2;
      EXPECT_NEAR(std::hypot(u[static_cast<size_t>(((n - 1) * n + row) * components)],
                             components == 2 ? u[static_cast<size_t>(((n - 1) * n + row) * components + 1)] : 0),
                  std::sqrt(0.5), 1e-5)
          << n << " " << first;
    }
  }
}

TEST_P(HermitianBatchTest, FixedPhasesAndCertificates) {
  const DType dtype = GetParam();
  for (const int64_t n : {1, 4, 11, 32, 40}) {
    Options options = hermitian(Vectors::kThin, Triangle::kUpper);
    options.fix_phases = options.certificate = true;
    const Matrix m = random_hermitian(dtype, n, random_);
    const Plan plan = plan_of({n, n, dtype, Order::kColumnMajor}, options);
    const PlanesResult result = run_planes(engine_, plan, pack({m}, Order::kColumnMajor).data(), 1);
    const auto lambda = result.numbers(dtype, Plane::kValues, 0, n);
    const HermitianErrors errors = hermitian_errors(plan, m, result, 0, lambda, false);
    // f64 and c128 have rounding errors of the certificate.
    const double u = real_type(dtype).unit_roundoff, own = 3 * std::sqrt(static_cast<double>(n)) * 0x1p-53;
    const auto certificate = result.numbers(dtype, Plane::kCertificate, 0, kCertificateNumbers);
    // |M - U L U^H| differs from |M U - U L| by the orthogonality of U at most.
    EXPECT_NEAR(certificate[0], errors.residual * u, own + errors.orthogonality * u) << n;
    EXPECT_NEAR(certificate[1], errors.orthogonality * u, own + 1e-6 * errors.orthogonality * u) << n;
    EXPECT_EQ(certificate[2], certificate[1]);
    const Dense vectors = load(plan.problem, result, Plane::kLeft, 0, n, n);
    for (int64_t j = 0; j < n; ++j) {
      int64_t largest = 0;
      for (int64_t i = 1; i < n; ++i) {
        if (std::norm(vectors.at(i, j)) > std::norm(vectors.at(largest, j)) * (1 + 1e-6L)) largest = i;
      }
      EXPECT_GT(vectors.at(largest, j).real(), 0) << n;
    }
  }
}

// --- bits -------------------------------------------------------------------------------------------------

TEST_P(HermitianBatchTest, BitsBelongToTheMatrix) {
  const DType dtype = GetParam();
  const SvdEngine scalar({.threads = 1, .simd = Simd::kScalar}), avx2({.threads = 2, .simd = Simd::kAvx2});
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32}) {
    if (is_left_out(n)) continue;
    const int64_t count = scaled(n <= 8 ? 20'000 : 2000, kSanitized ? 12 : 40);
    std::vector<Matrix> matrices;
    for (int64_t i = 0; i < count; ++i) {
      const HermitianFamily& family =
          hermitian_families()[i % 4 == 0 ? random_.bits() % hermitian_families().size() : 0];
      matrices.push_back(family.make(dtype, n, random_));
    }
    const Problem problem{n, n, dtype, n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor};
    const auto bytes = pack(matrices, problem.order);
    for (const auto& [method, sweeps] : {std::pair(Method::kAuto, 0), {Method::kJacobi, 0}, {Method::kJacobi, 2}}) {
      if (n > kLargestTridiagonal && method == Method::kJacobi && sweeps == 0) continue;  // the same as AUTO
      Options options = hermitian(Vectors::kThin, Triangle::kLower, method);
      options.max_sweeps = sweeps;
      const Plan plan = plan_of(problem, options);
      const PlanesResult wanted = run_planes(scalar, plan, bytes.data(), count);
      EXPECT_TRUE(run_planes(avx2, plan, bytes.data(), count) == wanted) << n;
      EXPECT_TRUE(run_planes_in_segments(engine_, plan, bytes.data(), count, random_) == wanted) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HermitianBatchTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
