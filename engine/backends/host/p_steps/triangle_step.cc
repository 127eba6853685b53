#include "engine/backends/host/p_steps/triangle_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <type_traits>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/numbers.h"

namespace svdserve::host {
namespace {

using large::BlockPair;
using large::kZeroColumn;
using large::LargeView;
using large::PStep;

// A pivot of the Gram matrix below so much of its diagonal entry has lost half its digits: QR instead.
constexpr double kSmallestPivot = 1e-8;
// A column of norm about 1 that a p-step leaves below so many K u is rounding error of itself.
constexpr double kDependentNorm = 4 * 0x1p-53;
// Bytes of the copy of rows that a postmultiplication works on: most of a core's own cache.
constexpr int64_t kSlabBytes = 256 << 10;

template <class E>
constexpr int kPlanes = std::is_same_v<E, double> ? 1 : 2;

int plane_rows(int k) { return (k + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment; }

class Stopwatch {
 public:
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

template <class E>
PairReport TriangleStep<E>::run(const PStep<E>& step, BlockPair pair) {
  Columns c;
  c.p = step.place(pair.p);
  c.kp = static_cast<int>(step.columns_of(pair.p));
  c.kq = static_cast<int>(step.columns_of(pair.q));
  c.q = c.kq > 0 ? step.place(pair.q) : c.p + c.kp;
  c.positive = static_cast<int>(std::clamp<int64_t>(step.positive - pair.p * step.width, 0, c.kp) +
                                std::clamp<int64_t>(step.positive - pair.q * step.width, 0, c.kq));
  c.neighbours = pair.q == pair.p + 1;
  PairReport report;
  if (c.k() < 2) return report;
  reserve(step, c);
  Stopwatch watch;
  // Phase 1, factorize.
  gram(step, c);
  report.largest_cosine = largest_cosine(c.k());
  if (report.largest_cosine <= step.tolerance) {
    report.gram_seconds = watch.lap();
    return report;
  }
  factorize(step, c);
  report.gram_seconds = watch.lap();
  // Phase 2, orthogonalize.
  orthogonalize(step, c, report);
  if (report.counts.rotations == 0) {
    report.inner_seconds = watch.lap();
    return report;
  }
  join_transformation(step, c, report);
  report.inner_seconds = watch.lap();
  // Phase 3, postmultiply.
  postmultiply(step.x, c, w_scaled_.data());
  if (step.v) postmultiply(step.v, c, w_true_.data());
  report.postmultiply_seconds = watch.lap();
  return report;
}

template <class E>
void TriangleStep<E>::reserve(const PStep<E>& step, const Columns& c) {
  const size_t k = c.k();
  h_.reserve(k * k);
  factor_.reserve(k * k);
  w_scaled_.reserve(k * k);
  if (step.v) w_true_.reserve(k * k);
  const size_t planes = k * kPlanes<E> * plane_rows(c.k());
  r_.reserve(planes);
  w_.reserve(planes);
  squares_.reserve(k);
  inverse_.reserve(k);
  f_.resize(k);
  f_before_.resize(k);
}

// The upper triangle of h_ := [x_p x_q]^H [x_p x_q] of the scaled columns.
template <class E>
void TriangleStep<E>::gram(const PStep<E>& step, const Columns& c) {
  const int64_t m = step.x.rows, ld = step.x.ld, k = c.k();
  const E* x_p = step.x.data + c.p * ld;
  const E* x_q = step.x.data + c.q * ld;
  E* h = h_.data();
  // One call or three give other bits. So blocks that are neighbours are brought together where they lie apart.
  if (c.neighbours && c.p + c.kp == c.q) return blas::gram(k, m, x_p, ld, h, k);
  if (c.neighbours) {
    gather(step, c);
    return blas::gram(k, m, tall_.data(), m, h, k);
  }
  blas::gram(c.kp, m, x_p, ld, h, k);
  blas::gram(c.kq, m, x_q, ld, h + c.kp + c.kp * k, k);
  blas::gemm(true, false, c.kp, c.kq, m, 1, x_p, ld, x_q, ld, 0, h + c.kp * k, k);
}

template <class E>
double TriangleStep<E>::largest_cosine(int k) {
  for (int j = 0; j < k; ++j) {
    const double square = real_of(h_[j + size_t(j) * k]);
    inverse_[j] = square > 0 ? 1 / square : 0;
  }
  double largest = 0;
  for (int j = 1; j < k; ++j) {
    double largest_of_column = 0;
    for (int i = 0; i < j; ++i) {
      const double cosine_squared = square_of(h_[i + size_t(j) * k]) * inverse_[i];
      largest_of_column = cosine_squared > largest_of_column ? cosine_squared : largest_of_column;
    }
    largest = std::max(largest, largest_of_column * inverse_[j]);
  }
  return std::min(1.0, std::sqrt(largest));
}

// r_ := the planes of R, [x_p x_q]^H [x_p x_q] = R^H R.
template <class E>
void TriangleStep<E>::factorize(const PStep<E>& step, const Columns& c) {
  if (!cholesky(c.k())) qr(step, c);
  split_factor(c.k());
}

template <class E>
bool TriangleStep<E>::cholesky(int k) {
  std::copy(h_.data(), h_.data() + size_t(k) * k, factor_.data());
  const auto diagonal = [&](int j) -> E& { return factor_[j + size_t(j) * k]; };
  // A column of zeros is orthogonal to all: it may stand for any.
  for (int j = 0; j < k; ++j) {
    if (real_of(diagonal(j)) == 0) diagonal(j) = 1;
  }
  if (!blas::cholesky(k, factor_.data(), k)) return false;
  for (int j = 0; j < k; ++j) {
    const double square = real_of(h_[j + size_t(j) * k]);
    if (!(square_of(diagonal(j)) >= kSmallestPivot * square)) return false;
    if (square == 0) diagonal(j) = 0;
  }
  return true;
}

// tall_ := [x_p x_q].
template <class E>
void TriangleStep<E>::gather(const PStep<E>& step, const Columns& c) {
  const int64_t m = step.x.rows;
  tall_.reserve(m * c.k());
  for (int j = 0; j < c.k(); ++j) {
    const E* column = step.x.data + c.at(j) * step.x.ld;
    std::copy(column, column + m, tall_.data() + j * m);
  }
}

// Novakovic 2015, section 4.2.
template <class E>
void TriangleStep<E>::qr(const PStep<E>& step, const Columns& c) {
  const int64_t m = step.x.rows, k = c.k();
  gather(step, c);
  tau_.reserve(k);
  work_.reserve(64 * k);
  blas::geqrf(m, k, tall_.data(), m, tau_.data(), work_.data(), 64 * k);
  for (int64_t j = 0; j < k; ++j) {
    const int64_t rows = std::min(j + 1, m);
    std::copy(tall_.data() + j * m, tall_.data() + j * m + rows, factor_.data() + j * k);
    std::fill(factor_.data() + j * k + rows, factor_.data() + j * k + j + 1, E(0));
  }
}

template <class E>
void TriangleStep<E>::split_factor(int k) {
  const int ld = plane_rows(k);
  const size_t size = size_t(k) * kPlanes<E> * ld;
  std::fill(r_.data(), r_.data() + size, 0.0);
  std::fill(w_.data(), w_.data() + size, 0.0);
  for (int j = 0; j < k; ++j) {
    double* column = r_.data() + size_t(j) * kPlanes<E> * ld;
    const E* source = factor_.data() + size_t(j) * k;
    for (int i = 0; i <= j; ++i) {
      column[i] = real_of(source[i]);
      if constexpr (kPlanes<E> == 2) column[ld + i] = source[i].imag();
    }
    w_[size_t(j) * kPlanes<E> * ld + j] = 1;
  }
}

template <class E>
const std::vector<PivotPair>& TriangleStep<E>::order_of(int k) {
  if (orders_.size() <= size_t(k)) orders_.resize(k + 1);
  auto& order = orders_[k];
  if (order.empty()) {
    for (const auto& step : large::pivot_sweep(PivotStrategy::kRoundRobin, k)) {
      order.insert(order.end(), step.begin(), step.end());
    }
  }
  return order;
}

template <class E>
void TriangleStep<E>::orthogonalize(const PStep<E>& step, const Columns& c, PairReport& report) {
  const int k = c.k();
  PairFactor factor;
  factor.size = k;
  factor.ld = plane_rows(k);
  factor.planes = kPlanes<E>;
  factor.r = r_.data();
  factor.w = w_.data();
  factor.squares = squares_.data();
  for (int j = 0; j < k; ++j) f_before_[j] = f_[j] = step.f[c.at(j)];
  factor.f = f_.data();
  factor.positive = c.positive;
  report.counts = rotate_pairs(factor, order_of(k), step.tolerance, step.inner_sweeps);
}

// w_scaled_ := W' with the new columns' norms back in [1/2, 2), w_true_ := W, f := their exponents.
template <class E>
void TriangleStep<E>::join_transformation(const PStep<E>& step, const Columns& c, PairReport& report) {
  const int k = c.k(), ld = plane_rows(k);
  for (int j = 0; j < k; ++j) {
    const double* column = w_.data() + size_t(j) * kPlanes<E> * ld;
    const double norm = std::sqrt(squares_[j]);
    int e = 0;
    if (norm < 0.5 || norm >= 2) std::frexp(norm, &e);
    const bool dependent = norm <= kDependentNorm * k || f_[j] + e < step.smallest_exponent;
    const double scale = dependent ? 0 : std::ldexp(1.0, -e);
    E* scaled = w_scaled_.data() + size_t(j) * k;
    for (int i = 0; i < k; ++i) {
      if constexpr (kPlanes<E> == 1) {
        scaled[i] = column[i] * scale;
      } else {
        scaled[i] = {column[i] * scale, column[ld + i] * scale};
      }
    }
    if (step.v) {
      E* plain = w_true_.data() + size_t(j) * k;
      for (int i = 0; i < k; ++i) {
        const int shift = f_[j] - f_before_[i];
        const double factor = shift == 0 ? 1 : std::ldexp(1.0, std::clamp(shift, -1000, 1000));
        if constexpr (kPlanes<E> == 1) {
          plain[i] = column[i] * factor;
        } else {
          plain[i] = {column[i] * factor, column[ld + i] * factor};
        }
      }
    }
    const bool was_zero = f_[j] == kZeroColumn;
    report.zero_column |= dependent && !was_zero;
    step.f[c.at(j)] = dependent ? kZeroColumn : f_[j] + e;
  }
}

// [x_p x_q] := [x_p x_q] W, slab by slab of rows.
template <class E>
void TriangleStep<E>::postmultiply(LargeView<E> x, const Columns& c, const E* w) {
  const int64_t k = c.k();
  const int64_t slab = std::max<int64_t>(64, kSlabBytes / int64_t(sizeof(E)) / k);
  slab_.reserve(std::min(slab, x.rows) * k);
  for (int64_t first = 0; first < x.rows; first += slab) {
    const int64_t rows = std::min(slab, x.rows - first);
    for (int j = 0; j < k; ++j) {
      const E* column = x.data + c.at(j) * x.ld + first;
      std::copy(column, column + rows, slab_.data() + j * rows);
    }
    E* to_p = x.data + c.p * x.ld + first;
    E* to_q = x.data + c.q * x.ld + first;
    blas::gemm(false, false, rows, c.kp, k, 1, slab_.data(), rows, w, k, 0, to_p, x.ld);
    if (c.kq > 0) blas::gemm(false, false, rows, c.kq, k, 1, slab_.data(), rows, w + c.kp * k, k, 0, to_q, x.ld);
  }
}

template class TriangleStep<double>;
template class TriangleStep<Complex>;

}  // namespace svdserve::host
