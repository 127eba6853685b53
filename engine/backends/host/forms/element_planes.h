// Elements of one matrix on their way into the planes of a reduction, and of its reflectors on the way out.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_ELEMENT_PLANES_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_ELEMENT_PLANES_H_

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/forms/bidiagonal_reduction.h"

namespace svdserve::host {

// Element (i, j) of a matrix lies at data[i * row_stride + j * col_stride].
template <class E>
struct StridedMatrix {
  const E* data;
  int64_t rows, cols, row_stride, col_stride;
};

template <class E>
inline constexpr int kPlanesOf = std::is_same_v<E, RealNumber<E>> ? 1 : 2;

template <class T>
T magnitude(T x) {
  return std::abs(x);
}
template <class T>
T magnitude(const std::complex<T>& x) {  // its larger component; NaN where one is
  const T re = std::abs(x.real()), im = std::abs(x.imag());
  return im > re || std::isnan(im) ? im : re;
}
template <class T>
T without_sign_of_zero(T x) {
  return x + T(0);
}
template <class T>
std::complex<T> without_sign_of_zero(const std::complex<T>& x) {
  return {x.real() + T(0), x.imag() + T(0)};
}

// The two factors of 2^-exponent: one alone might be out of range.
template <class T>
std::pair<T, T> inverse_power(int exponent) {
  const int half = -exponent / 2;
  return {std::ldexp(T(1), half), std::ldexp(T(1), -exponent - half)};
}

// The matrix in planes, of leading dimension ld, by its elements and by those of its adjoint.
template <class E>
struct PlaneElements {
  const RealNumber<E>* planes;
  int ld;

  E operator()(int i, int j) const {
    const RealNumber<E>* const at = planes + static_cast<ptrdiff_t>(j) * kPlanesOf<E> * ld + i;
    if constexpr (kPlanesOf<E> == 1) {
      return *at;
    } else {
      return {at[0], at[ld]};
    }
  }
  E adjoint(int i, int j) const {
    if constexpr (kPlanesOf<E> == 1) {
      return (*this)(j, i);
    } else {
      return std::conj((*this)(j, i));
    }
  }
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_ELEMENT_PLANES_H_
