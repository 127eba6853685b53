#include "engine/backends/host/dense/stacked_qr.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {
namespace {

// Columns whose reflectors are found one by one.
constexpr int64_t kStackLeaf = 16;
// Columns of a panel: of reflectors that are multiplied by at once.
constexpr int64_t kStackPanel = 128;
// Columns of a task.
constexpr int64_t kTask = 128;

double imaginary_part(double) { return 0; }
Complex imaginary_part(const Complex& x) { return {0, x.imag()}; }

// For 1 / 0, of a reflector that is the identity.
constexpr double kNoReflector = 0x1p1000;

}  // namespace

template <class E>
StackedQr<E>::StackedQr(const LargeThreads& threads, int64_t n) : threads_(threads), n_(n) {
  inverse_.reserve(static_cast<size_t>(kStackPanel * (n + kStackPanel)));
  work_.reserve(static_cast<size_t>(kStackPanel * n));
}

template <class E>
uint64_t StackedQr<E>::scratch_bytes(int64_t n) {
  return static_cast<uint64_t>(kStackPanel * (2 * n + kStackPanel)) * sizeof(E);
}

// T^-1 of the reflectors v, tau.
template <class E>
void StackedQr<E>::invert_t(View v, const E* tau, E* inverse) const {
  blas::gram(v.cols, v.rows, v.data, v.ld, inverse, kStackPanel);
  for (int64_t j = 0; j < v.cols; ++j) {
    E& diagonal = inverse[j + j * kStackPanel];
    diagonal = tau[j] == E(0) ? E(kNoReflector) : (E(1) + diagonal) * 0.5 + imaginary_part(E(1) / tau[j]);
  }
}

// [R; B](:, from .. to - 1) := (I - V T^H V^H) of it, V the reflectors of the columns first .. last - 1.
template <class E>
void StackedQr<E>::update(View r, View b, int64_t first, int64_t last, int64_t from, int64_t to, const E* inverse,
                          E* work) const {
  const int64_t width = last - first, columns = to - from;
  const E* const v = b.data + first * b.ld;
  E* const right = b.data + from * b.ld;
  E* const above = r.data + first + from * r.ld;
  for (int64_t j = 0; j < columns; ++j) std::copy_n(above + j * r.ld, width, work + j * kStackPanel);
  blas::gemm(true, false, width, columns, b.rows, 1, v, b.ld, right, b.ld, 1, work, kStackPanel);
  blas::solve_upper(true, width, columns, inverse, kStackPanel, work, kStackPanel);
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < width; ++i) above[i + j * r.ld] -= work[i + j * kStackPanel];
  }
  blas::gemm(false, false, b.rows, columns, width, -1, v, b.ld, work, kStackPanel, 1, right, b.ld);
}

// Half the columns, then the others, so that most of it are products of matrices.
template <class E>
void StackedQr<E>::factor_panel(View r, View b, E* tau, int64_t first, int64_t last) {
  if (last - first <= kStackLeaf) {
    E t[kStackLeaf * kStackLeaf];
    blas::tpqrt2(b.rows, last - first, r.data + first + first * r.ld, r.ld, b.data + first * b.ld, b.ld, t, kStackLeaf);
    for (int64_t j = first; j < last; ++j) tau[j] = t[(j - first) * (kStackLeaf + 1)];
    return;
  }
  const int64_t middle = first + ((last - first) / 2 + kStackLeaf - 1) / kStackLeaf * kStackLeaf;
  factor_panel(r, b, tau, first, middle);
  invert_t(b.columns(first, middle - first), tau + first, inverse_.data());
  update(r, b, first, middle, middle, last, inverse_.data(), work_.data());
  factor_panel(r, b, tau, middle, last);
}

template <class E>
void StackedQr<E>::factor(View r, View b, E* tau) {
  for (int64_t first = 0; first < n_; first += kStackPanel) {
    const int64_t last = std::min(first + kStackPanel, n_);
    factor_panel(r, b, tau, first, last);
    if (last == n_) return;
    invert_t(b.columns(first, last - first), tau + first, inverse_.data());
    threads_.for_ranges(n_ - last, kTask, [&](int64_t from, int64_t to) {
      update(r, b, first, last, last + from, last + to, inverse_.data(), work_.data() + from * kStackPanel);
    });
  }
}

template <class E>
void StackedQr<E>::expand(View v, const E* tau, View c, View o) {
  const int64_t panels = (n_ + kStackPanel - 1) / kStackPanel;
  const auto panel = [&](int64_t p) { return v.columns(p * kStackPanel, std::min(kStackPanel, n_ - p * kStackPanel)); };
  const auto inverse = [&](int64_t p) { return inverse_.data() + p * kStackPanel * kStackPanel; };
  threads_.for_each(panels, [&](int64_t p) { invert_t(panel(p), tau + p * kStackPanel, inverse(p)); });
  threads_.for_ranges(n_, kTask, [&](int64_t from, int64_t to) {
    const int64_t columns = to - from;
    E* const work = work_.data() + from * kStackPanel;
    E* const out = o.data + from * o.ld;
    for (int64_t p = panels - 1; p >= 0; --p) {
      const View part = panel(p);
      E* const above = c.data + p * kStackPanel + from * c.ld;
      for (int64_t j = 0; j < columns; ++j) std::copy_n(above + j * c.ld, part.cols, work + j * kStackPanel);
      const bool begun = p < panels - 1;  // else O is zero
      if (begun)
        blas::gemm(true, false, part.cols, columns, v.rows, 1, part.data, v.ld, out, o.ld, 1, work, kStackPanel);
      blas::solve_upper(false, part.cols, columns, inverse(p), kStackPanel, work, kStackPanel);
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = 0; i < part.cols; ++i) above[i + j * c.ld] -= work[i + j * kStackPanel];
      }
      blas::gemm(false, false, v.rows, columns, part.cols, -1, part.data, v.ld, work, kStackPanel, begun ? 1 : 0, out,
                 o.ld);
    }
  });
}

template class StackedQr<double>;
template class StackedQr<Complex>;

}  // namespace svdserve::host
