// Columns of any finite numbers: their norms as pairs of mantissa and exponent, and exact scaling. See
// algorithms/large/large_backend.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_SCALED_COLUMNS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_SCALED_COLUMNS_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/conjugate.h"

namespace svdserve::host {

// max(|re|, |im|): no overflow.
inline double magnitude(double x) { return std::abs(x); }
inline double magnitude(const std::complex<double>& x) { return std::max(std::abs(x.real()), std::abs(x.imag())); }

template <class E>
double* numbers(E* x) {
  return reinterpret_cast<double*>(x);  // std::complex is an array of two
}
template <class E>
int64_t number_count(int64_t elements) {
  return kComplex<E> ? 2 * elements : elements;
}

// Sum of f(i), by eight partial sums, which the compiler keeps in vector registers.
template <class F>
double sum_of(int64_t count, const F& f) {
  double partial[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) partial[k] += f(i + k);
  }
  for (; i < count; ++i) partial[0] += f(i);
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}
inline double scaled_square(const double* x, int64_t count, double s) {
  return sum_of(count, [=](int64_t i) { return (x[i] * s) * (x[i] * s); });
}
inline double dot(const double* x, const double* y, int64_t count) {
  return sum_of(count, [=](int64_t i) { return x[i] * y[i]; });
}

inline double largest_magnitude(const double* x, int64_t count) {
  double partial[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int k = 0; k < 8; ++k) partial[k] = std::max(partial[k], std::abs(x[i + k]));
  }
  for (; i < count; ++i) partial[0] = std::max(partial[0], std::abs(x[i]));
  return *std::max_element(partial, partial + 8);
}

// |x| of any finite x as mantissa and exponent. As DRDSSQ (Novakovic 2015, appendix A), with one scale, found by a pass
// before the sum. Components that underflow beside the largest are too small to count.
inline large::ScaledNorm norm_of(const double* x, int64_t count) {
  const double largest = largest_magnitude(x, count);
  if (largest == 0) return {};
  int e;
  std::frexp(largest, &e);
  // 2^-e overflows for denormal columns; their squares then are taken of numbers up to 2^-50, which is enough.
  const int shift = std::min(-e, 1020);
  int exponent;
  const double mantissa = std::frexp(std::sqrt(scaled_square(x, count, std::ldexp(1.0, shift))), &exponent);
  return {mantissa, exponent - shift};
}

// x := 2^e x, exactly unless it underflows.
inline void scale_by_power(double* x, int64_t count, int e) {
  while (e != 0) {
    const int step = std::clamp(e, -1000, 1000);
    const double factor = std::ldexp(1.0, step);
    for (int64_t i = 0; i < count; ++i) x[i] *= factor;
    e -= step;
  }
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_SCALED_COLUMNS_H_
