#include "engine/backends/host/general/triangle_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/general/eigen_lapack.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int kLargest = 200;  // entries are kept below 2^kLargest, or little more

// 1 x 1 or 2 x 2: rows of the diagonal block that starts at row i.
int64_t rows_of(LargeView<double> t, int64_t i) { return i + 1 < t.rows && t.data[i + 1 + i * t.ld] != 0 ? 2 : 1; }
int64_t rows_of(LargeView<Complex>, int64_t) { return 1; }
// The same of the block that ends with row i.
int64_t rows_until(LargeView<double> t, int64_t i) { return i > 0 && t.data[i + (i - 1) * t.ld] != 0 ? 2 : 1; }
int64_t rows_until(LargeView<Complex>, int64_t) { return 1; }

// One eigenvector: its value and columns j .. j + width - 1 of T, whose vector is in as many columns of x.
template <class E>
struct Vector {
  int64_t j, width;
  Complex value;
  LargeView<E> x;

  void scale(double factor) const {
    for (int64_t c = 0; c < width; ++c) {
      for (int64_t i = 0; i < x.rows; ++i) x.data[i + c * x.ld] *= factor;
    }
  }
};

double smallest_pivot(const Complex& value, int64_t n) {
  const double safe = std::numeric_limits<double>::min() * (static_cast<double>(n) / kUlp);
  return std::max(kUlp * size_of(value), safe);
}

double power_below(double x) { return std::ldexp(1.0, std::ilogb(x)); }

// Keeps what has been solved, of size `largest`, below 2^kLargest.
template <class E>
void keep_small(const Vector<E>& vector, double largest) {
  if (largest > std::ldexp(1.0, kLargest)) vector.scale(1 / power_below(largest));
}

// Rows i .. i + rows - 1 of the vector := the solution with the diagonal block of T there and themselves as right side.
void solve(LargeView<double> t, Side side, int64_t i, int64_t rows, const Vector<double>& vector) {
  const BlasInt transposed = side == Side::kLeft, na = BlasInt(rows), nw = BlasInt(vector.width), two = 2,
                ldt = BlasInt(t.ld);
  const double least = smallest_pivot(vector.value, t.rows), one = 1, wr = vector.value.real(),
               wi = side == Side::kLeft ? -vector.value.imag() : vector.value.imag();
  double right[4] = {}, x[4] = {}, scale = 1, norm = 0;
  for (int64_t c = 0; c < vector.width; ++c) {
    for (int64_t r = 0; r < rows; ++r) right[r + 2 * c] = vector.x.data[i + r + c * vector.x.ld];
  }
  BlasInt info = 0;
  dlaln2_(&transposed, &na, &nw, &least, &one, t.data + i + i * t.ld, &ldt, &one, &one, right, &two, &wr, &wi, x, &two,
          &scale, &norm, &info);
  if (scale != 1) vector.scale(scale);
  for (int64_t c = 0; c < vector.width; ++c) {
    for (int64_t r = 0; r < rows; ++r) vector.x.data[i + r + c * vector.x.ld] = x[r + 2 * c];
  }
  keep_small(vector, norm);
}
void solve(LargeView<Complex> t, Side side, int64_t i, int64_t, const Vector<Complex>& vector) {
  const double least = smallest_pivot(vector.value, t.rows);
  Complex pivot = t.data[i + i * t.ld] - vector.value;
  if (size_of(pivot) < least) pivot = least;
  if (side == Side::kLeft) pivot = std::conj(pivot);
  Complex& x = vector.x.data[i];
  const double size = size_of(x), room = std::ldexp(std::min(size_of(pivot), 1.0), kLargest);
  if (size > room) vector.scale(power_below(room) / power_below(size));
  const double unit = power_below(size_of(pivot));
  x = (x / unit) / (pivot / unit);
  keep_small(vector, size_of(x));
}

// Rows of x within first .. last - 1 that still wait get the solved rows' part.
template <class E>
void substitute(LargeView<E> t, Side side, int64_t i, int64_t rows, int64_t first, int64_t last,
                const Vector<E>& vector) {
  for (int64_t c = 0; c < vector.width; ++c) {
    E* const x = vector.x.data + c * vector.x.ld;
    if (side == Side::kRight) {
      for (int64_t r = i; r < i + rows; ++r) {
        const E* const column = t.data + r * t.ld;
        for (int64_t k = first; k < i; ++k) x[k] -= times(column[k], x[r]);
      }
      continue;
    }
    for (int64_t k = i + rows; k < last; ++k) {
      E sum = 0;
      for (int64_t r = i; r < i + rows; ++r) {
        if constexpr (std::is_same_v<E, double>) {
          sum += t.data[r + k * t.ld] * x[r];
        } else {
          sum += times(std::conj(t.data[r + k * t.ld]), x[r]);
        }
      }
      x[k] -= sum;
    }
  }
}

// The block of rows first .. last - 1 of one vector, whose own rows are set already.
template <class E>
void solve_rows(LargeView<E> t, Side side, int64_t first, int64_t last, const Vector<E>& vector) {
  if (side == Side::kRight) {
    for (int64_t end = std::min(last, vector.j + vector.width); end > first;) {
      const int64_t rows = rows_until(t, end - 1), i = end - rows;
      if (i < vector.j) solve(t, side, i, rows, vector);
      substitute(t, side, i, rows, first, last, vector);
      end = i;
    }
    return;
  }
  for (int64_t i = std::max(first, vector.j); i < last;) {
    const int64_t rows = rows_of(t, i);
    if (i > vector.j) solve(t, side, i, rows, vector);
    substitute(t, side, i, rows, first, last, vector);
    i += rows;
  }
}

// The vector of a diagonal block alone.
Vector<double> start(LargeView<double> t, Side side, int64_t j, LargeView<double> x) {
  const int64_t width = rows_of(t, j);
  const double corner = t.data[j + j * t.ld];
  double *const re = x.data, *const im = x.data + x.ld;
  if (width == 1) {
    re[j] = 1;
    return {j, 1, corner, x};
  }
  const double over = t.data[j + (j + 1) * t.ld], under = t.data[j + 1 + j * t.ld];
  const double imag = std::sqrt(std::abs(over)) * std::sqrt(std::abs(under));
  const bool is_over = std::abs(over) >= std::abs(under);
  if (side == Side::kRight) {
    re[j] = is_over ? 1 : -imag / under;
    im[j + 1] = is_over ? imag / over : 1;
  } else {
    re[j] = is_over ? imag / over : 1;
    im[j + 1] = is_over ? 1 : -imag / under;
  }
  return {j, 2, {corner, imag}, x};
}
Vector<Complex> start(LargeView<Complex> t, Side, int64_t j, LargeView<Complex> x) {
  x.data[j] = 1;
  return {j, 1, t.data[j + j * t.ld], x};
}

}  // namespace

template <class E>
std::vector<int64_t> chunks_of(LargeView<E> t, int64_t width) {
  std::vector<int64_t> ends = {0};
  while (ends.back() < t.cols) {
    int64_t end = std::min(t.cols, ends.back() + width);
    if (end < t.cols && rows_until(t, end) == 2) ++end;
    ends.push_back(end);
  }
  return ends;
}

template <class E>
void triangle_vectors(const LargeThreads& threads, LargeView<E> t, Side side, const std::vector<int64_t>& bounds,
                      int64_t chunk, LargeView<E> x) {
  const int64_t n = t.rows, first = bounds[chunk], last = bounds[chunk + 1];
  std::vector<Vector<E>> vectors;
  for (int64_t c = 0; c < x.cols; ++c) std::fill(x.data + c * x.ld, x.data + c * x.ld + n, E(0));
  for (int64_t j = first; j < last; j += vectors.back().width) {
    vectors.push_back(start(t, side, j, x.columns(j - first, last - j)));
  }
  const int64_t chunks = static_cast<int64_t>(bounds.size()) - 1;
  for (int64_t b = chunk; b >= 0 && b < chunks; b += side == Side::kRight ? -1 : 1) {
    threads.check();
    const int64_t top = bounds[b], end = bounds[b + 1], rows = end - top;
    for (const Vector<E>& vector : vectors) solve_rows(t, side, top, end, vector);
    if (side == Side::kRight && top > 0) {
      blas::gemm(false, false, top, x.cols, rows, -1, t.data + top * t.ld, t.ld, x.data + top, x.ld, 1, x.data, x.ld);
    } else if (side == Side::kLeft && end < n) {
      blas::gemm(true, false, n - end, x.cols, rows, -1, t.data + top + end * t.ld, t.ld, x.data + top, x.ld, 1,
                 x.data + end, x.ld);
    }
  }
}

template std::vector<int64_t> chunks_of(LargeView<double>, int64_t);
template std::vector<int64_t> chunks_of(LargeView<Complex>, int64_t);
template void triangle_vectors(const LargeThreads&, LargeView<double>, Side, const std::vector<int64_t>&, int64_t,
                               LargeView<double>);
template void triangle_vectors(const LargeThreads&, LargeView<Complex>, Side, const std::vector<int64_t>&, int64_t,
                               LargeView<Complex>);

}  // namespace svdserve::host
