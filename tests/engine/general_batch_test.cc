// Batches of general eigenproblems keep the contract for every type and family. The bits belong to the matrix.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/general_references.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

using Number = std::complex<long double>;

// Complex number x of a plane of numbers of the real type.
Number complex_number(const std::vector<double>& numbers, int64_t x) {
  return {numbers[static_cast<size_t>(2 * x)], numbers[static_cast<size_t>(2 * x + 1)]};
}

// The families that are hard for QR beside those of the references.
std::vector<Matrix> matrices_of(DType dtype, int64_t n, Random& random) {
  const auto of = [&](auto entry) {
    Matrix a(dtype, n, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) a.at(i, j) = entry(i, j);
    }
    round_to_dtype(a);
    return a;
  };
  const auto normal = [&] { return std::complex<double>(random.normal(), is_complex(dtype) ? random.normal() : 0); };
  std::vector<Matrix> all{
      of([&](int64_t, int64_t) { return normal(); }),
      of([](int64_t, int64_t) { return 0.0; }),
      of([](int64_t i, int64_t j) { return i == j ? 2.0 : 0.0; }),
      of([](int64_t i, int64_t j) { return i + 1 == j ? 1.0 : 0.0; }),  // nilpotent
      of([](int64_t i, int64_t j) { return i == j       ? 3.0
                                           : i + 1 == j ? 1.0
                                                        : 0.0; }),  // one Jordan block
      of([&](int64_t i, int64_t j) { return i + j == n - 1 ? 1.0 : 0.0; }),            // reversal
      of([&](int64_t i, int64_t j) {
        return normal() * std::exp2(7.0 * static_cast<double>((i * 5) % 8 - (j * 5) % 8));
      }),
      of([&](int64_t i, int64_t j) { return static_cast<double>(i - j) * normal(); }),
      of([](int64_t i, int64_t j) { return i % 2 == j % 2 ? 1.0 : 0.0; }),
  };
  for (int family = 0; family < 9; ++family)
    all.push_back(general_reference_matrix(dtype, family, n, is_complex(dtype)));
  return all;
}

class GeneralBatchTest : public ::testing::TestWithParam<std::tuple<DType, Method>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  Method method() const { return std::get<1>(GetParam()); }
  Options general(Vectors vectors, bool certificate = false) const {
    return {
        .decomposition = Decomposition::kGeneral, .method = method(), .vectors = vectors, .certificate = certificate};
  }
  // JACOBI leaves some families to QR.
  bool is_right(MatrixStatus status) const {
    return status == MatrixStatus::kOk || (status == MatrixStatus::kByQr && method() == Method::kJacobi);
  }

  // |A X - X L|_F / |A|_F of matrix m, X = V, or with W^H of A^H, in units of n u.
  double residual(const Matrix& a, const Plan& plan, const PlanesResult& result, int64_t m, bool left) const {
    const int64_t n = a.rows;
    const DType dtype = this->dtype();
    const auto values = result.numbers(dtype, Plane::kValues, 2 * m * n, 2 * n);
    const auto x = result.numbers(dtype, left ? Plane::kRight : Plane::kLeft, 2 * m * n * n, 2 * n * n);
    const bool row_major = plan.problem.order == Order::kRowMajor;
    // W^H has w_j^H in row j.
    const auto at = [&](int64_t i, int64_t j) {
      if (left) return std::conj(complex_number(x, row_major ? j * n + i : i * n + j));
      return complex_number(x, row_major ? i * n + j : j * n + i);
    };
    long double sum = 0, norm = 0;
    for (int64_t j = 0; j < n; ++j) {
      const Number l = left ? std::conj(complex_number(values, j)) : complex_number(values, j);
      long double length = 0;
      for (int64_t i = 0; i < n; ++i) {
        Number difference = -l * at(i, j);
        for (int64_t k = 0; k < n; ++k) difference += Number(left ? std::conj(a.at(k, i)) : a.at(i, k)) * at(k, j);
        sum += std::norm(difference);
        norm += std::norm(Number(a.at(i, j)));
        length += std::norm(at(i, j));
      }
      EXPECT_NEAR(static_cast<double>(length), 1, 4 * static_cast<double>(n + 4) * unit());
    }
    return norm > 0 ? static_cast<double>(std::sqrt(sum / norm)) / (static_cast<double>(n) * unit()) : 0;
  }
  double unit() const { return real_type(dtype()).unit_roundoff; }

  const SvdEngine engine_;
};

TEST_P(GeneralBatchTest, KeepsTheContract) {
  const DType dtype = this->dtype();
  Random random(5);
  double worst = 0;
  int64_t by_qr = 0, all = 0;
  for (int64_t n = 1; n <= kLargestGeneral; ++n) {
    if (is_left_out(n)) continue;
    const auto matrices = matrices_of(dtype, n, random);
    const auto count = static_cast<int64_t>(matrices.size());
    all += count;
    const Order order = n % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
    const Problem problem{n, n, dtype, order};
    const auto bytes = pack(matrices, order);
    const Plan full = plan_of(problem, general(Vectors::kFull, true));
    const PlanesResult result = run_planes(engine_, full, bytes.data(), count);
    for (int64_t m = 0; m < count; ++m) {
      SCOPED_TRACE("matrix " + std::to_string(m) + ", n = " + std::to_string(n));
      EXPECT_TRUE(is_right(result.statuses[static_cast<size_t>(m)]));
      by_qr += result.statuses[static_cast<size_t>(m)] == MatrixStatus::kByQr;
      const auto told = result.numbers(dtype, Plane::kCertificate, m * kCertificateNumbers, kCertificateNumbers);
      const double found = std::max(residual(matrices[static_cast<size_t>(m)], full, result, m, false),
                                    residual(matrices[static_cast<size_t>(m)], full, result, m, true));
      EXPECT_LE(found, 10);
      EXPECT_NEAR(told[0] / (static_cast<double>(n) * unit()), found, 1 + 0.1 * found);
      EXPECT_EQ(told[1] + told[2], 0);
      worst = std::max(worst, found);
      const auto values = result.numbers(dtype, Plane::kValues, 2 * m * n, 2 * n);
      for (int64_t j = 0; j < n && !is_complex(dtype); ++j) {
        const Number x = complex_number(values, j);
        if (x.imag() == 0) continue;
        ASSERT_LT(j + 1, n);
        EXPECT_EQ(complex_number(values, ++j), std::conj(x));
        EXPECT_GT(x.imag(), 0);
      }
    }
    const Plan thin = plan_of(problem, general(Vectors::kThin));
    const PlanesResult right = run_planes(engine_, thin, bytes.data(), count);
    for (int64_t m = 0; m < count; ++m) {
      EXPECT_LE(residual(matrices[static_cast<size_t>(m)], thin, right, m, false), 10) << m;
    }
  }
  std::printf("%s %s: largest residual %.2f of 10 n u |A|; %d of %d matrices by QR\n", name(dtype), name(method()),
              worst, static_cast<int>(by_qr), static_cast<int>(all));
}

// Against 80 digits: 20 n u |A| times the condition of each eigenvalue.
TEST_P(GeneralBatchTest, EigenvaluesOfReferences) {
  const DType dtype = this->dtype();
  double worst = 0;
  for (const GeneralReference& reference : general_references(TEST_DATA "/general/batch.txt", dtype)) {
    const int64_t n = reference.matrix.rows;
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      const Plan plan = plan_of({n, n, dtype, Order::kRowMajor}, general(vectors));
      const PlanesResult result = run_planes(engine_, plan, pack({reference.matrix}, Order::kRowMajor).data(), 1);
      const auto values = result.numbers(dtype, Plane::kValues, 0, 2 * n);
      std::vector<Number> found;
      for (int64_t j = 0; j < n; ++j) found.push_back(complex_number(values, j));
      const double error = worst_eigenvalue_error(reference, found, unit());
      EXPECT_LE(error, 20) << "family " << reference.family << ", n = " << n;
      worst = std::max(worst, error);
    }
  }
  std::printf("%s %s: largest error of an eigenvalue %.2f of 20 n u |A| times its condition\n", name(dtype),
              name(method()), worst);
}

// The bits of a matrix are the same alone, in any place of a batch, and for every instruction set.
TEST_P(GeneralBatchTest, TheBitsBelongToTheMatrix) {
  const DType dtype = this->dtype();
  Random random(9);
  for (const int64_t n : {1, 2, 3, 4, 5, 9, 17, 32}) {
    if (kSanitized && n > 5) continue;
    auto matrices = matrices_of(dtype, n, random);
    for (int i = 0; i < 20; ++i) matrices.push_back(matrices_of(dtype, n, random).front());
    const auto count = static_cast<int64_t>(matrices.size());
    const Plan plan = plan_of({n, n, dtype, Order::kRowMajor}, general(Vectors::kFull, true));
    const PlanesResult all = run_planes(engine_, plan, pack(matrices, Order::kRowMajor).data(), count);
    for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
      const SvdEngine other({.simd = simd});
      if (other.simd() != simd) continue;  // not of this build
      EXPECT_EQ(run_planes(other, plan, pack(matrices, Order::kRowMajor).data(), count), all) << n;
    }
    for (int64_t m = 0; m < count; m += 5) {
      const PlanesResult alone =
          run_planes(engine_, plan, pack({matrices[static_cast<size_t>(m)]}, Order::kRowMajor).data(), 1);
      for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight, Plane::kCertificate}) {
        const auto size = static_cast<int64_t>(plane_bytes(plan, plane, 1) / value_bytes(dtype));
        EXPECT_EQ(alone.numbers(dtype, plane, 0, size), all.numbers(dtype, plane, m * size, size)) << n << " " << m;
      }
    }
  }
}

TEST_P(GeneralBatchTest, OneBadMatrixLeavesItsNeighbours) {
  const DType dtype = this->dtype();
  Random random(3);
  std::vector<Matrix> matrices;
  for (int i = 0; i < 3; ++i) matrices.push_back(matrices_of(dtype, 4, random).front());
  matrices[1].at(2, 3) = std::numeric_limits<double>::quiet_NaN();
  const Plan plan = plan_of({4, 4, dtype, Order::kRowMajor}, general(Vectors::kThin));
  const PlanesResult result = run_planes(engine_, plan, pack(matrices, Order::kRowMajor).data(), 3);
  EXPECT_EQ(result.statuses[0], MatrixStatus::kOk);
  EXPECT_EQ(result.statuses[1], MatrixStatus::kNonFinite);
  EXPECT_EQ(result.statuses[2], MatrixStatus::kOk);
  for (const double x : result.numbers(dtype, Plane::kValues, 8, 8)) EXPECT_TRUE(std::isnan(x));
  for (const double x : result.numbers(dtype, Plane::kLeft, 32, 32)) EXPECT_TRUE(std::isnan(x));
  for (const int64_t m : {0, 2}) EXPECT_LE(residual(matrices[static_cast<size_t>(m)], plan, result, m, false), 10);
}

INSTANTIATE_TEST_SUITE_P(Types, GeneralBatchTest,
                         ::testing::Combine(::testing::ValuesIn(dtypes_of_run()),
                                            ::testing::Values(Method::kQr, Method::kJacobi)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" + name(std::get<1>(info.param));
                         });

// Rounding errors turn a defective real eigenvalue into pairs that are no conjugates. JACOBI must keep their sum.
TEST(GeneralJacobiTest, RealMatricesKeepTheirTrace) {
  const SvdEngine engine;
  Random random(11);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    double worst = 0;
    for (const int64_t n : {3, 4, 5, 8}) {
      std::vector<Matrix> matrices;
      for (int i = 0; i < 200; ++i) {
        Matrix a(dtype, n, n);
        for (int64_t j = 0; j < n; ++j) {
          // One Jordan block below the diagonal, then sparse matrices, then strictly lower ones.
          for (int64_t l = 0; l < n; ++l) {
            const double x = random.uniform() < 0.25 ? random.normal() : 0, y = l > j ? random.normal() : 0;
            a.at(l, j) = i == 0 ? (l == j ? 2.0 : l == j + 1 ? 1.0 : 0.0) : i % 2 == 0 ? x : y;
          }
        }
        round_to_dtype(a);
        matrices.push_back(a);
      }
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        const Plan plan =
            plan_of({n, n, dtype, Order::kRowMajor},
                    {.decomposition = Decomposition::kGeneral, .method = Method::kJacobi, .vectors = vectors});
        const PlanesResult result = run_planes(engine, plan, pack(matrices, Order::kRowMajor).data(), 200);
        for (int64_t m = 0; m < 200; ++m) {
          const Matrix& a = matrices[static_cast<size_t>(m)];
          const auto values = result.numbers(dtype, Plane::kValues, 2 * m * n, 2 * n);
          Number sum = 0;
          long double norm = 0;
          for (int64_t j = 0; j < n; ++j) {
            sum += complex_number(values, j) - Number(a.at(j, j));
            for (int64_t l = 0; l < n; ++l) norm += std::norm(Number(a.at(l, j)));
          }
          if (norm == 0) continue;
          const double units = static_cast<double>(n) * real_type(dtype).unit_roundoff;
          const double error = static_cast<double>(std::abs(sum) / std::sqrt(norm)) / units;
          EXPECT_LE(error, 10) << name(dtype) << " " << n << " " << m;
          worst = std::max(worst, error);
        }
      }
    }
    std::printf("%s: largest error of the trace %.2f of 10 n u |A|\n", name(dtype), worst);
  }
}

// Eigenvalues alone are those with vectors; a limit of one sweep leaves random matrices to QR.
TEST(GeneralJacobiTest, ValuesAloneAndTheSweepLimit) {
  const SvdEngine engine;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const int64_t n : {1, 3, 8}) {
      Random random(n);
      std::vector<Matrix> matrices;
      for (int i = 0; i < 9; ++i) matrices.push_back(matrices_of(dtype, n, random).front());
      const auto bytes = pack(matrices, Order::kRowMajor);
      Options options{.decomposition = Decomposition::kGeneral, .method = Method::kJacobi, .vectors = Vectors::kThin};
      const Problem problem{n, n, dtype, Order::kRowMajor};
      const auto values_of = [&] {
        const PlanesResult result = run_planes(engine, plan_of(problem, options), bytes.data(), 9);
        for (const MatrixStatus status : result.statuses) {
          EXPECT_EQ(status, options.max_sweeps == 1 && n > 1 ? MatrixStatus::kByQr : MatrixStatus::kOk) << n;
        }
        return result.numbers(dtype, Plane::kValues, 0, 2 * n * 9);
      };
      const auto with_vectors = values_of();
      options.vectors = Vectors::kNone;
      EXPECT_EQ(values_of(), with_vectors) << n;
      options.max_sweeps = 1;
      const auto limited = values_of();
      options = {.decomposition = Decomposition::kGeneral};
      EXPECT_EQ(
          run_planes(engine, plan_of(problem, options), bytes.data(), 9).numbers(dtype, Plane::kValues, 0, 18 * n),
          n > 1 ? limited : with_vectors);
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
