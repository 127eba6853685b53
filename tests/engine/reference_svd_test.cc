// The reference itself: against closed forms, against a copy of itself in quadruple precision, and against LAPACK.
#include "tests/support/numerics/reference_svd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "gtest/gtest.h"
#include "tests/support/numerics/columns.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/quadruple.h"
#include "tests/support/numerics/reference_jacobi.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

// Unit roundoff of the arithmetic that the reference uses for `dtype`.
long double reference_roundoff(DType dtype) {
  return value_bytes(dtype) == 4 ? 0x1p-53L : std::numeric_limits<long double>::epsilon() / 2;
}

TEST(ReferenceSvd, DiagonalIsSorted) {
  Matrix a(DType::kF64, 4, 3);
  a.at(0, 0) = -2;
  a.at(1, 1) = 0x1p-1000;
  a.at(2, 2) = 0x1p1000;
  const auto s = reference_singular_values(a);
  EXPECT_EQ(s, (std::vector<long double>{0x1p1000L, 2, 0x1p-1000L}));
}

// [a b; c d]: s1^2 + s2^2 = |A|_F^2, s1 s2 = abs(det A).
TEST(ReferenceSvd, TwoByTwoHasTheRightNormAndDeterminant) {
  for (const DType dtype : kDTypes) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Matrix a = generate(Kind::kNormal, dtype, 2, 2, seed);
      const auto s = reference_singular_values(a);
      using C = std::complex<long double>;
      const auto at = [&](int64_t i, int64_t j) { return C(a.at(i, j).real(), a.at(i, j).imag()); };
      const long double determinant = std::abs(at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0));
      long double squares = 0;
      for (const auto& z : a.elements) squares += std::norm(C(z.real(), z.imag()));
      const long double u = reference_roundoff(dtype);
      EXPECT_NEAR(static_cast<double>((s[0] * s[0] + s[1] * s[1]) / squares - 1), 0, static_cast<double>(20 * u));
      EXPECT_NEAR(static_cast<double>((s[0] * s[1] - determinant) / squares), 0, static_cast<double>(20 * u));
    }
  }
}

// det H_n = c_n^4 / c_2n, c_n = 1! 2! .. (n-1)!; the elements 1/(i+j+1) of n <= 3 times 60 are exact.
TEST(ReferenceSvd, HilbertHasTheRightDeterminant) {
  Matrix a(DType::kF64, 3, 3);
  for (int64_t j = 0; j < 3; ++j) {
    for (int64_t i = 0; i < 3; ++i) a.at(i, j) = 60.0 / static_cast<double>(i + j + 1);
  }
  const auto s = reference_singular_values(a);
  const long double determinant = 60.0L * 60 * 60 / 2160;
  EXPECT_NEAR(static_cast<double>(s[0] * s[1] * s[2] / determinant - 1), 0, 1e-15);
}

// The n x n matrix with 1 on and above the diagonal has the values 1 / (2 sin((2 i - 1) pi / (4 n + 2))).
TEST(ReferenceSvd, TriangleOfOnesHasItsClosedForm) {
  for (const DType dtype : kDTypes) {
    for (int64_t n = 1; n <= 32; ++n) {
      Matrix a(dtype, n, n);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i <= j; ++i) a.at(i, j) = 1;
      }
      const auto s = reference_singular_values(a);
      for (int64_t i = 1; i <= n; ++i) {
        const long double expected =
            1 / (2 * std::sin(static_cast<long double>(2 * i - 1) * std::numbers::pi_v<long double> /
                              static_cast<long double>(4 * n + 2)));
        EXPECT_NEAR(static_cast<double>((s[static_cast<size_t>(i - 1)] - expected) / s[0]), 0,
                    static_cast<double>(40 * reference_roundoff(dtype)))
            << "n " << n << " i " << i;
      }
    }
  }
}

TEST(ReferenceSvd, OrthonormalColumnsHaveEqualValues) {
  for (const DType dtype : {DType::kF64, DType::kC128}) {
    Random random(5);
    const Matrix q = orthonormal_columns(dtype, 90, 17, random);
    for (const long double s : reference_singular_values(q)) EXPECT_NEAR(static_cast<double>(s), 1, 1e-14);
    EXPECT_LT(unit_column_condition(q), 1 + 1e-13);
  }
}

TEST(ReferenceSvd, ZeroMatrixAndZeroColumns) {
  for (const DType dtype : kDTypes) {
    for (const long double s : reference_singular_values(Matrix(dtype, 5, 3))) EXPECT_EQ(s, 0);
    EXPECT_TRUE(std::isinf(unit_column_condition(Matrix(dtype, 5, 3))));
  }
}

// Every kind, against LAPACK. Agreement within LAPACK's own error proves neither to the last bit, but no gross slip (a
// missing conjugate, a wrong reflector) survives it.
TEST(ReferenceSvd, AgreesWithLapackOnEveryKind) {
  for (const DType dtype : kDTypes) {
    for (const Kind kind : kinds(dtype)) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{5, 5}, {20, 7}, {6, 31}, {300, 9}}) {
        const Matrix a = generate(kind, dtype, rows, cols, 3);
        const auto s = reference_singular_values(a);
        for (const auto& peer : {gesvd(a), gesdd(a)}) {
          if (peer.empty() && kSanitized) continue;
          ASSERT_EQ(peer.size(), s.size());
          for (size_t i = 0; i < s.size(); ++i) {
            // At the top of the range LAPACK gives infinities, and its complex drivers NaNs.
            if (kind == Kind::kOverflowing || (kind == Kind::kOverflowEntry && !std::isfinite(peer[i]))) continue;
            const long double allowed = 100 * s[0] * static_cast<long double>(real_type(dtype).unit_roundoff) +
                                        2 * static_cast<long double>(real_type(dtype).smallest_denormal);
            EXPECT_LE(std::abs(static_cast<long double>(peer[i]) - s[i]), allowed)
                << name(dtype) << " " << name(kind) << " " << rows << "x" << cols << " value " << i;
          }
        }
      }
    }
  }
}

#if defined(__SIZEOF_FLOAT128__)
template <class Element>
std::vector<long double> quadruple(const Matrix& a) {
  Quadruple u = 1;
  for (int bit = 0; bit < 113; ++bit) u /= 2;
  const auto s = ReferenceJacobi<Quadruple, Element>::singular_values(columns_of<Element>(a), u);
  return {s.begin(), s.end()};
}

void expect_agreement(Kind kind, DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  const Matrix a = generate(kind, dtype, rows, cols, seed);
  const auto s = reference_singular_values(a);
  const auto exact = is_complex(dtype) ? quadruple<PlainComplex<Quadruple>>(a) : quadruple<Quadruple>(a);
  const long double u = reference_roundoff(dtype);
  const bool relative = kind == Kind::kColumnGraded;
  for (size_t i = 0; i < s.size(); ++i) {
    const long double scale = relative ? exact[i] : exact[0];
    EXPECT_LE(std::abs(s[i] - exact[i]), 60 * u * scale)
        << name(dtype) << " " << name(kind) << " " << rows << "x" << cols << " value " << i;
  }
}

// 60 u of the reference's own arithmetic is 0.03 units of the last place of a double: far below every bound.
TEST(ReferenceSvd, AgreesWithQuadruplePrecision) {
  for (const DType dtype : kDTypes) {
    for (const Kind kind : kinds(dtype)) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{2, 2}, {4, 4}, {8, 8}, {13, 5}, {5, 40}, {16, 16}}) {
        for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(3)); ++seed) {
          expect_agreement(kind, dtype, rows, cols, seed);
        }
      }
    }
    expect_agreement(Kind::kNormal, dtype, 32, 32, 1);
    expect_agreement(Kind::kColumnGraded, dtype, 2000, 4, 1);
  }
}
#endif

}  // namespace
}  // namespace svdserve::numerics
