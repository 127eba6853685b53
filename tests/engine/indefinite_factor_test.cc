// The symmetric indefinite factorization: M = G J G^H to some n u, exact ranks, rook pivoting beside complete pivoting.
#include "engine/backends/host/dense/indefinite_factor.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/random.h"

namespace svdserve::host {
namespace {

using numerics::normal_number;
using numerics::Random;

double conjugate(double x) { return x; }
std::complex<double> conjugate(std::complex<double> x) { return std::conj(x); }

// Column-major, n x n. Rank n: random; less: B diag(+-1) B^H with B n x rank.
template <class E>
std::vector<E> hermitian(int64_t n, int64_t rank, Random& random) {
  std::vector<E> m(static_cast<size_t>(n * n));
  if (rank == n) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) m[i + j * n] = i == j ? E(random.normal()) : normal_number<E>(random);
      for (int64_t i = j; i < n; ++i) m[j + i * n] = conjugate(m[i + j * n]);
    }
    return m;
  }
  for (int64_t k = 0; k < rank; ++k) {
    std::vector<E> b;
    for (int64_t i = 0; i < n; ++i) b.push_back(normal_number<E>(random));
    const double sign = random.coin() ? 1 : -1;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) m[i + j * n] += sign * b[i] * conjugate(b[j]);
    }
  }
  return m;
}

struct Found {
  std::vector<int8_t> signs;
  double error = 0;          // |M - G J G^H|_F / |M|_F
  double largest = 0;        // magnitude in G
  bool rest_is_zero = true;  // of G's columns from the rank on
};

template <class E>
Found factor(const std::vector<E>& m, int64_t n, PivotSearch search, const FactorProgress& progress = {}) {
  std::vector<E> work = m, g(m.size(), E(99));
  for (int64_t j = 0; j < n; ++j) std::fill_n(work.begin() + j * n, j, E(1e300));  // the upper triangle is not read
  const LargeThreads threads(nullptr, 1, nullptr);
  Found found;
  found.signs = indefinite_factor<E>(threads, {work.data(), n, n, n}, {g.data(), n, n, n}, progress, search);
  const auto rank = static_cast<int64_t>(found.signs.size());
  double error = 0, norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      E x = m[i + j * n];
      norm += std::norm(x);
      for (int64_t k = 0; k < rank; ++k) {
        x -= g[i + k * n] * conjugate(g[j + k * n]) * static_cast<double>(found.signs[static_cast<size_t>(k)]);
      }
      error += std::norm(x);
      found.rest_is_zero = found.rest_is_zero && (j < rank || g[i + j * n] == E(0));
      found.largest = std::max(found.largest, std::abs(g[i + j * n]));
    }
  }
  found.error = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  return found;
}

// A number with components from -3 to 3.
template <class E>
E small_integer(Random& random) {
  const auto component = [&] { return std::floor(random.uniform(-3, 4)); };
  if constexpr (std::is_same_v<E, double>) {
    return component();
  } else {
    const double re = component();
    return {re, component()};
  }
}

// B D B^H of small integers, exact; B is n x rank. Its rows and columns times 2^-e, e below `grading`.
template <class E>
std::vector<E> integer_matrix(int64_t n, int64_t rank, int grading, Random& random) {
  std::vector<E> m(static_cast<size_t>(n * n));
  std::vector<double> scale;
  for (int64_t i = 0; i < n; ++i) scale.push_back(std::exp2(-std::floor(random.uniform(0, grading))));
  for (int64_t k = 0; k < rank; ++k) {
    std::vector<E> b;
    for (int64_t i = 0; i < n; ++i) b.push_back(small_integer<E>(random));
    const double d = (random.coin() ? 1 : -1) * std::floor(random.uniform(1, 5));
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        m[i + j * n] += d * scale[static_cast<size_t>(i)] * scale[static_cast<size_t>(j)] * b[i] * conjugate(b[j]);
      }
    }
  }
  return m;
}

template <class E>
class IndefiniteFactorTest : public ::testing::Test {};
using Elements = ::testing::Types<double, std::complex<double>>;
TYPED_TEST_SUITE(IndefiniteFactorTest, Elements);

// Orders within a panel, of one panel, and of several with pivots that straddle their ends.
TYPED_TEST(IndefiniteFactorTest, GivesTheMatrixBack) {
  for (const int64_t n : {1, 2, 3, 24, 47, 48, 49, 97, 130}) {
    Random random(static_cast<uint64_t>(n));
    const auto m = hermitian<TypeParam>(n, n, random);
    for (const PivotSearch search : {PivotSearch::kRook, PivotSearch::kComplete}) {
      const Found found = factor(m, n, search);
      EXPECT_EQ(static_cast<int64_t>(found.signs.size()), n);
      EXPECT_LE(found.error, 2 * static_cast<double>(std::max<int64_t>(n, 8)) * 0x1p-53);
    }
  }
}

// The signs are those of the eigenvalues (Sylvester), whatever the pivots are.
TYPED_TEST(IndefiniteFactorTest, BothSearchesFindTheInertiaAndGrowAlike) {
  for (const int64_t n : {24, 100}) {
    Random random(static_cast<uint64_t>(n) + 1);
    const auto m = hermitian<TypeParam>(n, n, random);
    const Found rook = factor(m, n, PivotSearch::kRook), complete = factor(m, n, PivotSearch::kComplete);
    EXPECT_EQ(std::count(rook.signs.begin(), rook.signs.end(), 1),
              std::count(complete.signs.begin(), complete.signs.end(), 1));
    EXPECT_LE(rook.largest, 2 * complete.largest);
  }
}

TYPED_TEST(IndefiniteFactorTest, RanksAreExact) {
  for (const int64_t n : {24, 100, 200}) {
    for (const int64_t rank : {int64_t{0}, int64_t{1}, n / 8, n / 2}) {
      Random random(static_cast<uint64_t>(n + rank));
      const Found found = factor(hermitian<TypeParam>(n, rank, random), n, PivotSearch::kRook);
      EXPECT_EQ(static_cast<int64_t>(found.signs.size()), rank) << n;
      EXPECT_TRUE(found.rest_is_zero);
    }
  }
}

// Rounding errors that ill-conditioned rows hand on are no pivots. factor_error.h expects less than one in 10 000.
TYPED_TEST(IndefiniteFactorTest, IntegersHaveTheirRank) {
  for (const int grading : {1, 40}) {
    const int64_t count = numerics::scaled(15000, 500);
    int64_t too_many = 0;
    for (int64_t seed = 0; seed < count; ++seed) {
      Random random(static_cast<uint64_t>(seed));
      const int64_t n = 20 + seed % 20, rank = n / 4 + seed % 9;
      const Found found = factor(integer_matrix<TypeParam>(n, rank, grading, random), n, PivotSearch::kRook);
      EXPECT_GE(static_cast<int64_t>(found.signs.size()), rank) << seed;
      if (static_cast<int64_t>(found.signs.size()) > rank) ++too_many;
    }
    std::printf("%d of %d matrices with an eigenvalue too many\n", int(too_many), int(count));
    EXPECT_LE(too_many, count / 1000) << grading;
  }
}

// One small eigenvalue more makes full rank. It is kept, as it has digits.
TYPED_TEST(IndefiniteFactorTest, ASmallEigenvalueOfIntegersIsKept) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const int64_t n = 6 + static_cast<int64_t>(seed % 20);
    auto m = integer_matrix<TypeParam>(n, n - 1, 1, random);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) m[i + j * n] += 0x1p-20;
    }
    const Found found = factor(m, n, PivotSearch::kRook);
    EXPECT_EQ(static_cast<int64_t>(found.signs.size()), n) << seed;
  }
}

TYPED_TEST(IndefiniteFactorTest, ADefiniteMatrixHasOneSign) {
  Random random(5);
  const int64_t n = 70;
  auto m = hermitian<TypeParam>(n, n, random);
  for (int64_t i = 0; i < n; ++i) m[i + i * n] += 60.0;
  for (auto& x : m) x = -x;
  const Found found = factor(m, n, PivotSearch::kRook);
  EXPECT_EQ(std::count(found.signs.begin(), found.signs.end(), -1), n);
}

TYPED_TEST(IndefiniteFactorTest, ProgressRisesToOne) {
  Random random(6);
  std::vector<double> told;
  factor(hermitian<TypeParam>(130, 130, random), 130, PivotSearch::kRook, [&](double done) { told.push_back(done); });
  EXPECT_EQ(told.size(), 3u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 1);
}

}  // namespace
}  // namespace svdserve::host
