// Code that is written once for real and for complex numbers asks these.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_CONJUGATE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_CONJUGATE_H_

#include <complex>

namespace svdserve::host {

template <class E>
inline constexpr bool kComplex = false;
template <class T>
inline constexpr bool kComplex<std::complex<T>> = true;

// A real number is its own conjugate.
template <class E>
E conjugate(const E& x) {
  if constexpr (kComplex<E>) {
    return std::conj(x);
  } else {
    return x;
  }
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_CONJUGATE_H_
