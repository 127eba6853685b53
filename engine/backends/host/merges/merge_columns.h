// Columns of vectors in a merge of divide and conquer: rotated, packed, multiplied. Matrices are column-major.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGE_COLUMNS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGE_COLUMNS_H_

#include <algorithm>
#include <cstddef>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

// (a, b) := (c a + s b, c b - s a), `count` numbers each.
template <class T>
void rotate_columns(T* a, T* b, int count, double c, double s) {
  const T cosine = static_cast<T>(c), sine = static_cast<T>(s);
  for (int i = 0; i < count; ++i) {
    const T x = a[i], y = b[i];
    a[i] = cosine * x + sine * y;
    b[i] = cosine * y - sine * x;
  }
}

// c, rows x cols, leading dimension ldc := a b, a of leading dimension rows, b, inner x cols, by rows.
template <class T>
void multiply_packed(int rows, int cols, int inner, const T* a, const T* b, int ldb, T* c, int ldc) {
  if (rows > 0) blas::gemm(false, true, rows, cols, inner, 1, a, rows, b, ldb, 0, c, ldc);
}

// `rows` numbers of each of `count` columns of `from`. Returns where the next ones go.
template <class T>
T* pack_columns(const T* from, int ld, const int* columns, int count, int rows, T* to) {
  for (int p = 0; p < count; ++p) to = std::copy_n(from + static_cast<ptrdiff_t>(columns[p]) * ld, rows, to);
  return to;
}

// The sum of term(0) .. term(count - 1). Eight sums side by side are faster than one, and their rounding errors smaller.
template <class F>
double sum_by_eight(int count, F term) {
  double sums[8] = {};
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int l = 0; l < 8; ++l) sums[l] += term(i + l);
  }
  for (int l = 0; i < count; ++i, ++l) sums[l] += term(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
// sum w_i x_i y_i
template <class T>
double weighted_product(const double* w, const T* x, const T* y, int count) {
  return sum_by_eight(count, [=](int i) { return w[i] * (static_cast<double>(x[i]) * y[i]); });
}
template <class T>
double sum_of_squares(const T* x, int count) {
  return sum_by_eight(count, [=](int i) { return static_cast<double>(x[i]) * x[i]; });
}

// Where vectors are made in double precision: the place of their results, where that is double, or `wide`.
inline double* wide_of(AlignedArray<double>& result, AlignedArray<double>&) { return result.data(); }
inline double* wide_of(AlignedArray<float>&, AlignedArray<double>& wide) { return wide.data(); }

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGE_COLUMNS_H_
