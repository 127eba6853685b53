// QR by a thread block (algorithms/blocks/block_qr.h), the source that a GPU runs, on fibers. R has the singular values
// of A, Q R is A and Q orthonormal, and the order of the threads changes no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/blocks/block_qr.h"
#include "tests/support/numerics/fiber_block.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {
namespace {

using Wide = std::complex<long double>;

size_t size(int64_t n) { return static_cast<size_t>(n); }

template <class E>
Wide number(const E& x) {
  if constexpr (E::kComplex) return {x.re.v, x.im.v};
  return {x.re.v, 0};
}

template <class E>
struct Factors {
  std::vector<E> r, q;  // k x k and rows x k, row by row
  bool same(const Factors& other) const {
    return std::memcmp(r.data(), other.r.data(), r.size() * sizeof(E)) == 0 &&
           std::memcmp(q.data(), other.q.data(), q.size() * sizeof(E)) == 0;
  }
};

// R, and Q as Q times the identity.
template <class E>
Factors<E> factorize(const Matrix& a, const std::vector<typename E::Scalar>& exponents, bool by_rows, uint64_t seed) {
  using L = typename E::Lane;
  const int rows = static_cast<int>(a.rows), k = static_cast<int>(a.cols);
  Factors<E> f{std::vector<E>(size(k * k)), std::vector<E>(size(rows * k))};
  std::vector<E> factor(size(rows * k)), identity(size(k * k), scalar::zero_element<E>());
  std::vector<L> g(size(k));
  for (int j = 0; j < k; ++j) identity[size(j * k + j)].re = L(1);
  FiberBlock block(64, seed);
  const scalar::BlockFactor<E> memory{factor.data(), g.data(), rows, k};
  block.run([&](FiberBlock::Thread thread) {
    const scalar::BlockQr<FiberBlock::Thread, E> qr(thread, memory);
    qr.reduce([&](int i, int j) { return element<E>(a.at(i, j)); }, by_rows, exponents.data(), f.r.data());
    thread.sync();
    qr.expand(
        identity.data(), k, [&](int c) { return f.q.data() + c; }, k, [](const E& x) { return x; });
  });
  return f;
}

template <class E>
void test_large(Kind kind, DType dtype, int rows, int k) {
  using T = typename E::Scalar;
  const std::string where = std::string(name(dtype)) + " " + name(kind) + " " + std::to_string(rows);
  const Matrix a = generate(kind, dtype, rows, k, 3);
  std::vector<T> exponents(size(k), T(0));
  for (int j = 0; j < k; ++j) {
    double largest = 0;
    for (int i = 0; i < rows; ++i) {
      largest = std::max({largest, std::abs(a.at(i, j).real()), std::abs(a.at(i, j).imag())});
    }
    if (largest > 0) exponents[size(j)] = static_cast<T>(std::ilogb(largest));
  }
  const Factors<E> f = factorize<E>(a, exponents, true, 0);
  EXPECT_TRUE(f.same(factorize<E>(a, exponents, true, 5))) << where;
  EXPECT_TRUE(f.same(factorize<E>(a, exponents, false, 9))) << where;
  const long double u = real_type(dtype).unit_roundoff, bound = 10 * rows * u;
  for (int j = 0; j < k; ++j) {
    long double error = 0, length = 0, dependence = 0;
    for (int i = 0; i < rows; ++i) {
      Wide sum = 0;
      for (int l = 0; l < k; ++l) sum += number(f.q[size(i * k + l)]) * number(f.r[size(l * k + j)]);
      const Wide x = Wide(a.at(i, j)) * std::exp2(-static_cast<long double>(exponents[size(j)]));
      error += std::norm(x - sum);
      length += std::norm(x);
    }
    EXPECT_LE(std::sqrt(error), bound * std::sqrt(length) + 1e-30L) << where << " column " << j;
    for (int l = 0; l < k; ++l) {
      Wide dot = 0;
      for (int i = 0; i < rows; ++i) dot += std::conj(number(f.q[size(i * k + j)])) * number(f.q[size(i * k + l)]);
      dependence += std::norm(dot - Wide(j == l ? 1 : 0));
      if (l > j) {
        EXPECT_EQ(number(f.r[size(l * k + j)]), Wide(0)) << where;
      }
    }
    EXPECT_LE(std::sqrt(dependence), bound) << where << " column " << j;
  }
}

template <class E>
void test_kinds(DType dtype) {
  for (const Kind kind : {Kind::kNormal, Kind::kGradedRows, Kind::kGradedColumns, Kind::kLowRank, Kind::kZero,
                          Kind::kDuplicates, Kind::kHuge, Kind::kTiny}) {
    for (const int rows : {6, 33, 70}) test_large<E>(kind, dtype, rows, 5);
  }
  test_large<E>(Kind::kNormal, dtype, 90, 40);  // more columns than a warp has threads
}

TEST(BlockQr, FactorsAreTheMatrix) {
  test_kinds<Real<float>>(DType::kF32);
  test_kinds<Real<double>>(DType::kF64);
  test_kinds<Complex<float>>(DType::kC64);
  test_kinds<Complex<double>>(DType::kC128);
}

TEST(BlockQr, WhatIsNotFiniteIsMarked) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 9, 4, 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto f = factorize<Real<double>>(a, {nan, nan, nan, nan}, true, 0);
  EXPECT_TRUE(std::isnan(f.r[0].re.v));
}

}  // namespace
}  // namespace svdserve::numerics
