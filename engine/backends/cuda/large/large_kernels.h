// Kernels of the operations on a large matrix that are not matrix products: conversion, norms, permutations, scaling.
// Each is bound by memory. E: double or Complex; matrices are column-major.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

using large::kZeroColumn;
using large::LargeView;

// --- numbers ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ double exact_power(int e) {
  return __longlong_as_double(static_cast<long long>(e + 1023) << 52);
}
// x 2^e, rounded once unless the result is denormal.
__device__ __forceinline__ double shifted(double x, int e) {
  const int most = e < -2100 ? -2100 : e > 2100 ? 2100 : e;
  const int third = most / 3;
  return x * exact_power(third) * exact_power(third) * exact_power(most - 2 * third);
}
__device__ __forceinline__ svdserve::Complex shifted(svdserve::Complex x, int e) {
  return {shifted(x.re, e), shifted(x.im, e)};
}

// The larger of |re| and |im|.
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ double magnitude(svdserve::Complex x) { return fmax(fabs(x.re), fabs(x.im)); }

// Elements of operands and results.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T re, im;
};
__device__ __forceinline__ double widened(float x) { return x; }
__device__ __forceinline__ double widened(double x) { return x; }
template <class T>
__device__ __forceinline__ svdserve::Complex widened(Pair<T> x) {
  return {static_cast<double>(x.re), static_cast<double>(x.im)};
}
template <class T>
__device__ __forceinline__ void narrow(double x, T& out) {
  out = static_cast<T>(x);
}
template <class T>
__device__ __forceinline__ void narrow(svdserve::Complex x, Pair<T>& out) {
  out = {static_cast<T>(x.re), static_cast<T>(x.im)};
}
__device__ __forceinline__ bool finite(double x) { return isfinite(x); }
__device__ __forceinline__ bool finite(svdserve::Complex x) { return isfinite(x.re) && isfinite(x.im); }

// --- an entry a thread --------------------------------------------------------------------------------------------

// f(i, j) for all entries.
template <class F>
__global__ void __launch_bounds__(256) entries_kernel(int64_t rows, int64_t cols, F f) {
  const int64_t all = rows * cols, step = int64_t{blockDim.x} * gridDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < all; e += step) f(e % rows, e / rows);
}

template <class E>
struct SetDiagonal {
  LargeView<E> a;
  double value;
  __device__ void operator()(int64_t i, int64_t j) const { a.data[j * a.ld + i] = from_real<E>(i == j ? value : 0); }
};
template <class E>
struct GatherRows {  // to(i, j) := from(order[i], j)
  LargeView<E> from, to;
  const int64_t* order;
  __device__ void operator()(int64_t i, int64_t j) const { to.data[j * to.ld + i] = from.data[j * from.ld + order[i]]; }
};
template <class E>
struct GatherColumns {  // to(i, j) := from(i, order[j])
  LargeView<E> from, to;
  const int64_t* order;
  __device__ void operator()(int64_t i, int64_t j) const { to.data[j * to.ld + i] = from.data[order[j] * from.ld + i]; }
};
template <class E>
struct ScaledColumnsTo {  // to(i, j) := by[j] from(i, j)
  LargeView<E> from, to;
  const double* by;
  __device__ void operator()(int64_t i, int64_t j) const {
    to.data[j * to.ld + i] = times_real(from.data[j * from.ld + i], by[j]);
  }
};
template <class E>
struct ReverseColumns {
  LargeView<E> from, to;
  __device__ void operator()(int64_t i, int64_t j) const {
    to.data[j * to.ld + i] = from.data[(from.cols - 1 - j) * from.ld + i];
  }
};
template <class E>
struct ScaleColumns {
  LargeView<E> x;
  const double* by;
  __device__ void operator()(int64_t i, int64_t j) const {
    x.data[j * x.ld + i] = times_real(x.data[j * x.ld + i], by[j]);
  }
};
template <class E>
struct ShiftColumns {  // x(:, j) := 2^(sign (e[j] - offset)) x(:, j); columns of zeros stay
  LargeView<E> x;
  const int32_t* e;
  int sign;
  const int32_t* offset;  // or null: zero
  __device__ void operator()(int64_t i, int64_t j) const {
    if (e[j] == kZeroColumn) return;
    const int shift = sign * (e[j] - (offset != nullptr ? *offset : 0));
    if (shift != 0) x.data[j * x.ld + i] = shifted(x.data[j * x.ld + i], shift);
  }
};
template <class E>
struct ShiftSolution {  // w(i, j) := 2^(g[j] - f[i]) w(i, j)
  LargeView<E> w;
  const int32_t *f, *g;
  __device__ void operator()(int64_t i, int64_t j) const {
    E& x = w.data[j * w.ld + i];
    x = g[j] == kZeroColumn || f[i] == kZeroColumn ? from_real<E>(0) : shifted(x, g[j] - f[i]);
  }
};
template <class E>
struct CopyTriangle {
  LargeView<E> r, x;
  __device__ void operator()(int64_t i, int64_t j) const {
    x.data[j * x.ld + i] = i <= j ? r.data[j * r.ld + i] : from_real<E>(0);
  }
};
template <class E>
struct AdjointOfTriangle {  // x(i, j) := conj(r(j, i)) 2^(e[i] - f[j]), i >= j
  LargeView<E> r, x;
  const int32_t *e, *f;  // e may be null
  __device__ void operator()(int64_t i, int64_t j) const {
    E value = from_real<E>(0);
    if (i >= j && f[j] != kZeroColumn) {
      value = shifted(conjugate(r.data[i * r.ld + j]), (e != nullptr ? e[i] : 0) - f[j]);
    }
    x.data[j * x.ld + i] = value;
  }
};
template <class E>
struct MirrorLower {  // both triangles from the lower one; a real diagonal
  LargeView<E> c;
  __device__ void operator()(int64_t i, int64_t j) const {
    if (i < j) c.data[j * c.ld + i] = conjugate(c.data[i * c.ld + j]);
    if (i == j) c.data[j * c.ld + i] = from_real<E>(real_part(c.data[j * c.ld + i]));
  }
};
template <class E>
struct MinusSignature {  // to(:, j) := (a - J)(:, first + j)
  LargeView<E> a, to;
  int64_t first, positive;
  __device__ void operator()(int64_t i, int64_t j) const {
    const int64_t column = first + j;
    const double sign = i != column ? 0 : column < positive ? 1 : -1;
    to.data[j * to.ld + i] = plus_product(a.data[column * a.ld + i], from_real<E>(-sign), from_real<E>(1));
  }
};
struct GatherExponents {
  const int32_t* from;
  int32_t* to;
  const int64_t* order;
  __device__ void operator()(int64_t i, int64_t) const { to[i] = from[order[i]]; }
};
struct FillExponents {
  int32_t* f;
  const int32_t* value;
  __device__ void operator()(int64_t i, int64_t) const { f[i] = *value; }
};
template <class E>
struct TakeDiagonal {
  LargeView<E> a;
  double* out;
  __device__ void operator()(int64_t j, int64_t) const {
    const E x = a.data[j * a.ld + j];
    if constexpr (kIsComplex<E>) {
      out[j] = hypot(x.re, x.im);
    } else {
      out[j] = fabs(x);
    }
  }
};

// --- sums and maxima ----------------------------------------------------------------------------------------------

inline constexpr int kColumnThreads = 256;

// The same for every thread of the block; in a fixed order.
template <class Combine>
__device__ __forceinline__ double combined(double x, Combine combine) {
  __shared__ double parts[kColumnThreads];
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int half = kColumnThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      parts[threadIdx.x] = combine(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const double all = parts[0];
  __syncthreads();
  return all;
}
struct Larger {
  __device__ double operator()(double a, double b) const { return a < b ? b : a; }
};
struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// |x(:, j)| = mantissas[j] 2^exponents[j] without over- or underflow: Novakovic 2015, appendix A, with the largest
// entry's power of two. A block a column.
template <class E>
__global__ void __launch_bounds__(kColumnThreads)
    column_norms_kernel(LargeView<E> x, double* mantissas, int32_t* exponents) {
  const int64_t j = blockIdx.x;
  const E* const column = x.data + j * x.ld;
  double largest = 0;
  for (int64_t i = threadIdx.x; i < x.rows; i += kColumnThreads) largest = fmax(largest, magnitude(column[i]));
  largest = combined(largest, Larger());
  int e = 0;
  if (largest > 0) (void)frexp(largest, &e);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < x.rows; i += kColumnThreads) sum += squared_modulus(shifted(column[i], -e));
  sum = combined(sum, Sum());
  if (threadIdx.x == 0) {
    int more = 0;
    mantissas[j] = largest > 0 ? frexp(sqrt(sum), &more) : 0;
    exponents[j] = largest > 0 ? e + more : kZeroColumn;
  }
}

__device__ __forceinline__ double real_product(double x, double y) { return x * y; }
__device__ __forceinline__ double real_product(svdserve::Complex x, svdserve::Complex y) {
  return x.re * y.re + x.im * y.im;
}

// products[j] = Re a(:, j)^H b(:, j). A block a column.
template <class E>
__global__ void __launch_bounds__(kColumnThreads)
    column_products_kernel(LargeView<E> a, LargeView<E> b, double* products) {
  const int64_t j = blockIdx.x;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.rows; i += kColumnThreads) {
    sum += real_product(a.data[j * a.ld + i], b.data[j * b.ld + i]);
  }
  sum = combined(sum, Sum());
  if (threadIdx.x == 0) products[j] = sum;
}

// out(p, q), by rows: the largest cosine of a column of block p with another of block q >= p. h has the rows of blocks 0,
// 1, .. of X^H X, squares its diagonal, whose zeros are columns of zeros. A NaN is larger than all others. A block of
// threads (q, p) a pair.
template <class E>
__global__ void __launch_bounds__(256)
    block_cosines_kernel(LargeView<E> h, const double* squares, int width, double* out) {
  const int64_t top = int64_t{blockIdx.y} * width, left = int64_t{blockIdx.x} * width;
  if (left < top) return;
  __shared__ unsigned long long best;  // the bits of a number that is not negative
  if (threadIdx.x == 0) best = 0;
  __syncthreads();
  unsigned long long own = 0;
  for (int e = static_cast<int>(threadIdx.x); e < width * width; e += 256) {
    const int64_t i = top + e % width, j = left + e / width;
    if (i >= h.rows || j >= h.cols || i == j) continue;
    const double product = squares[i] * squares[j];
    if (product == 0) continue;
    const double cosine2 = squared_modulus(h.data[j * h.ld + i]) / product;
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(cosine2)) & ~(1ull << 63);
    own = bits > own ? bits : own;
  }
  atomicMax(&best, own);
  __syncthreads();
  if (threadIdx.x == 0)
    out[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = sqrt(__longlong_as_double(static_cast<long long>(best)));
}

__device__ __forceinline__ double modulus_of(double x) { return fabs(x); }
__device__ __forceinline__ double modulus_of(svdserve::Complex x) { return hypot(x.re, x.im); }

// sums[j] = sum_i |a(i, j)|. A block a column.
template <class E>
__global__ void __launch_bounds__(kColumnThreads) column_sums_kernel(LargeView<E> a, double* sums) {
  const int64_t j = blockIdx.x;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.rows; i += kColumnThreads) sum += modulus_of(a.data[j * a.ld + i]);
  sum = combined(sum, Sum());
  if (threadIdx.x == 0) sums[j] = sum;
}

// sums[i] = sum_j |a(i, j)|.
template <class E>
struct RowSums {
  LargeView<E> a;
  double* sums;
  __device__ void operator()(int64_t i, int64_t) const {
    double sum = 0;
    for (int64_t j = 0; j < a.cols; ++j) sum += modulus_of(a.data[j * a.ld + i]);
    sums[i] = sum;
  }
};

// f[j] := (keep ? f[j] : 0) + taken[j], kZeroColumn where that is.
static __global__ void take_exponents_kernel(int64_t n, const int32_t* taken, int32_t* f, bool keep) {
  const int64_t j = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= n) return;
  f[j] = taken[j] == kZeroColumn || (keep && f[j] == kZeroColumn) ? kZeroColumn : (keep ? f[j] : 0) + taken[j];
}

// f[j] := the exponent of the largest entry of row j of the triangle R 2^e. A block a row.
template <class E>
__global__ void __launch_bounds__(kColumnThreads)
    triangle_exponents_kernel(LargeView<E> r, const int32_t* e, int32_t* f) {
  const int64_t row = blockIdx.x;
  double largest = kZeroColumn;  // exponents are exact in a double
  for (int64_t j = row + threadIdx.x; j < r.cols; j += kColumnThreads) {
    const double entry = magnitude(r.data[j * r.ld + row]);
    if (!(entry > 0) || (e != nullptr && e[j] == kZeroColumn)) continue;
    int own = 0;
    (void)frexp(entry, &own);
    largest = fmax(largest, static_cast<double>(own + (e != nullptr ? e[j] : 0)));
  }
  largest = combined(largest, Larger());
  if (threadIdx.x == 0) f[row] = static_cast<int32_t>(largest);
}

// out := the largest of f; 0 where all columns are zero. One block.
static __global__ void __launch_bounds__(kColumnThreads)
    largest_exponent_kernel(int64_t n, const int32_t* f, int32_t* out) {
  double largest = kZeroColumn;
  for (int64_t j = threadIdx.x; j < n; j += kColumnThreads) largest = fmax(largest, static_cast<double>(f[j]));
  largest = combined(largest, Larger());
  if (threadIdx.x == 0) *out = largest == kZeroColumn ? 0 : static_cast<int32_t>(largest);
}

// bits[i], zero before: those of max_j |a(i, j)|. Block (row chunk, column chunk).
template <class E>
__global__ void __launch_bounds__(256) row_maxima_kernel(LargeView<E> a, unsigned long long* bits) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.rows) return;
  double largest = 0;
  for (int64_t j = blockIdx.y; j < a.cols; j += gridDim.y) largest = fmax(largest, magnitude(a.data[j * a.ld + i]));
  atomicMax(bits + i, static_cast<unsigned long long>(__double_as_longlong(largest)));
}

// --- operands and results -----------------------------------------------------------------------------------------

inline constexpr int kTurnTile = 32;

// `lines` runs of `length` elements without gaps, as an operand's rows or columns; element (line, position) becomes
// a(position, line), or where `turned` a(line, position); conjugated where `conjugated`. first_bad, the largest number
// before: the least line * length + position, counted from first_line on, that is not finite.
// Blocks of kTurnTile x 8 threads, tile (position, line).
template <class In, class E>
__global__ void __launch_bounds__(kTurnTile * 8)
    convert_in_kernel(const In* in, int64_t first_line, int64_t lines, int64_t length, LargeView<E> a, bool turned,
                      bool conjugated, unsigned long long* first_bad) {
  __shared__ E tile[kTurnTile][kTurnTile + 1];
  const int64_t line0 = int64_t{blockIdx.y} * kTurnTile, at0 = int64_t{blockIdx.x} * kTurnTile;
  for (int y = static_cast<int>(threadIdx.y); y < kTurnTile; y += 8) {
    const int64_t line = line0 + y, at = at0 + threadIdx.x;
    if (line >= lines || at >= length) continue;
    E x = widened(in[line * length + at]);
    if (!finite(x)) {
      atomicMin(first_bad, static_cast<unsigned long long>((first_line + line) * length + at));
    }
    if (conjugated) x = conjugate(x);
    if (turned) {
      tile[y][threadIdx.x] = x;
    } else {
      a.data[(first_line + line) * a.ld + at] = x;
    }
  }
  if (!turned) return;
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kTurnTile; y += 8) {
    const int64_t line = line0 + threadIdx.x, at = at0 + y;
    if (line < lines && at < length) a.data[at * a.ld + first_line + line] = tile[threadIdx.x][y];
  }
}

// The way back.
template <class Out, class E>
__global__ void __launch_bounds__(kTurnTile * 8)
    convert_out_kernel(LargeView<E> a, int64_t first_line, int64_t lines, int64_t length, Out* out, bool turned,
                       bool conjugated) {
  __shared__ E tile[kTurnTile][kTurnTile + 1];
  const int64_t line0 = int64_t{blockIdx.y} * kTurnTile, at0 = int64_t{blockIdx.x} * kTurnTile;
  if (turned) {
    for (int y = static_cast<int>(threadIdx.y); y < kTurnTile; y += 8) {
      const int64_t line = line0 + threadIdx.x, at = at0 + y;
      if (line < lines && at < length) tile[threadIdx.x][y] = a.data[at * a.ld + first_line + line];
    }
    __syncthreads();
  }
  for (int y = static_cast<int>(threadIdx.y); y < kTurnTile; y += 8) {
    const int64_t line = line0 + y, at = at0 + threadIdx.x;
    if (line >= lines || at >= length) continue;
    E x = turned ? tile[y][threadIdx.x] : a.data[(first_line + line) * a.ld + at];
    if (conjugated) x = conjugate(x);
    narrow(x, out[line * length + at]);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_KERNELS_H_
