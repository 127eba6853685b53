// Kernels of geev.cu and general_eigenproblem.cu: the library's elements, balancing, factors of a Newton step, unit
// columns, Rayleigh quotients, residuals. Each is bound by memory. Matrices are column-major; sums are in a fixed order.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_EIGENPAIR_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_EIGENPAIR_KERNELS_H_

#include "engine/backends/cuda/large/geev.h"
#include "engine/backends/cuda/large/large_kernels.h"

namespace svdserve::cuda {

using ComplexView = LargeView<Complex>;

// --- the library's elements: float, double, or pairs of them --------------------------------------------------------

template <class T>
inline constexpr bool kIsPair = false;
template <class T>
inline constexpr bool kIsPair<Pair<T>> = true;

template <class T>
struct ToLibrary {  // to, n x n without gaps, := a; without imaginary parts where T has none
  ComplexView a;
  T* to;
  __device__ void operator()(int64_t i, int64_t j) const {
    const Complex x = a.data[j * a.ld + i];
    if constexpr (kIsPair<T>) {
      narrow(x, to[j * a.rows + i]);
    } else {
      narrow(x.re, to[j * a.rows + i]);
    }
  }
};

// v := the vectors as Xgeev leaves them. A conjugate pair of a real matrix has its real parts in the first column and its
// imaginary parts in the second one.
template <class T>
struct FromLibrary {
  const T* from;
  const ColumnKind* kinds;
  ComplexView v;
  __device__ void operator()(int64_t i, int64_t j) const {
    const int64_t at = j * v.rows + i;
    Complex x;
    if constexpr (kIsPair<T>) {
      x = widened(from[at]);
    } else {
      const ColumnKind kind = kinds[j];
      x = {widened(from[kind == ColumnKind::kSecond ? at - v.rows : at]), 0};
      if (kind == ColumnKind::kFirst) x.im = widened(from[at + v.rows]);
      if (kind == ColumnKind::kSecond) x.im = -widened(from[at]);
    }
    v.data[j * v.ld + i] = x;
  }
};

struct WidenReal {
  LargeView<double> from;
  ComplexView to;
  __device__ void operator()(int64_t i, int64_t j) const { to.data[j * to.ld + i] = {from.data[j * from.ld + i], 0}; }
};

// --- balancing by powers of two: B = D^-1 A D, D = diag(2^d_i) --------------------------------------------------------

inline constexpr int kNoExponent = -100000;  // of zeros
// A line is scaled where its row and its column differ by so many binary digits.
inline constexpr int kLeastGap = 4;

static __device__ __forceinline__ int exponent_of(const Complex& x) {
  const double largest = fmax(fabs(x.re), fabs(x.im));
  return largest > 0 ? ilogb(largest) : kNoExponent;
}

// columns[j] := the exponent of the largest component of column j without its diagonal; rows alike, which begin as
// kNoExponent. A block a column.
static __global__ void __launch_bounds__(kColumnThreads) line_exponents_kernel(ComplexView a, int* columns, int* rows) {
  const int64_t j = blockIdx.x;
  int largest = kNoExponent;
  for (int64_t i = threadIdx.x; i < a.rows; i += kColumnThreads) {
    if (i == j) continue;
    const int e = exponent_of(a.data[j * a.ld + i]);
    largest = max(largest, e);
    if (e > rows[i]) atomicMax(rows + i, e);  // a maximum does not depend on its order
  }
  const double of_all = combined(static_cast<double>(largest - kNoExponent), Larger());
  if (threadIdx.x == 0) columns[j] = static_cast<int>(of_all) + kNoExponent;
}

// factors[i] := the change of d_i that makes row and column equal, 0 where there is little to gain. No element becomes
// larger than the largest one. rows are reset.
struct BalanceFactors {
  const int* columns;
  int *rows, *factors, *d, *changes;
  __device__ void operator()(int64_t i, int64_t) const {
    const int row = rows[i], column = columns[i], gap = row - column;
    const bool has_both = row != kNoExponent && column != kNoExponent;
    const int factor = has_both && (gap >= kLeastGap || gap <= -kLeastGap) ? gap / 2 : 0;
    factors[i] = factor;
    d[i] += factor;
    rows[i] = kNoExponent;
    if (factor != 0) *changes = 1;
  }
};
struct ApplyFactors {
  ComplexView a;
  const int* factors;
  __device__ void operator()(int64_t i, int64_t j) const {
    Complex& x = a.data[j * a.ld + i];
    const int e = factors[j] - factors[i];
    if (e != 0) x = {scalbn(x.re, e), scalbn(x.im, e)};
  }
};

// Column j := 2^(sign d_i) v_ij times a power of two that brings its largest component to about one. A block a column.
static __global__ void __launch_bounds__(kColumnThreads) unbalance_kernel(ComplexView v, const int* d, int sign) {
  Complex* const column = v.data + blockIdx.x * v.ld;
  double top = 2 * kNoExponent;
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    const int e = exponent_of(column[i]);
    if (e != kNoExponent) top = fmax(top, static_cast<double>(e + sign * d[i]));
  }
  const int shift = static_cast<int>(combined(top, Larger()));
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    const int e = sign * d[i] - shift;
    column[i] = {scalbn(column[i].re, e), scalbn(column[i].im, e)};
  }
}

// --- a Newton step --------------------------------------------------------------------------------------------------

struct CopyDiagonal {
  ComplexView a;
  Complex* to;
  __device__ void operator()(int64_t j, int64_t) const { to[j] = a.data[j * a.ld + j]; }
};

// s := I + F, f_ij = s_ij / (d_j - d_i) where |f_ij| <= most, else 0; d is the diagonal of s.
struct ShearFactors {
  ComplexView s;
  const Complex* d;
  double most;
  __device__ void operator()(int64_t i, int64_t j) const {
    Complex& x = s.data[j * s.ld + i];
    const Complex gap = {d[j].re - d[i].re, d[j].im - d[i].im};
    const double square = squared_modulus(gap);
    const Complex f = {(x.re * gap.re + x.im * gap.im) / square, (x.im * gap.re - x.re * gap.im) / square};
    const bool small = squared_modulus(f) <= most * most;  // false for no gap at all
    x = i == j ? Complex{1, 0} : small ? f : Complex{0, 0};
  }
};

// --- columns: a block each ------------------------------------------------------------------------------------------

struct Smaller {
  __device__ double operator()(double a, double b) const { return b < a ? b : a; }
};

// Columns of norm 1, the first of their largest components real and positive. kReal: the imaginary parts are dropped.
// kSecond: the conjugate of the column before, which that column's block writes.
static __global__ void __launch_bounds__(kColumnThreads) unit_columns_kernel(ComplexView v, const ColumnKind* kinds) {
  const int64_t j = blockIdx.x;
  const ColumnKind kind = kinds[j];
  if (kind == ColumnKind::kSecond) return;
  Complex* const column = v.data + j * v.ld;
  const bool real = kind == ColumnKind::kReal;
  double largest = 0, sum = 0;
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    if (real) column[i].im = 0;
    const double square = squared_modulus(column[i]);
    largest = fmax(largest, square);
    sum += square;
  }
  largest = combined(largest, Larger());
  sum = combined(sum, Sum());
  double first = static_cast<double>(v.rows);
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    if (squared_modulus(column[i]) == largest) first = fmin(first, static_cast<double>(i));
  }
  first = combined(first, Smaller());
  const auto at = static_cast<int64_t>(first);
  const Complex pivot = at < v.rows ? column[at] : Complex{1, 0};
  __syncthreads();
  const double modulus = sqrt(largest), scale = 1 / sqrt(sum);
  const Complex turn = {pivot.re / modulus, -(pivot.im / modulus)};
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    const Complex x = column[i];
    Complex y = {(x.re * turn.re - x.im * turn.im) * scale, (x.re * turn.im + x.im * turn.re) * scale};
    if (i == at) y = {modulus * scale, 0};
    if (real) y.im = 0;
    column[i] = y;
    if (kind == ColumnKind::kFirst) column[v.ld + i] = conjugate(y);
  }
}

// values[j] = v_j^H p_j, without an imaginary part for kReal; for kSecond the conjugate of the value before.
static __global__ void __launch_bounds__(kColumnThreads)
    rayleigh_kernel(ComplexView v, ComplexView p, const ColumnKind* kinds, Complex* values) {
  const int64_t j = blockIdx.x;
  const ColumnKind kind = kinds[j];
  const int64_t at = kind == ColumnKind::kSecond ? j - 1 : j;
  double re = 0, im = 0;
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    const Complex x = v.data[at * v.ld + i], y = p.data[at * p.ld + i];
    re += x.re * y.re + x.im * y.im;
    im += x.re * y.im - x.im * y.re;
  }
  re = combined(re, Sum());
  im = combined(im, Sum());
  if (threadIdx.x == 0) values[j] = {re, kind == ColumnKind::kReal ? 0 : kind == ColumnKind::kSecond ? -im : im};
}

// squares[j] = |p_j - values_j v_j|^2
static __global__ void __launch_bounds__(kColumnThreads)
    residual_kernel(ComplexView v, ComplexView p, const Complex* values, double* squares) {
  const int64_t j = blockIdx.x;
  const Complex value = values[j];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < v.rows; i += kColumnThreads) {
    sum += squared_modulus(plus_product(p.data[j * p.ld + i], Complex{-value.re, -value.im}, v.data[j * v.ld + i]));
  }
  sum = combined(sum, Sum());
  if (threadIdx.x == 0) squares[j] = sum;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_EIGENPAIR_KERNELS_H_
