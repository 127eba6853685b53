// The columns of a matrix (of its conjugate transpose where it is wide) in the element type of a reference.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_COLUMNS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_COLUMNS_H_

#include <algorithm>
#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/reference_jacobi.h"

namespace svdserve::numerics {

template <class Real>
void assign(Real& x, std::complex<double> z) {
  x = static_cast<Real>(z.real());
}
template <class Real>
void assign(PlainComplex<Real>& x, std::complex<double> z) {
  x = {static_cast<Real>(z.real()), static_cast<Real>(z.imag())};
}

template <class Element>
std::vector<std::vector<Element>> columns_of(const Matrix& a) {
  const bool wide = a.rows < a.cols;
  const int64_t m = std::max(a.rows, a.cols);
  const int64_t n = std::min(a.rows, a.cols);
  std::vector<std::vector<Element>> columns(static_cast<size_t>(n), std::vector<Element>(static_cast<size_t>(m)));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      assign(columns[static_cast<size_t>(j)][static_cast<size_t>(i)], wide ? std::conj(a.at(j, i)) : a.at(i, j));
    }
  }
  return columns;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_COLUMNS_H_
