#include "engine/backends/host/general/hessenberg.h"
#include "engine/backends/host/base/conjugate.h"

#include <algorithm>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/general/eigen_lapack.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int64_t kPanel = kReflectorPanel;
// Entries of a task of level 2: below, a task costs more than it saves.
constexpr int64_t kEntriesOfTask = 1 << 15;

// Reduces panels of a. V (rows first .. high - 1), Y = A V T and T belong to the panel of columns first - 1 on.
template <class E>
class Reduction {
 public:
  Reduction(const LargeThreads& threads, LargeView<E> a, int64_t high, E* tau)
      : threads_(threads), a_(a), high_(high), tau_(tau) {
    v_.reserve(a.rows * kPanel + blas::kReadBeyond);
    y_.reserve(a.rows * kPanel + blas::kReadBeyond);
    t_.reserve(kPanel * kPanel + blas::kReadBeyond);
    products_.reserve(2 * kPanel * std::max<int64_t>(a.cols, 1) + blas::kReadBeyond);
    column_.reserve(2 * kPanel + blas::kReadBeyond);
  }

  void panel(int64_t first, int64_t width) {
    first_ = first;
    std::fill(v_.data(), v_.data() + a_.rows * width, E(0));
    std::fill(t_.data(), t_.data() + kPanel * width, E(0));
    for (int64_t i = 0; i < width; ++i) {
      threads_.check();
      if (i > 0) update_column(i);
      reflector(i);
      multiply(i);
      extend_t(i);
    }
    upper_rows(width);
    right_columns(width);
  }

 private:
  E& a(int64_t i, int64_t j) { return a_.data[i + j * a_.ld]; }
  E* v(int64_t i, int64_t j) { return v_.data() + i + j * a_.rows; }
  E* y(int64_t i, int64_t j) { return y_.data() + i + j * a_.rows; }
  int64_t column_of(int64_t i) const { return first_ - 1 + i; }

  // Column i of the panel gets the transformations of the i columns before it.
  void update_column(int64_t i) {
    const int64_t c = column_of(i), rows = high_ - first_;
    E* const target = &a(first_, c);
    E *const w = column_.data(), *const tw = w + kPanel;
    for (int64_t l = 0; l < i; ++l) w[l] = conjugate(*v(c, l));
    blas::gemv(false, rows, i, -1, y(first_, 0), a_.rows, w, 1, target);
    blas::gemv(true, rows, i, 1, v(first_, 0), a_.rows, target, 0, w);
    blas::gemv(true, i, i, 1, t_.data(), kPanel, w, 0, tw);
    blas::gemv(false, rows, i, -1, v(first_, 0), a_.rows, tw, 1, target);
  }

  void reflector(int64_t i) {
    const int64_t c = column_of(i), rows = high_ - 1 - c;
    tau_[c] = blas::larfg(rows, a(c + 1, c), rows > 1 ? &a(c + 2, c) : nullptr);
    *v(c + 1, i) = 1;
    std::copy(&a(c + 1, c) + 1, &a(c + 1, c) + rows, v(c + 1, i) + 1);
  }

  // Y(:, i) := A v_i of rows first .. high - 1.
  void multiply(int64_t i) {
    const int64_t c = column_of(i), rows = high_ - first_, inner = high_ - 1 - c;
    const int64_t grain = rows * inner < kEntriesOfTask ? rows : (rows + threads_.threads() - 1) / threads_.threads();
    const auto range = [&](int64_t from, int64_t to) {
      blas::gemv(false, to - from, inner, 1, &a(first_ + from, c + 1), a_.ld, v(c + 1, i), 0, y(first_ + from, i));
    };
    if (grain == rows) {
      range(0, rows);
    } else {
      threads_.for_ranges(rows, grain, range);
    }
  }

  // Y(:, i) := tau (A v_i - Y V^H v_i), T(:, i) := (-tau T V^H v_i; tau).
  void extend_t(int64_t i) {
    const int64_t rows = high_ - first_;
    const E tau = tau_[column_of(i)];
    E* const w = column_.data();
    E* const t = t_.data() + i * kPanel;
    if (i > 0) {
      blas::gemv(true, rows, i, 1, v(first_, 0), a_.rows, v(first_, i), 0, w);
      blas::gemv(false, rows, i, -1, y(first_, 0), a_.rows, w, 1, y(first_, i));
      blas::gemv(false, i, i, 1, t_.data(), kPanel, w, 0, t);
    }
    for (int64_t l = 0; l < i; ++l) t[l] *= -tau;
    t[i] = tau;
    for (int64_t r = first_; r < high_; ++r) *y(r, i) *= tau;
  }

  // Rows above the panel: Y := A V T, and the panel's own columns of A.
  void upper_rows(int64_t width) {
    const int64_t inner = high_ - first_;
    threads_.for_ranges(first_, kLevel3Columns, [&](int64_t from, int64_t to) {
      const int64_t rows = to - from;
      AlignedArray<E> product;
      product.reserve(rows * width);
      blas::gemm(false, false, rows, width, inner, 1, &a(from, first_), a_.ld, v(first_, 0), a_.rows, 0, product.data(),
                 rows);
      blas::gemm(false, false, rows, width, width, 1, product.data(), rows, t_.data(), kPanel, 0, y(from, 0), a_.rows);
      if (width > 1) {
        blas::gemm(false, true, rows, width - 1, width, -1, y(from, 0), a_.rows, v(first_, 0), a_.rows, 1,
                   &a(from, first_), a_.ld);
      }
    });
  }

  // Columns after the panel: A -= Y V^H, then A -= V T^H V^H A. Those from `high` on get the second alone.
  void right_columns(int64_t width) {
    const int64_t start = column_of(width), rows = high_ - first_;
    threads_.for_ranges(a_.cols - start, kLevel3Columns, [&](int64_t from, int64_t to) {
      const int64_t c = start + from, count = to - from, inside = std::clamp<int64_t>(high_ - c, 0, count);
      if (inside > 0) {
        blas::gemm(false, true, high_, inside, width, -1, y(0, 0), a_.rows, v(c, 0), a_.rows, 1, &a(0, c), a_.ld);
      }
      E *const w = products_.data() + 2 * kPanel * from, *const tw = w + kPanel * count;
      blas::gemm(true, false, width, count, rows, 1, v(first_, 0), a_.rows, &a(first_, c), a_.ld, 0, w, width);
      blas::gemm(true, false, width, count, width, 1, t_.data(), kPanel, w, width, 0, tw, width);
      blas::gemm(false, false, rows, count, width, -1, v(first_, 0), a_.rows, tw, width, 1, &a(first_, c), a_.ld);
    });
  }

  const LargeThreads& threads_;
  const LargeView<E> a_;
  const int64_t high_;
  E* const tau_;
  int64_t first_ = 0;
  AlignedArray<E> v_, y_, t_, products_, column_;
};

}  // namespace

template <class E>
void reduce_to_hessenberg(const LargeThreads& threads, LargeView<E> a, int64_t low, int64_t high, E* tau,
                          const std::function<void(double)>& progress) {
  std::fill(tau, tau + a.cols, E(0));
  Reduction<E> reduction(threads, a, high, tau);
  const int64_t columns = high - low - 2;
  for (int64_t j = 0; j < columns; j += kPanel) {
    threads.check();
    reduction.panel(low + j + 1, std::min(kPanel, columns - j));
    const double rest = 1 - static_cast<double>(std::min(j + kPanel, columns)) / static_cast<double>(columns);
    progress(1 - rest * rest);
  }
}

template <class E>
void hessenberg_basis(const LargeThreads& threads, LargeView<E> a, int64_t low, int64_t high, const E* tau,
                      LargeView<E> q) {
  const int64_t n = a.cols, columns = high - low - 2;
  threads.for_ranges(n, kLevel3Columns, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      std::fill(q.data + j * q.ld, q.data + j * q.ld + n, E(0));
      q.data[j + j * q.ld] = 1;
    }
  });
  AlignedArray<E> t, work;
  t.reserve(kPanel * kPanel);
  work.reserve(kPanel * n + blas::kReadBeyond);
  for (int64_t j = (std::max<int64_t>(columns, 0) + kPanel - 1) / kPanel * kPanel - kPanel; j >= 0; j -= kPanel) {
    const int64_t first = low + j + 1, width = std::min(kPanel, columns - j), rows = high - first;
    const E* const panel = a.data + first + (first - 1) * a.ld;
    blas::larft(rows, width, panel, a.ld, tau + first - 1, t.data(), kPanel);
    // Columns before the panel's first row are those of the identity.
    threads.for_ranges(rows, kLevel3Columns, [&](int64_t from, int64_t to) {
      blas::larfb(false, rows, to - from, width, panel, a.ld, t.data(), kPanel, q.data + first + (first + from) * q.ld,
                  q.ld, work.data() + from * kPanel);
    });
  }
}

template void reduce_to_hessenberg(const LargeThreads&, LargeView<double>, int64_t, int64_t, double*,
                                   const std::function<void(double)>&);
template void reduce_to_hessenberg(const LargeThreads&, LargeView<Complex>, int64_t, int64_t, Complex*,
                                   const std::function<void(double)>&);
template void hessenberg_basis(const LargeThreads&, LargeView<double>, int64_t, int64_t, const double*,
                               LargeView<double>);
template void hessenberg_basis(const LargeThreads&, LargeView<Complex>, int64_t, int64_t, const Complex*,
                               LargeView<Complex>);

}  // namespace svdserve::host
