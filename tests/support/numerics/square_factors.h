// U, S and V of one square matrix that an algorithm for a GPU's threads made on fibers, and their errors.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SQUARE_FACTORS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SQUARE_FACTORS_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

#include "engine/result.h"
#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

using Wide = std::complex<long double>;

template <class E>
constexpr DType dtype_of() {
  constexpr bool kSingle = sizeof(typename E::Scalar) == 4;
  return E::kComplex ? (kSingle ? DType::kC64 : DType::kC128) : (kSingle ? DType::kF32 : DType::kF64);
}
template <class E>
std::complex<double> number(const E& x) {
  if constexpr (E::kComplex) return {x.re.v, x.im.v};
  return {x.re.v, 0};
}

struct Factors {
  Matrix u, v;
  std::vector<double> s;
  MatrixStatus status = MatrixStatus{99};
  bool vectors_finite = true;

  friend bool operator==(const Factors& a, const Factors& b) {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
    };
    return same(a.u.elements, b.u.elements) && same(a.v.elements, b.v.elements) && same(a.s, b.s) &&
           a.status == b.status;
  }
};

// |I - Q^H Q|_F, columns of zeros taken for complete: they are completed later (basis_completion.h).
inline long double orthogonality(const Matrix& q) {
  long double sum = 0;
  for (int64_t i = 0; i < q.cols; ++i) {
    for (int64_t j = 0; j < q.cols; ++j) {
      Wide dot = 0;
      for (int64_t l = 0; l < q.rows; ++l) dot += std::conj(Wide(q.at(l, i))) * Wide(q.at(l, j));
      sum += std::norm(dot - Wide(i == j && dot != Wide(0) ? 1 : 0));
    }
  }
  return std::sqrt(sum);
}

// |A - U S V^H|_F / |A|_F
inline long double residual(const Matrix& a, const Factors& f) {
  long double scale = 0, error = 0, norm = 0;
  for (const auto& z : a.elements) scale = std::max<long double>({scale, std::abs(z.real()), std::abs(z.imag())});
  if (scale == 0) return 0;
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) {
      const Wide x = Wide(a.at(i, j)) / scale;
      Wide sum = 0;
      for (int64_t l = 0; l < a.cols; ++l) {
        const long double s = f.s[static_cast<size_t>(l)];
        sum += Wide(f.u.at(i, l)) * (s / scale) * std::conj(Wide(f.v.at(j, l)));
      }
      error += std::norm(x - sum);
      norm += std::norm(x);
    }
  }
  return std::sqrt(error / norm);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_SQUARE_FACTORS_H_
