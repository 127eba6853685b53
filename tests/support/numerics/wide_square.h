// Small square matrices of long double.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_WIDE_SQUARE_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_WIDE_SQUARE_H_

#include <complex>
#include <cstddef>
#include <vector>

namespace svdserve::numerics {

// n x n, by columns.
struct WideSquare {
  using Number = std::complex<long double>;
  int n;
  std::vector<Number> x;
  explicit WideSquare(int order) : n(order), x(static_cast<size_t>(order) * order) {}
  Number& operator()(int i, int j) { return x[static_cast<size_t>(j) * n + i]; }
  Number operator()(int i, int j) const { return x[static_cast<size_t>(j) * n + i]; }
};

inline WideSquare product(const WideSquare& a, const WideSquare& b) {
  WideSquare c(a.n);
  for (int j = 0; j < a.n; ++j) {
    for (int l = 0; l < a.n; ++l) {
      for (int i = 0; i < a.n; ++i) c(i, j) += a(i, l) * b(l, j);
    }
  }
  return c;
}

inline WideSquare adjoint(const WideSquare& a) {
  WideSquare b(a.n);
  for (int j = 0; j < a.n; ++j) {
    for (int i = 0; i < a.n; ++i) b(j, i) = std::conj(a(i, j));
  }
  return b;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_WIDE_SQUARE_H_
