// Complex numbers of double precision that CPU and GPU share, laid out as std::complex<double> and cuDoubleComplex. The
// few operations are those that code for real and complex elements is written in. Every fused multiply-add is explicit.
#ifndef SVDSERVE_ENGINE_CORE_COMPLEX_H_
#define SVDSERVE_ENGINE_CORE_COMPLEX_H_

#include <cmath>

#include "engine/core/kernel_namespace.h"

namespace svdserve {

struct alignas(16) Complex {
  double re, im;
};

template <class E>
inline constexpr bool kIsComplex = false;
template <>
inline constexpr bool kIsComplex<Complex> = true;

template <class E>
SVD_HD E from_real(double x) {
  if constexpr (kIsComplex<E>) {
    return {x, 0};
  } else {
    return x;
  }
}

SVD_HD double conjugate(double x) { return x; }
SVD_HD Complex conjugate(Complex x) { return {x.re, -x.im}; }

SVD_HD double real_part(double x) { return x; }
SVD_HD double real_part(Complex x) { return x.re; }

SVD_HD double squared_modulus(double x) { return x * x; }
SVD_HD double squared_modulus(Complex x) { return std::fma(x.re, x.re, x.im * x.im); }

// r x for a real r
SVD_HD double times_real(double x, double r) { return x * r; }
SVD_HD Complex times_real(Complex x, double r) { return {x.re * r, x.im * r}; }

// x + r for a real r
SVD_HD double plus_real(double x, double r) { return x + r; }
SVD_HD Complex plus_real(Complex x, double r) { return {x.re + r, x.im}; }

// sum + x y
SVD_HD double plus_product(double sum, double x, double y) { return std::fma(x, y, sum); }
SVD_HD Complex plus_product(Complex sum, Complex x, Complex y) {
  sum.re = std::fma(x.re, y.re, sum.re);
  sum.im = std::fma(x.re, y.im, sum.im);
  sum.re = std::fma(-x.im, y.im, sum.re);
  sum.im = std::fma(x.im, y.re, sum.im);
  return sum;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CORE_COMPLEX_H_
