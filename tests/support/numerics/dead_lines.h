// Matrices with lines that are dead: zero, or copies of others; and graded.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_DEAD_LINES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_DEAD_LINES_H_

#include <cmath>
#include <complex>
#include <cstdint>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// The first `rows` rows and `cols` columns live (0: all); those that follow are zero, or repeat the living ones in
// turn. Living row i is multiplied by 2^(-row_step i), living column j by 2^(col_step j).
struct DeadLines {
  int64_t rows = 0, cols = 0;
  bool copies = false;
  int row_step = 0, col_step = 0;
};

// Exact, as long as nothing under- or overflows.
inline Matrix with_dead_lines(const Matrix& a, const DeadLines& lines) {
  const int64_t rows = lines.rows > 0 ? lines.rows : a.rows, cols = lines.cols > 0 ? lines.cols : a.cols;
  Matrix b(a.dtype, a.rows, a.cols);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      if (!lines.copies && (i >= rows || j >= cols)) continue;
      const int64_t row = i % rows, col = j % cols;
      const auto exponent = lines.col_step * col - lines.row_step * row;
      b.at(i, j) = a.at(row, col) * std::exp2(static_cast<double>(exponent));
    }
  }
  return b;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_DEAD_LINES_H_
