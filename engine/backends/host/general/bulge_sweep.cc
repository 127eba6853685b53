#include "engine/backends/host/general/bulge_sweep.h"
#include "engine/backends/host/base/conjugate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/general/eigen_lapack.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int64_t kFewestSteps = 48;  // of a window: fewer make products too thin

void project(const Complex& z, double& x) { x = z.real(); }
void project(const Complex& z, Complex& x) { x = z; }

// Below, entries of an n x n matrix are not told from zero.
double smallest(int64_t n) { return std::numeric_limits<double>::min() * (static_cast<double>(n) / kUlp); }

}  // namespace

template <class E>
BulgeSweep<E>::BulgeSweep(const LargeThreads& threads, LargeView<E> h, WindowUpdate<E>& outside)
    : threads_(threads), h_(h), outside_(outside) {}

template <class E>
void BulgeSweep<E>::run(int64_t low, int64_t high, const std::vector<std::complex<double>>& shifts) {
  low_ = low;
  high_ = high;
  shifts_ = &shifts;
  const int64_t bulges = static_cast<int64_t>(shifts.size()) / 2;
  const int64_t steps = high - 1 - low + 3 * (bulges - 1), room = std::max(3 * bulges, kFewestSteps);
  for (int64_t t = 0; t < steps; t += room) {
    threads_.check();
    window(t, std::min(steps, t + room));
  }
}

// Bulge b is at k = low - 1 + t - 3 b in step t: its reflector acts on rows k + 1 .. k + 3.
template <class E>
void BulgeSweep<E>::window(int64_t from_step, int64_t to_step) {
  const int64_t bulges = static_cast<int64_t>(shifts_->size()) / 2;
  first_ = std::max(low_, low_ - 1 + from_step - 3 * (bulges - 1));
  last_ = std::min(high_ - 1, low_ - 1 + to_step - 1 + 4);
  const int64_t width = last_ - first_ + 1;
  u_.reserve(width * width + blas::kReadBeyond);
  std::fill(u_.data(), u_.data() + width * width, E(0));
  for (int64_t i = 0; i < width; ++i) u_[i + i * width] = 1;
  for (int64_t t = from_step; t < to_step; ++t) {
    for (int64_t b = 0; b < bulges; ++b) {
      const int64_t k = low_ - 1 + t - 3 * b;
      if (k >= low_ - 1 && k <= high_ - 3) step(k, b);
    }
  }
  outside_.apply(low_, high_, first_, width, u_.data(), width);
}

template <class E>
void BulgeSweep<E>::step(int64_t k, int64_t bulge) {
  const Reflector reflector = chase(k, bulge);
  from_left(reflector, k);
  const int64_t bottom = std::min(k + reflector.rows + 1, high_ - 1), width = last_ - first_ + 1;
  from_right(reflector, &h(first_, k + 1), h_.ld, bottom - first_ + 1);
  // Each bulge before this one has filled two more rows of these columns of U; the rows below are zero.
  const int64_t filled = std::min(width, k + 1 + reflector.rows + 2 * bulge - first_);
  from_right(reflector, u_.data() + (k + 1 - first_) * width, width, filled);
  if (k >= low_) drop_negligible(k);
}

// x := the first column of (H - s_1 I) (H - s_2 I) for the block from `row` on, scaled; false: zero.
template <class E>
bool BulgeSweep<E>::first_column(int64_t row, int64_t rows, int64_t bulge, E* x) {
  const Complex s1 = (*shifts_)[2 * bulge], s2 = (*shifts_)[2 * bulge + 1];
  Complex a[3][3] = {};
  for (int64_t j = 0; j < rows; ++j) {
    for (int64_t i = 0; i < rows; ++i) a[i][j] = h(row + i, row + j);
  }
  const double scale = size_of(a[0][0] - s2) + size_of(a[1][0]) + size_of(a[2][0]);
  for (int64_t i = 0; i < 3; ++i) x[i] = 0;
  if (scale == 0) return false;
  const Complex under = a[1][0] / scale, below = a[2][0] / scale, both = s1 + s2;
  project((a[0][0] - s1) * ((a[0][0] - s2) / scale) + a[0][1] * under + a[0][2] * below, x[0]);
  project(under * (a[0][0] + a[1][1] - both) + a[1][2] * below, x[1]);
  project(below * (a[0][0] + a[2][2] - both) + under * a[2][1], x[2]);
  return true;
}

// The reflector that moves a bulge on by a row, or starts it; column k of H is written.
template <class E>
auto BulgeSweep<E>::chase(int64_t k, int64_t bulge) -> Reflector {
  Reflector reflector{{1, 0, 0}, 0, std::min<int64_t>(3, high_ - 1 - k)};
  const int64_t rows = reflector.rows;
  E x[3] = {};
  if (k < low_) {
    first_column(k + 1, rows, bulge, x);
    reflector.tau = blas::larfg(rows, x[0], x + 1);
    for (int64_t i = 1; i < rows; ++i) reflector.v[i] = x[i];
    return reflector;
  }
  if (rows == 3 && restart(k, bulge, reflector)) return reflector;
  for (int64_t i = 0; i < rows; ++i) x[i] = h(k + 1 + i, k);
  reflector.tau = blas::larfg(rows, x[0], x + 1);
  h(k + 1, k) = x[0];
  for (int64_t i = 1; i < rows; ++i) {
    reflector.v[i] = x[i];
    h(k + 1 + i, k) = 0;
  }
  return reflector;
}

// A bulge that has lost its last row at a negligible entry is started anew, if the fill that this leaves is negligible.
template <class E>
bool BulgeSweep<E>::restart(int64_t k, int64_t bulge, Reflector& reflector) {
  if (h(k + 3, k) != E(0) || h(k + 3, k + 1) != E(0) || h(k + 3, k + 2) == E(0)) return false;
  E x[3];
  if (!first_column(k + 1, 3, bulge, x)) return false;
  const E tau = blas::larfg(int64_t{3}, x[0], x + 1);
  const E sum = times(conjugate(tau), h(k + 1, k) + times(conjugate(x[1]), h(k + 2, k)));
  const double fill = size_of(h(k + 2, k) - times(sum, x[1])) + size_of(times(sum, x[2]));
  const double beside = size_of(h(k, k)) + size_of(h(k + 1, k + 1)) + size_of(h(k + 2, k + 2));
  if (fill > kUlp * beside) return false;
  h(k + 1, k) -= sum;
  h(k + 2, k) = h(k + 3, k) = 0;
  reflector.tau = tau;
  reflector.v[1] = x[1];
  reflector.v[2] = x[2];
  return true;
}

// Rows k + 1 .. of the window's columns := (I - tau v v^H)^H times them.
template <class E>
void BulgeSweep<E>::from_left(const Reflector& reflector, int64_t k) {
  const E v1 = reflector.v[1], v2 = reflector.v[2], tau = conjugate(reflector.tau);
  const E c1 = conjugate(v1), c2 = conjugate(v2);
  const E t1 = times(tau, v1), t2 = times(tau, v2);
  E* column = &h(k + 1, k + 1);
  if (reflector.rows == 3) {
    for (int64_t j = k + 1; j <= last_; ++j, column += h_.ld) {
      const E sum = column[0] + times(c1, column[1]) + times(c2, column[2]);
      column[0] -= times(tau, sum);
      column[1] -= times(t1, sum);
      column[2] -= times(t2, sum);
    }
    return;
  }
  for (int64_t j = k + 1; j <= last_; ++j, column += h_.ld) {
    const E sum = column[0] + times(c1, column[1]);
    column[0] -= times(tau, sum);
    column[1] -= times(t1, sum);
  }
}

// Three (or two) columns := them times I - tau v v^H.
template <class E>
void BulgeSweep<E>::from_right(const Reflector& reflector, E* columns, int64_t ld, int64_t rows) {
  const E v1 = reflector.v[1], v2 = reflector.v[2], tau = reflector.tau;
  const E t1 = times(tau, conjugate(v1)), t2 = times(tau, conjugate(v2));
  E* __restrict const a = columns, * __restrict const b = columns + ld;
  if (reflector.rows == 3) {
    E* __restrict const c = columns + 2 * ld;
    for (int64_t i = 0; i < rows; ++i) {
      const E sum = a[i] + times(v1, b[i]) + times(v2, c[i]);
      a[i] -= times(tau, sum);
      b[i] -= times(t1, sum);
      c[i] -= times(t2, sum);
    }
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    const E sum = a[i] + times(v1, b[i]);
    a[i] -= times(tau, sum);
    b[i] -= times(t1, sum);
  }
}

// Ahues and Tisseur (LAPACK Working Note 122): h(k + 1, k) is negligible beside the 2 x 2 block around it.
template <class E>
void BulgeSweep<E>::drop_negligible(int64_t k) {
  const double under = size_of(h(k + 1, k));
  if (under == 0) return;
  double beside = size_of(h(k, k)) + size_of(h(k + 1, k + 1));
  if (beside == 0) {
    for (int64_t i = std::max(first_, k - 3); i < k; ++i) beside += size_of(h(k, i));
    for (int64_t i = k + 2; i <= std::min(last_, k + 4); ++i) beside += size_of(h(i, k + 1));
  }
  const double tiny = smallest(high_ - low_);
  if (under > std::max(tiny, kUlp * beside)) return;
  const double over = size_of(h(k, k + 1)), difference = size_of(h(k, k) - h(k + 1, k + 1));
  const double corner = size_of(h(k + 1, k + 1));
  const double h12 = std::max(under, over), h21 = std::min(under, over);
  const double h11 = std::max(corner, difference), h22 = std::min(corner, difference);
  const double scale = h11 + h12, bound = h22 * (h11 / scale);
  if (bound == 0 || h21 * (h12 / scale) <= std::max(tiny, kUlp * bound)) h(k + 1, k) = 0;
}

template class BulgeSweep<double>;
template class BulgeSweep<Complex>;

}  // namespace svdserve::host
