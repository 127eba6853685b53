// The symmetric indefinite factorization: M = G J G^H to some n u, exact ranks, rook pivoting beside complete pivoting.
#include "engine/backends/host/dense/indefinite_factor.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
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
