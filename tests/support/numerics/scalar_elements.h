// Elements of one scalar lane, real or complex.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SCALAR_ELEMENTS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SCALAR_ELEMENTS_H_

#include <complex>

#include "engine/core/element.h"

namespace svdserve::numerics {

template <class T>
using Real = scalar::RealElement<scalar::ScalarLane<T>>;
template <class T>
using Complex = scalar::ComplexElement<scalar::ScalarLane<T>>;

// z in the precision of E, without its imaginary part where E is real.
template <class E>
E element(std::complex<double> z) {
  using L = typename E::Lane;
  using T = typename E::Scalar;
  E x;
  x.re = L(static_cast<T>(z.real()));
  if constexpr (E::kComplex) x.im = L(static_cast<T>(z.imag()));
  return x;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_SCALAR_ELEMENTS_H_
