// The test matrices are what their names say: a generator that slips would make every test above it say nothing.
#include "tests/support/numerics/matrix_generators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

TEST(MatrixGenerators, EveryKindIsFiniteExactInItsTypeAndReproducible) {
  for (const DType dtype : kDTypes) {
    for (const Kind kind : kinds(dtype)) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {7, 1}, {6, 6}, {30, 9}, {9, 30}}) {
        const Matrix a = generate(kind, dtype, rows, cols, 11);
        ASSERT_EQ(a.rows, rows);
        ASSERT_EQ(a.cols, cols);
        for (const auto& z : a.elements) {
          ASSERT_TRUE(std::isfinite(z.real()) && std::isfinite(z.imag())) << name(kind);
          ASSERT_TRUE(is_complex(dtype) || z.imag() == 0);
          ASSERT_TRUE(value_bytes(dtype) == 8 || z.real() == static_cast<double>(static_cast<float>(z.real())))
              << name(kind) << " " << rows << "x" << cols << " " << z;
        }
        const Matrix again = generate(kind, dtype, rows, cols, 11);
        ASSERT_EQ(pack({a}, Order::kRowMajor), pack({again}, Order::kRowMajor)) << name(kind);
      }
    }
  }
}

TEST(MatrixGenerators, ColumnGradedHasTheConditionAndTheRangeOfTheContract) {
  for (const DType dtype : kDTypes) {
    const double decades = value_bytes(dtype) == 4 ? 15 : 150;
    for (int64_t k = 1; k <= 32; ++k) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{k, k}, {3 * k, k}, {k, k + 5}}) {
        const Matrix a = generate(Kind::kColumnGraded, dtype, rows, cols, 2);
        EXPECT_LE(unit_column_condition(a), 10) << name(dtype) << " " << rows << "x" << cols;
        if (k < 2) continue;
        const auto s = reference_singular_values(a);
        EXPECT_GT(s.front() / s.back(), std::pow(10.0L, 2 * decades - 2));
      }
    }
  }
}

int64_t numerical_rank(const Matrix& a) {
  const auto s = reference_singular_values(a);
  const long double floor = 100 * s[0] * static_cast<long double>(real_type(a.dtype).unit_roundoff);
  return std::count_if(s.begin(), s.end(), [&](long double x) { return x > floor; });
}

TEST(MatrixGenerators, RanksAreAsNamed) {
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{8, 8}, {20, 8}, {8, 20}}) {
      EXPECT_EQ(numerical_rank(generate(Kind::kOuterProduct, dtype, rows, cols, 1)), 1);
      EXPECT_EQ(numerical_rank(generate(Kind::kLowRank, dtype, rows, cols, 1)), 4);
      EXPECT_LE(numerical_rank(generate(Kind::kDuplicates, dtype, rows, cols, 1)), 4);
      EXPECT_EQ(numerical_rank(generate(Kind::kZero, dtype, rows, cols, 1)), 0);
      EXPECT_EQ(numerical_rank(generate(Kind::kOneEntry, dtype, rows, cols, 1)), 1);
    }
  }
}

TEST(MatrixGenerators, EndsOfTheRangeAreReached) {
  for (const DType dtype : kDTypes) {
    const RealType real = real_type(dtype);
    const auto has_magnitude = [](const Matrix& a, double magnitude) {
      return std::any_of(a.elements.begin(), a.elements.end(), [&](const std::complex<double>& z) {
        return std::max(std::abs(z.real()), std::abs(z.imag())) == magnitude;
      });
    };
    EXPECT_TRUE(has_magnitude(generate(Kind::kOverflowEntry, dtype, 4, 4, 1), real.largest));
    EXPECT_TRUE(has_magnitude(generate(Kind::kUnderflowEntry, dtype, 4, 4, 1), real.smallest_normal));
    EXPECT_GT(reference_singular_values(generate(Kind::kOverflowing, dtype, 4, 4, 1))[0],
              static_cast<long double>(real.largest));
    EXPECT_LT(reference_singular_values(generate(Kind::kHuge, dtype, 4, 4, 1))[0],
              static_cast<long double>(real.largest));
    EXPECT_GT(reference_singular_values(generate(Kind::kHuge, dtype, 4, 4, 1))[0],
              static_cast<long double>(real.largest) / 16);
    EXPECT_LT(reference_singular_values(generate(Kind::kDenormals, dtype, 4, 4, 1))[0],
              static_cast<long double>(real.smallest_normal));
    EXPECT_GT(reference_singular_values(generate(Kind::kDenormals, dtype, 4, 4, 1))[0], 0);
  }
}

TEST(MatrixGenerators, OrdersDescribeTheSameMatrix) {
  const Matrix a = generate(Kind::kNormal, DType::kC64, 3, 5, 1);
  const auto rows = pack({a}, Order::kRowMajor);
  const auto columns = pack({a}, Order::kColumnMajor);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(std::memcmp(&rows[(i * 5 + j) * 8], &columns[(j * 3 + i) * 8], 8), 0);
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
