// Eigenvalues of Hermitian matrices in a precision well above the one under test.
//
//   M = U L U^H:   rotations of rows and columns (p, q), cyclically, until |off-diagonal|_F <= u(Real) |M|_F
// Source: Golub and Van Loan, Matrix Computations, section 8.5 (two-sided Jacobi). It shares no code and no method with
// the one-sided Jacobi under test. Accuracy: about n u(Real) |M|_F. Cost: 8 n^3 operations a sweep, some 10 sweeps.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HERMITIAN_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HERMITIAN_H_

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/quadruple.h"

namespace svdserve::numerics {

// By the lower triangle of m, of which the diagonal's imaginary parts are not read. Ascending, rounded to long double.
inline std::vector<long double> reference_eigenvalues(const Matrix& m) {
  using Number = PlainComplex<Quadruple>;
  const int64_t n = m.rows;
  std::vector<Number> a(static_cast<size_t>(n * n));
  const auto at = [&](int64_t i, int64_t j) -> Number& { return a[static_cast<size_t>(j * n + i)]; };
  double largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      largest = std::max({largest, std::abs(m.at(i, j).real()), i == j ? 0 : std::abs(m.at(i, j).imag())});
    }
  }
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  Quadruple norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      // Exact: a quadruple has the exponents of every double.
      const Quadruple re = std::scalbn(static_cast<long double>(m.at(i, j).real()), -exponent);
      const Quadruple im = i == j ? 0 : std::scalbn(static_cast<long double>(m.at(i, j).imag()), -exponent);
      at(i, j) = {re, im};
      at(j, i) = {re, -im};
      norm += (i == j ? 1 : 2) * (re * re + im * im);
    }
  }
  const Quadruple bound = norm * static_cast<Quadruple>(0x1p-110) * static_cast<Quadruple>(0x1p-110);
  const auto off_diagonal = [&] {
    Quadruple sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j + 1; i < n; ++i) sum += squared(at(i, j));
    }
    return sum;
  };
  for (int sweep = 0; off_diagonal() > bound; ++sweep) {
    if (sweep == 60) throw std::logic_error("the reference did not converge");
    for (int64_t p = 0; p + 1 < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const Quadruple size = SquareRoot<Quadruple>::of(squared(at(p, q)));
        if (size * size <= bound / static_cast<Quadruple>(n * n)) continue;
        const Number w{at(p, q).re / size, at(p, q).im / size};  // a_pq = |a_pq| w
        const Quadruple tau = (at(q, q).re - at(p, p).re) / (2 * size);
        const Quadruple root = SquareRoot<Quadruple>::of(1 + tau * tau),
                        t = tau >= 0 ? 1 / (tau + root) : 1 / (tau - root);
        const Quadruple c = 1 / SquareRoot<Quadruple>::of(1 + t * t), s = t * c;
        // Columns p, q := (c p - s conj(w) q, s w p + c q); then rows by the adjoint.
        const auto rotate = [&](Number& x, Number& y,
                                Number phase) {  // x := c x - s conj(phase) y, y := s phase x + c y
          const Number old = x;
          x = {c * old.re - s * (phase.re * y.re + phase.im * y.im),
               c * old.im - s * (phase.re * y.im - phase.im * y.re)};
          y = {s * (phase.re * old.re - phase.im * old.im) + c * y.re,
               s * (phase.re * old.im + phase.im * old.re) + c * y.im};
        };
        for (int64_t i = 0; i < n; ++i) rotate(at(i, p), at(i, q), w);
        for (int64_t i = 0; i < n; ++i) rotate(at(p, i), at(q, i), {w.re, -w.im});
      }
    }
  }
  std::vector<long double> values;
  for (int64_t j = 0; j < n; ++j) values.push_back(std::scalbn(static_cast<long double>(at(j, j).re), exponent));
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HERMITIAN_H_
