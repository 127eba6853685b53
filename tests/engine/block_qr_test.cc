// QR by a thread block (algorithms/blocks/block_qr.h), the source that a GPU runs, on fibers. R is a triangle, Q R is A
// and Q orthonormal, and the order of the threads changes no bit.
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
Factors<E> factorize(const Matrix& a, const std::vector<typename E::Scalar>& exponents, uint64_t seed) {
  using L = typename E::Lane;
  using Shape = scalar::BlockQrShape<E>;
  const int rows = static_cast<int>(a.rows), k = static_cast<int>(a.cols), steps = Shape::tiles(rows) * k;
  Factors<E> f{std::vector<E>(size(k * k)), std::vector<E>(size(rows * k))};
  std::vector<E> mail(size(Shape::mail(k))), u(size(steps * Shape::kHeight)), heads(size(steps));
  std::vector<E> identity(size(k * k), scalar::zero_element<E>());
  std::vector<L> g(size(steps));
  for (int j = 0; j < k; ++j) identity[size(j * k + j)].re = L(1);
  const auto with_qr = [&](const scalar::BlockFactor<E>& factor, auto call) {
    FiberBlock(Shape::threads(k), seed).run([&](FiberBlock::Thread thread) {
      call(scalar::BlockQr<FiberBlock::Thread, E>(thread, mail.data(), rows, k, factor));
    });
  };
  const auto source = [&](int i, int j) { return element<E>(a.at(i, j)); };
  const scalar::BlockFactor<E> factor{u.data(), heads.data(), g.data()};
  with_qr(factor, [&](const auto& qr) { qr.reduce(source, exponents.data(), f.r.data()); });
  with_qr(factor, [&](const auto& qr) {
    qr.expand(identity.data(), k, [&](int i, int c, const E& x) { f.q[size(i * k + c)] = x; });
  });
  // Factors that nobody keeps change nothing.
  std::vector<E> r(f.r.size());
  with_qr({}, [&](const auto& qr) { qr.reduce(source, exponents.data(), r.data()); });
  EXPECT_EQ(0, std::memcmp(r.data(), f.r.data(), r.size() * sizeof(E)));
  return f;
}

template <class E>
void test_factors(Kind kind, DType dtype, int rows, int k) {
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
  const Factors<E> f = factorize<E>(a, exponents, 0);
  EXPECT_TRUE(f.same(factorize<E>(a, exponents, 5))) << where;
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
    test_factors<E>(kind, dtype, 6, 5);
    test_factors<E>(kind, dtype, 70, 9);
  }
  test_factors<E>(Kind::kNormal, dtype, 97, 35);   // a last tile of one row
  test_factors<E>(Kind::kLowRank, dtype, 75, 66);  // more rows of R than a tile has
}

TEST(BlockQr, FactorsAreTheMatrix) {
  test_kinds<Real<float>>(DType::kF32);
  test_kinds<Real<double>>(DType::kF64);
  test_kinds<Complex<float>>(DType::kC64);
  test_kinds<Complex<double>>(DType::kC128);
  test_factors<Real<float>>(Kind::kNormal, DType::kF32, 130, 128);  // all threads
}

TEST(BlockQr, WhatIsNotFiniteIsMarked) {
  const Matrix a = generate(Kind::kNormal, DType::kF64, 9, 4, 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto f = factorize<Real<double>>(a, {nan, nan, nan, nan}, 0);
  EXPECT_TRUE(std::isnan(f.r[0].re.v));
}

}  // namespace
}  // namespace svdserve::numerics
