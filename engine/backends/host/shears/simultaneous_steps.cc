#include "engine/backends/host/shears/simultaneous_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "engine/algorithms/large/cluster_vectors.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/forms/hermitian_eigenbasis.h"
#include "engine/backends/host/general/eigen_lapack.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using large::Op;

// Few, since a cancel is seen between tasks.
constexpr int64_t kColumnsOfStep = 32;
constexpr int64_t kFactorPanel = 32;

double sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

}  // namespace

SimultaneousSteps::SimultaneousSteps(const LargeThreads& threads, View a, View v, View s, View more)
    : threads_(threads), a_(a), v_(v), s_(s), more_(more), pivots_(static_cast<size_t>(a.cols)) {
  values_.resize(static_cast<size_t>(a.cols));
}

template <class F>
void SimultaneousSteps::for_columns(const F& f) const {
  threads_.for_ranges(order(), kColumnsOfStep, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) f(j);
  });
}

// --- products and solutions ---------------------------------------------------------------------------------------

namespace {

// c := op(x) op(y), n x n
void multiply_squares(const LargeThreads& threads, bool adjoint_x, LargeView<Complex> x, bool adjoint_y,
                      LargeView<Complex> y, double beta, double alpha, LargeView<Complex> c) {
  const int64_t n = x.cols;
  threads.for_ranges(n, kColumnsOfStep, [&](int64_t first, int64_t last) {
    const Complex* const part = y.data + (adjoint_y ? first : first * y.ld);
    blas::gemm(adjoint_x, adjoint_y, n, last - first, n, alpha, x.data, x.ld, part, y.ld, beta, c.data + first * c.ld,
               c.ld);
  });
}

}  // namespace

void SimultaneousSteps::product() { multiply_squares(threads_, false, a_, false, v_, 0, 1, s_); }

// Right-looking, a panel at a time; the rest in tasks of columns.
bool SimultaneousSteps::factor() {
  const int64_t n = order();
  for_columns([&](int64_t j) { std::copy(v_.data + j * v_.ld, v_.data + j * v_.ld + n, more_.data + j * more_.ld); });
  bool regular = true;
  for (int64_t k = 0; k < n && regular; k += kFactorPanel) {
    const int64_t width = std::min(kFactorPanel, n - k), next = k + width;
    threads_.check();
    regular = blas::getrf(n - k, width, more_.data + k + k * more_.ld, more_.ld, pivots_.data() + k);
    for (int64_t i = k; i < next; ++i) pivots_[static_cast<size_t>(i)] += k;
    swap_rows(more_.columns(0, k), k, next, false);
    threads_.for_ranges(n - next, kColumnsOfStep, [&](int64_t first, int64_t last) {
      const View right = more_.columns(next + first, last - first);
      swap_rows(right, k, next, false);
      blas::solve_unit_lower(false, width, right.cols, more_.data + k + k * more_.ld, more_.ld, right.data + k,
                             right.ld);
      if (next < n) {
        blas::gemm(false, false, n - next, right.cols, width, -1, more_.data + next + k * more_.ld, more_.ld,
                   right.data + k, right.ld, 1, right.data + next, right.ld);
      }
    });
  }
  return regular;
}

void SimultaneousSteps::swap_rows(View b, int64_t first, int64_t last, bool backwards) const {
  for (int64_t j = 0; j < b.cols; ++j) {
    Complex* const column = b.data + j * b.ld;
    for (int64_t step = 0; step < last - first; ++step) {
      const int64_t i = backwards ? last - 1 - step : first + step;
      std::swap(column[i], column[pivots_[static_cast<size_t>(i)]]);
    }
  }
}

void SimultaneousSteps::solve(Op op, View b) const {
  const int64_t n = order();
  threads_.for_ranges(b.cols, kColumnsOfStep, [&](int64_t first, int64_t last) {
    const View part = b.columns(first, last - first);
    const auto lower = [&](bool adjoint) {
      blas::solve_unit_lower(adjoint, n, part.cols, more_.data, more_.ld, part.data, part.ld);
    };
    const auto upper = [&](bool adjoint) {
      blas::solve_upper(adjoint, n, part.cols, more_.data, more_.ld, part.data, part.ld);
    };
    if (op == Op::kNone) {
      swap_rows(part, 0, n, false);
      lower(false);
      upper(false);
    } else {
      upper(true);
      lower(true);
      swap_rows(part, 0, n, true);
    }
  });
}

bool SimultaneousSteps::similar() {
  if (!factor()) return false;
  solve(Op::kNone, s_);
  return true;
}

double SimultaneousSteps::least_pivot() {
  if (!factor()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < order(); ++j) least = std::min(least, std::abs(more_.data[j + j * more_.ld]));
  return least;
}

bool SimultaneousSteps::invert(View* w) {
  if (!factor()) return false;
  set_identity(s_);
  solve(Op::kAdjoint, s_);
  *w = s_;
  return true;
}

// --- V ------------------------------------------------------------------------------------------------------------

void SimultaneousSteps::normalize() const {
  for_columns([&](int64_t j) {
    Complex* const v = v_.data + j * v_.ld;
    double square = 0;
    for (int64_t i = 0; i < order(); ++i) square += square_of(v[i]);
    const double factor = 1 / std::sqrt(square);
    for (int64_t i = 0; i < order(); ++i) v[i] *= factor;
  });
}

double SimultaneousSteps::residual() {
  normalize();
  product();
  std::vector<double> squares(values_.size());
  for_columns([&](int64_t j) {
    const Complex *const v = v_.data + j * v_.ld, *const p = s_.data + j * s_.ld;
    Complex value = 0;
    for (int64_t i = 0; i < order(); ++i) value += times(std::conj(v[i]), p[i]);
    double square = 0;
    for (int64_t i = 0; i < order(); ++i) square += square_of(p[i] - times(value, v[i]));
    values_[static_cast<size_t>(j)] = value;
    squares[static_cast<size_t>(j)] = square;
  });
  return std::sqrt(sum(squares));
}

bool SimultaneousSteps::start_nearly_normal() {
  const int64_t n = order();
  std::vector<double> squares(values_.size());
  multiply_squares(threads_, false, a_, true, a_, 0, 1, s_);
  multiply_squares(threads_, true, a_, false, a_, 1, -1, s_);
  const auto norm_of = [&](View x) {
    for_columns([&](int64_t j) {
      double square = 0;
      for (int64_t i = 0; i < n; ++i) square += square_of(x.data[i + j * x.ld]);
      squares[static_cast<size_t>(j)] = square;
    });
    return std::sqrt(sum(squares));
  };
  const double size = norm_of(a_), departure = norm_of(s_);
  if (!(departure <= large::kNearlyNormal * size * size)) return false;
  const Complex turn = std::polar(0.5, large::kTurn);
  for_columns([&](int64_t j) {
    for (int64_t i = 0; i < n; ++i) {
      s_.data[i + j * s_.ld] = times(turn, a_.data[i + j * a_.ld]) + std::conj(times(turn, a_.data[j + i * a_.ld]));
    }
  });
  return hermitian_eigenbasis(threads_, s_, v_);
}

// --- the pivots ---------------------------------------------------------------------------------------------------

namespace {

// f_ij = s_ij / (s_jj - s_ii): whether it is small, and what it is.
bool is_small_shear(Complex s, Complex gap, Complex* f) {
  *f = s / gap;
  return square_of(*f) <= large::kLargestShear * large::kLargestShear;  // false for no gap at all
}

}  // namespace

std::optional<std::vector<large::Coupling>> SimultaneousSteps::couplings(double least, int64_t most) const {
  std::vector<large::Coupling> found;
  std::mutex mutex;
  bool too_many = false;
  for_columns([&](int64_t j) {
    const Complex* const column = s_.data + j * s_.ld;
    for (int64_t i = 0; i < order(); ++i) {
      Complex f = 0;
      const Complex gap = column[j] - s_.data[i + i * s_.ld];
      if (i == j || !(square_of(column[i]) > least * least) || is_small_shear(column[i], gap, &f)) continue;
      const double square = square_of(f);
      const std::lock_guard<std::mutex> lock(mutex);
      too_many = too_many || static_cast<int64_t>(found.size()) >= most;
      if (too_many) return;
      found.push_back({static_cast<int32_t>(i), static_cast<int32_t>(j), large::size_of_coupling(square)});
    }
  });
  if (too_many) return std::nullopt;
  return found;
}

std::vector<Complex> SimultaneousSteps::parts(const std::vector<large::Cluster>& clusters) const {
  std::vector<Complex> all;
  for (const large::Cluster& c : clusters) {
    for (const int32_t j : c) {
      for (const int32_t i : c) all.push_back(s_.data[i + j * s_.ld]);
    }
  }
  return all;
}

bool SimultaneousSteps::vectors(int k, const Complex* s, Complex* y) const { return large::cluster_vectors(k, s, y); }

void SimultaneousSteps::multiply(const std::vector<large::Cluster>& clusters, const std::vector<Complex>& y) {
  const int64_t n = order();
  std::vector<size_t> starts{0};
  for (const large::Cluster& c : clusters) starts.push_back(starts.back() + c.size() * c.size());
  threads_.for_each(static_cast<int64_t>(clusters.size()), [&](int64_t at) {
    const large::Cluster& c = clusters[static_cast<size_t>(at)];
    const auto k = static_cast<int64_t>(c.size());
    std::vector<Complex> columns(static_cast<size_t>(2 * n * k) + blas::kReadBeyond);
    Complex* const to = columns.data() + n * k;
    for (int64_t j = 0; j < k; ++j) {
      const Complex* const from = v_.data + c[static_cast<size_t>(j)] * v_.ld;
      std::copy(from, from + n, columns.data() + j * n);
    }
    blas::gemm(false, false, n, k, k, 1, columns.data(), n, y.data() + starts[static_cast<size_t>(at)], k, 0, to, n);
    for (int64_t j = 0; j < k; ++j) {
      std::copy(to + j * n, to + (j + 1) * n, v_.data + c[static_cast<size_t>(j)] * v_.ld);
    }
  });
  normalize();
  product();
}

void SimultaneousSteps::eliminate() {
  std::vector<Complex> diagonal(values_.size());
  for (int64_t j = 0; j < order(); ++j) diagonal[static_cast<size_t>(j)] = s_.data[j + j * s_.ld];
  for_columns([&](int64_t j) {
    Complex* const column = s_.data + j * s_.ld;
    for (int64_t i = 0; i < order(); ++i) {
      Complex f = 0;
      const Complex gap = diagonal[static_cast<size_t>(j)] - diagonal[static_cast<size_t>(i)];
      if (!is_small_shear(column[i], gap, &f)) f = 0;
      column[i] = i == j ? 1 : f;
    }
  });
  multiply_squares(threads_, false, v_, false, s_, 0, 1, more_);
  std::swap(v_, more_);
}

void SimultaneousSteps::set_identity(View x) const {
  for_columns([&](int64_t j) {
    std::fill(x.data + j * x.ld, x.data + j * x.ld + order(), Complex(0));
    x.data[j + j * x.ld] = 1;
  });
}

void SimultaneousSteps::orthonormalize() {
  std::vector<Complex> tau(static_cast<size_t>(order() + blas::kReadBeyond));
  factor_qr(threads_, v_, tau.data());
  set_identity(more_);
  apply_reflectors(threads_, Op::kNone, v_, tau.data(), more_);
  std::swap(v_, more_);
}

}  // namespace svdserve::host
