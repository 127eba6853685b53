// Eigenvectors of general matrices: columns of norm one.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_UNIT_COLUMNS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_UNIT_COLUMNS_H_

#include <complex>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

inline void expect_unit_columns(const Matrix& x, double bound) {
  for (int64_t j = 0; j < x.cols; ++j) {
    double square = 0;
    for (int64_t i = 0; i < x.rows; ++i) square += std::norm(x.at(i, j));
    EXPECT_NEAR(square, 1, bound) << j;
  }
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_UNIT_COLUMNS_H_
