// Small functions of numbers that are double or std::complex<double>, for code that is written once for both.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_NUMBERS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_NUMBERS_H_

#include <cmath>
#include <complex>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

inline constexpr double kU = 0x1p-53;  // the unit roundoff
inline constexpr double kUlp = 2 * kU;

inline double real_of(double x) { return x; }
inline double real_of(const Complex& x) { return x.real(); }
inline double square_of(double x) { return x * x; }
inline double square_of(const Complex& x) { return x.real() * x.real() + x.imag() * x.imag(); }
// |x|, or a norm between |x| and sqrt(2) |x|.
inline double size_of(double x) { return std::abs(x); }
inline double size_of(const Complex& x) { return std::abs(x.real()) + std::abs(x.imag()); }
// Without the test for infinite factors that the operator has.
inline double times(double a, double b) { return a * b; }
inline Complex times(const Complex& a, const Complex& b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_NUMBERS_H_
