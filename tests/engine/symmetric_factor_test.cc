// The test data of large factors: A has the eigenvalues asked for, G J G^T is A; and the reference that judges them.
#include "tests/support/numerics/symmetric_factor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/hermitian.h"
#include "tests/support/numerics/known_spectrum.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/quadruple.h"
#include "tests/support/numerics/reference_hermitian.h"
#include "tests/support/numerics/reference_hyperbolic.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

constexpr double kRoundoff = 0x1p-53;

// Eigenvalues of both signs (definite: positive alone), of magnitudes from 1e-3 to 10, ascending; some equal.
std::vector<double> spectrum(size_t n, bool definite, Random& random) {
  std::vector<double> lambda(n, 0.5);
  for (size_t i = n / 4; i < n; ++i) {
    lambda[i] = std::pow(10, random.uniform(-3, 1));
    if (!definite && random.coin()) lambda[i] = -lambda[i];
  }
  std::sort(lambda.begin(), lambda.end());
  return lambda;
}

template <class Real>
class SymmetricFactorTest : public ::testing::Test {};
using Reals = ::testing::Types<long double, Quadruple>;
TYPED_TEST_SUITE(SymmetricFactorTest, Reals);

TYPED_TEST(SymmetricFactorTest, MatricesHaveTheEigenvaluesAskedFor) {
  for (const size_t n : {1, 2, 3, 20, 50}) {
    Random random(n);
    const auto lambda = spectrum(n, false, random);
    const Matrix a = rounded_symmetric(SymmetricEigenvalues<TypeParam>::matrix(lambda, random));
    const auto found = syev(a);
    ASSERT_EQ(found.size(), n);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(found[i], lambda[i], 100 * static_cast<double>(n) * kRoundoff);
    // No more diagonal than a random one is.
    double outside = 0, inside = 0;
    for (int64_t j = 0; j < a.cols; ++j) {
      for (int64_t i = 0; i < a.rows; ++i) (i == j ? inside : outside) += std::norm(a.at(i, j));
    }
    if (n >= 20) {
      EXPECT_GT(outside, inside);
    }
  }
}

TYPED_TEST(SymmetricFactorTest, FactorsHaveThemToo) {
  for (const bool definite : {false, true}) {
    for (const size_t n : {1, 2, 3, 20, 50}) {
      Random random(n);
      const auto lambda = spectrum(n, definite, random);
      const auto factor =
          SymmetricFactorization<TypeParam>::factor(SymmetricEigenvalues<TypeParam>::matrix(lambda, random));
      ASSERT_TRUE(std::is_sorted(factor.signs.rbegin(), factor.signs.rend()));
      ASSERT_EQ(std::count(factor.signs.begin(), factor.signs.end(), 1),
                std::count_if(lambda.begin(), lambda.end(), [](double x) { return x > 0; }));
      const Matrix g = rounded_columns(factor.columns);
      const auto found = reference_eigenvalues(g, factor.signs);
      // The effect of rounding G to double on the eigenvalues.
      const double bound = 20 * std::sqrt(static_cast<double>(n)) * unit_column_condition(g) * kRoundoff;
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::abs(found[i] / lambda[i] - 1), bound) << i << " of " << n << ": " << lambda[i];
      }
    }
  }
}

TEST(SymmetricFactorization, SingularMatricesAreRefused) {
  EXPECT_THROW(SymmetricFactorization<long double>::factor({{0}}), std::runtime_error);
  EXPECT_THROW(SymmetricFactorization<long double>::factor({{1, 1}, {0, 1}}), std::runtime_error);
}

// [0 1; 1 0] has no diagonal to divide by.
TEST(SymmetricFactorization, APivotOfOrderTwo) {
  const auto factor = SymmetricFactorization<long double>::factor({{0, 1}, {0, 0}});
  EXPECT_EQ(factor.signs, (std::vector<int8_t>{1, -1}));
  const auto found = reference_eigenvalues(rounded_columns(factor.columns), factor.signs);
  EXPECT_NEAR(static_cast<double>(found[0]), -1, 4 * kRoundoff);
  EXPECT_NEAR(static_cast<double>(found[1]), 1, 4 * kRoundoff);
}

// With one sign they are squares of singular values.
TEST(ReferenceHyperbolic, OneSignIsTheOrdinaryReference) {
  const Matrix g = generate(Kind::kGradedColumns, DType::kF64, 30, 20, 1);
  const auto s = reference_singular_values(g);
  for (const int8_t sign : {int8_t{1}, int8_t{-1}}) {
    auto lambda = reference_eigenvalues(g, std::vector<int8_t>(20, sign));
    std::sort(lambda.begin(), lambda.end(), [](auto x, auto y) { return std::abs(x) > std::abs(y); });
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_LE(std::abs(lambda[i] / (sign * s[i] * s[i]) - 1), 1e-16L) << i;
    }
  }
}

// Beside two-sided Jacobi in quadruple precision, which knows nothing of either.
TEST(KnownSpectrum, EigenvaluesAreThoseOfTheStoredMatrix) {
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    for (const size_t n : {1, 2, 13, 24}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << " " << n);
      Random random(n);
      const auto lambda = spectrum(n, false, random);
      const Matrix m = with_known_spectrum(dtype, lambda, random);
      const auto reference = reference_eigenvalues(m), accurate = accurate_eigenvalues(m);
      ASSERT_EQ(accurate.size(), n);
      const long double norm = std::max(std::abs(reference.front()), std::abs(reference.back()));
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::abs(reference[i] - lambda[i]), kRoundoff * norm) << i;
        EXPECT_LE(std::abs(accurate[i] / reference[i] - 1), 1e-15L) << i;
      }
      double off_diagonal = 0;  // dense
      for (size_t j = 0; j + 1 < n; ++j) off_diagonal = std::max(off_diagonal, std::abs(m.at(n - 1, j)));
      EXPECT_EQ(off_diagonal == 0, n == 1);
    }
  }
}

TEST(LapackPeers, VectorsAndValuesOfHermitianMatrices) {
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    Random random(3);
    const auto lambda = spectrum(24, false, random);
    const Matrix m = with_known_spectrum(dtype, lambda, random);
    Matrix u = m;
    std::vector<double> values;
    if (is_complex(dtype)) {
      values = syevd_vectors(24, u.elements.data());
    } else {
      std::vector<double> real(24 * 24);
      store(m, Order::kColumnMajor, real.data());
      values = syevd_vectors(24, real.data());
      std::copy(real.begin(), real.end(), u.elements.begin());
    }
    if (is_complex(dtype) && kSanitized) continue;  // see lapack_peer.h
    ASSERT_EQ(values.size(), 24U);
    EXPECT_LE(eigen_residual(m, values, u), 240 * kRoundoff);
  }
}

TEST(LapackPeers, JacobiMethodsFindTheReferencesValues) {
  const Matrix a = generate(Kind::kColumnGraded, DType::kF64, 30, 30, 1);
  const auto s = reference_singular_values(a);
  for (const auto& found : {gejsv(a), gesvj(a)}) {
    ASSERT_EQ(found.size(), s.size());
    for (size_t i = 0; i < s.size(); ++i) EXPECT_LE(std::abs(found[i] / s[i] - 1), 1e-13L) << i;
  }
}

}  // namespace
}  // namespace svdserve::numerics
