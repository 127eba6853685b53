#include "engine/backends/host/large/operand_rows.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>
#include <utility>

#include "engine/backends/host/large/scaled_columns.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// Rows taken at once, for whole cache lines of both sides.
constexpr int64_t kRowsOfTile = 16;

template <class E>
using SingleOf = std::conditional_t<kComplex<E>, std::complex<float>, float>;

// 0 of a finite number, else NaN.
double zero_of(double x) { return x * 0; }
double zero_of(const std::complex<double>& x) { return x.real() * 0 + x.imag() * 0; }

double rounded(double x, double) { return x + 0.0; }
float rounded(double x, float) { return static_cast<float>(x) + 0.0F; }
template <class R>
std::complex<R> rounded(const std::complex<double>& x, std::complex<R>) {
  return {rounded(x.real(), R()), rounded(x.imag(), R())};
}

}  // namespace

ExactScale exact_scale(int exponent) {
  const int half = exponent / 2;
  return {std::ldexp(1.0, half), std::ldexp(1.0, exponent - half)};
}

template <class E>
OperandRows<E>::OperandRows(const Problem& problem, bool adjoint)
    : single_(value_bytes(problem.dtype) == 4),
      adjoint_(adjoint),
      row_stride_(problem.order == Order::kRowMajor ? problem.cols : 1),
      col_stride_(problem.order == Order::kRowMajor ? 1 : problem.rows) {
  if (adjoint) std::swap(row_stride_, col_stride_);
}

template <class E>
template <class S>
bool OperandRows<E>::gather_from(const S* source, const int32_t* rows, const int64_t* columns, const ExactScale* scale,
                                 LargeView<E> b) const {
  // Where a column's elements follow each other, all of it at once.
  const int64_t tile = row_stride_ == 1 ? b.rows : kRowsOfTile;
  double sum = 0;
  for (int64_t i0 = 0; i0 < b.rows; i0 += tile) {
    const int64_t end = std::min(i0 + tile, b.rows);
    for (int64_t j = 0; j < b.cols; ++j) {
      const S* const from = source + (columns != nullptr ? columns[j] : j) * col_stride_;
      E* const to = b.data + j * b.ld;
      const ExactScale s = scale != nullptr ? scale[j] : ExactScale{};
      for (int64_t i = i0; i < end; ++i) {
        const E x(from[rows[i] * row_stride_]);
        sum += zero_of(x);
        to[i] = (adjoint_ ? conjugate(x) : x) * s.first * s.second;
      }
    }
  }
  return sum == 0;
}

template <class E>
template <class S>
void OperandRows<E>::scatter_to(LargeView<E> b, const int32_t* rows, S* target) const {
  const int64_t tile = row_stride_ == 1 ? b.rows : kRowsOfTile;
  for (int64_t i0 = 0; i0 < b.rows; i0 += tile) {
    const int64_t end = std::min(i0 + tile, b.rows);
    for (int64_t j = 0; j < b.cols; ++j) {
      const E* const from = b.data + j * b.ld;
      S* const to = target + j * col_stride_;
      for (int64_t i = i0; i < end; ++i) {
        to[rows[i] * row_stride_] = rounded(adjoint_ ? conjugate(from[i]) : from[i], S());
      }
    }
  }
}

template <class E>
bool OperandRows<E>::gather(const void* matrix, const int32_t* rows, const int64_t* columns, const ExactScale* scale,
                            LargeView<E> b) const {
  return single_ ? gather_from(static_cast<const SingleOf<E>*>(matrix), rows, columns, scale, b)
                 : gather_from(static_cast<const E*>(matrix), rows, columns, scale, b);
}

template <class E>
void OperandRows<E>::scatter(LargeView<E> b, const int32_t* rows, void* matrix) const {
  single_ ? scatter_to(b, rows, static_cast<SingleOf<E>*>(matrix)) : scatter_to(b, rows, static_cast<E*>(matrix));
}

template class OperandRows<double>;
template class OperandRows<std::complex<double>>;

}  // namespace svdserve::host
