// Singular vectors as planes hold them, widened, and what they are worth, in long double.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_CHECKS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_CHECKS_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/planes_run.h"

namespace svdserve::numerics {

using Wide = std::complex<long double>;

// A matrix of a plane, widened. rows x cols in the plan's order.
struct Dense {
  int64_t rows, cols;
  std::vector<Wide> at_;
  const Wide& at(int64_t i, int64_t j) const { return at_[static_cast<size_t>(i * cols + j)]; }
};

inline Dense load(const Problem& p, const PlanesResult& result, Plane plane, int64_t matrix, int64_t rows,
                  int64_t cols) {
  const int64_t components = is_complex(p.dtype) ? 2 : 1, numbers = rows * cols * components;
  const auto flat = result.numbers(p.dtype, plane, matrix * numbers, numbers);
  Dense d{rows, cols, std::vector<Wide>(static_cast<size_t>(rows * cols))};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t number = p.order == Order::kRowMajor ? i * cols + j : j * rows + i;
      const auto at = static_cast<size_t>(number * components);
      d.at_[static_cast<size_t>(i * cols + j)] = {flat[at], components == 2 ? flat[at + 1] : 0.0};
    }
  }
  return d;
}

// |I - U^H U|_F of the columns, or of the rows of V^H.
inline long double orthogonality(const Dense& d, bool of_rows) {
  const int64_t count = of_rows ? d.rows : d.cols, length = of_rows ? d.cols : d.rows;
  long double sum = 0;
  for (int64_t a = 0; a < count; ++a) {
    for (int64_t b = a; b < count; ++b) {
      Wide dot = 0;
      for (int64_t i = 0; i < length; ++i) {
        dot += of_rows ? d.at(a, i) * std::conj(d.at(b, i)) : std::conj(d.at(i, a)) * d.at(i, b);
      }
      if (a == b) dot -= Wide(1);
      sum += (a == b ? 1 : 2) * std::norm(dot);
    }
  }
  return std::sqrt(sum);
}

// |A - U S V^H|_F / |A|_F
inline long double residual(const Matrix& a, const Dense& u, const std::vector<double>& s, const Dense& vh) {
  long double scale = 0;
  for (const auto& z : a.elements) scale = std::max<long double>({scale, std::abs(z.real()), std::abs(z.imag())});
  if (scale == 0) return 0;
  long double error = 0, size = 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) {
      Wide sum = 0;
      for (size_t l = 0; l < s.size(); ++l) {
        const auto c = static_cast<int64_t>(l);
        sum += u.at(i, c) * static_cast<long double>(s[l]) / scale * vh.at(c, j);
      }
      const Wide x = Wide(a.at(i, j).real(), a.at(i, j).imag()) / scale;
      error += std::norm(x - sum);
      size += std::norm(x);
    }
  }
  return std::sqrt(error / size);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_VECTOR_CHECKS_H_
