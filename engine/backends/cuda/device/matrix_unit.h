// A GPU's matrix units in double precision, D += A B by one warp. In the names of PTX, lane = 4 g + t:
//   8 x 8 x 4     a: A(g, t)   b: B(t, g)   d[0], d[1]: D(g, 2 t), D(g, 2 t + 1)
//   16 x 8 x 16   a[2 c + h]: A(g + 8 h, 4 c + t)   b[c]: B(4 c + t, g)   d[2 h + e]: D(g + 8 h, 2 t + e)
// Complex products are four real ones. Same operands, same bits, on one architecture.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_MATRIX_UNIT_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_MATRIX_UNIT_H_

#include "engine/core/complex.h"

namespace svdserve::cuda {

__device__ __forceinline__ void multiply_8x8x4(double (&d)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
}
__device__ __forceinline__ void multiply_8x8x4(svdserve::Complex (&d)[2], svdserve::Complex a, svdserve::Complex b) {
  double re[2] = {d[0].re, d[1].re}, im[2] = {d[0].im, d[1].im};
  multiply_8x8x4(re, a.re, b.re);
  multiply_8x8x4(im, a.re, b.im);
  multiply_8x8x4(re, -a.im, b.im);
  multiply_8x8x4(im, a.im, b.re);
  d[0] = {re[0], im[0]};
  d[1] = {re[1], im[1]};
}

__device__ __forceinline__ void multiply_16x8x16(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
#else
  double upper[2] = {d[0], d[1]}, lower[2] = {d[2], d[3]};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    multiply_8x8x4(upper, a[2 * c], b[c]);
    multiply_8x8x4(lower, a[2 * c + 1], b[c]);
  }
  d[0] = upper[0];
  d[1] = upper[1];
  d[2] = lower[0];
  d[3] = lower[1];
#endif
}

// The components of operands, so that one loop serves real and complex elements: [0] real, [1] imaginary.
template <class E, int N>
struct Fragment {
  static constexpr int kParts = kIsComplex<E> ? 2 : 1;
  double part[kParts][N];

  __device__ __forceinline__ void set(int i, E x) {
    if constexpr (kIsComplex<E>) {
      part[0][i] = x.re;
      part[1][i] = x.im;
    } else {
      part[0][i] = x;
    }
  }
  __device__ __forceinline__ E get(int i) const {
    if constexpr (kIsComplex<E>) {
      return {part[0][i], part[1][i]};
    } else {
      return part[0][i];
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int i = 0; i < N; ++i) part[p][i] = 0;
    }
  }
};

// d += a b, or conj(a) b.
template <bool kConjugate, class E>
__device__ __forceinline__ void multiply(Fragment<E, 4>& d, const Fragment<E, 8>& a, const Fragment<E, 4>& b) {
  multiply_16x8x16(d.part[0], a.part[0], b.part[0]);
  if constexpr (kIsComplex<E>) {
    double minus[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) minus[i] = -a.part[1][i];
    multiply_16x8x16(d.part[1], a.part[0], b.part[1]);
    if constexpr (kConjugate) {
      multiply_16x8x16(d.part[0], a.part[1], b.part[1]);
      multiply_16x8x16(d.part[1], minus, b.part[0]);
    } else {
      multiply_16x8x16(d.part[0], minus, b.part[1]);
      multiply_16x8x16(d.part[1], a.part[1], b.part[0]);
    }
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_MATRIX_UNIT_H_
