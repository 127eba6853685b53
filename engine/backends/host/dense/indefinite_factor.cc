#include "engine/backends/host/dense/indefinite_factor.h"
#include "engine/backends/host/base/conjugate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

#include "engine/algorithms/large/factor_error.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/dense/numbers.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int64_t kPivotPanel = 48;
constexpr double kAlpha = 0.6403882032022076;  // (1 + sqrt(17)) / 8

// The rounding error of each row of what is left (factor_error.h), by positions.
template <class E>
class RowErrors {
 public:
  // The rests of a pivot's row, one a probe.
  using Number = std::conditional_t<std::is_same_v<E, double>, double, svdserve::Complex>;
  using Rests = std::array<Number, large::kErrorProbes>;

  explicit RowErrors(int64_t n)
      : n_(n), bound_(large::zero_bound(n)), norm_(n, 0.0), error_(n, 0.0), probes_(n * large::kErrorProbes) {}

  // The magnitude up to which entry (i, j) is zero.
  double bound(int64_t i, int64_t j) const { return bound_ * (error_[i] * error_[j]); }

  // Position i is row `row` of M; added: the sum of |G(i, :)|^2 over the pivot's columns.
  Rests rests(int64_t i, int64_t row, double added) const {
    const double norm = std::sqrt(norm_[i] * norm_[i] + added);
    Rests r;
    for (int p = 0; p < large::kErrorProbes; ++p) {
      r[p] = large::probe_rest(probes_[i + p * n_], large::probe_sign(row, p) * norm);
    }
    return r;
  }

  // A column g of G is known, `root` times (x, y) in its pivot's rows; from position `first` on.
  void add(const E* g, int64_t first, E x, const Rests& of_x, E y, const Rests& of_y, double root) {
    for (int p = 0; p < large::kErrorProbes; ++p) {
      const Number step = large::probe_step(shared(x), shared(y), of_x[p], of_y[p], root);
      Number* const probe = probes_.data() + p * n_;
      for (int64_t r = first; r < n_; ++r) probe[r] = large::plus_probe(probe[r], shared(g[r]), step);
    }
    for (int64_t r = first; r < n_; ++r) norm_[r] = std::sqrt(norm_[r] * norm_[r] + std::norm(g[r]));
  }

  // After all columns of a pivot.
  void finish(int64_t first) {
    std::fill(error_.begin() + first, error_.end(), 0.0);
    for (int p = 0; p < large::kErrorProbes; ++p) {
      const Number* const probe = probes_.data() + p * n_;
      for (int64_t r = first; r < n_; ++r) error_[r] += large::probe_square(probe[r]);
    }
    for (int64_t r = first; r < n_; ++r) error_[r] = large::row_error(norm_[r], error_[r]);
  }

  void exchange(int64_t k, int64_t p) {
    std::swap(norm_[k], norm_[p]);
    std::swap(error_[k], error_[p]);
    for (int i = 0; i < large::kErrorProbes; ++i) std::swap(probes_[k + i * n_], probes_[p + i * n_]);
  }

 private:
  static double shared(double x) { return x; }
  static svdserve::Complex shared(const Complex& x) { return {x.real(), x.imag()}; }

  const int64_t n_;
  const double bound_;
  std::vector<double> norm_, error_;  // |G(i, :)| so far, t_i
  std::vector<Number> probes_;        // y, n a probe
};

// Rows and columns of what is left have positions, which exchanges change; row_[i] is the row of M in position i.
template <class E>
class Factorization {
  using Rests = typename RowErrors<E>::Rests;

 public:
  Factorization(const LargeThreads& threads, LargeView<E> m, LargeView<E> g, PivotSearch search)
      : threads_(threads),
        a_(m),
        g_(g),
        complete_(search == PivotSearch::kComplete),
        n_(m.rows),
        errors_(n_),
        row_(n_),
        diagonal_(n_),
        is_done_(n_, false),
        this_(n_),
        next_(n_) {
    panel_memory_.reserve(n_ * (kPivotPanel + 1));
    signed_memory_.reserve(n_ * (kPivotPanel + 1));
    panel_ = {panel_memory_.data(), n_, kPivotPanel + 1, n_};
    signed_panel_ = {signed_memory_.data(), n_, kPivotPanel + 1, n_};
    std::iota(row_.begin(), row_.end(), int64_t{0});
    for (int64_t i = 0; i < n_; ++i) diagonal_[i] = real_of(a_.data[i + i * a_.ld]);
  }

  std::vector<int8_t> run(const FactorProgress& progress) {
    threads_.for_ranges(n_, kLevel3Columns, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) std::fill_n(g_.data + j * g_.ld, n_, E(0));
    });
    while (first_ < n_) {
      threads_.check();
      width_ = 0;
      int64_t done = first_;
      while (done < n_ && width_ < (complete_ ? 1 : kPivotPanel)) done += take_pivot();
      store_panel();
      gather_done();
      first_ = done;
      update();
      const double left = static_cast<double>(n_ - first_) / static_cast<double>(n_);
      if (progress) progress(1 - left * left * left);
    }
    return std::move(signs_);
  }

 private:
  // A column of what is left, brought up to date, by positions; [position] is its diagonal entry.
  struct Column {
    explicit Column(int64_t n) : entries(static_cast<size_t>(n)) {}
    std::vector<E> entries;
    int64_t position = 0;
    int64_t largest_at = 0;  // the position of the largest entry off the diagonal
    double largest = 0;      // its magnitude
  };

  // The next pivot and its columns of G. Returns how many rows it finishes.
  int take_pivot() { return complete_ ? complete_pivot() : rook_pivot(); }

  int rook_pivot() {
    visit(start(), this_);
    while (!dominates(this_)) {
      visit(this_.largest_at, next_);
      if (dominates(next_)) {
        std::swap(this_, next_);
        break;
      }
      if (next_.largest <= this_.largest) return pair_pivot();
      std::swap(this_, next_);
    }
    return single_pivot();
  }

  int complete_pivot() {
    double largest = 0;
    int64_t row = first_, col = first_;
    for (int64_t j = first_; j < n_; ++j) {
      for (int64_t i = j + 1; i < n_; ++i) {
        const double size = std::abs(a_.data[i + j * a_.ld]);
        if (size <= largest || size <= errors_.bound(i, j)) continue;
        largest = size;
        row = i;
        col = j;
      }
    }
    const int64_t i = start();
    if (std::abs(diagonal_[i]) >= kAlpha * largest) {
      visit(i, this_);
      return single_pivot();
    }
    visit(col, this_);
    visit(row, next_);
    this_.largest_at = row;
    return pair_pivot();
  }

  // The position of the largest diagonal entry; the first one that is left where all are zero.
  int64_t start() const {
    int64_t found = -1;
    for (int64_t i = first_; i < n_; ++i) {
      if (is_done_[i]) continue;
      if (found < 0 || std::abs(diagonal_[i]) > std::abs(diagonal_[found])) found = i;
    }
    return found;
  }

  static bool dominates(double diagonal, double largest) { return std::abs(diagonal) >= kAlpha * largest; }
  bool dominates(const Column& c) const { return dominates(diagonal_[c.position], c.largest); }

  void visit(int64_t position, Column& c) {
    c.position = position;
    E* const x = c.entries.data();
    for (int64_t i = first_; i < position; ++i) x[i] = conjugate(a_.data[position + i * a_.ld]);
    std::copy(a_.data + position + position * a_.ld, a_.data + n_ + position * a_.ld, x + position);
    if (width_ > 0) {
      coefficients_.resize(static_cast<size_t>(width_));
      for (int64_t j = 0; j < width_; ++j) coefficients_[j] = conjugate(signed_panel_.data[position + j * n_]);
      blas::gemm(false, false, n_ - first_, 1, width_, -1, panel_.data + first_, n_, coefficients_.data(), width_, 1,
                 x + first_, n_);
    }
    c.largest = 0;
    c.largest_at = position;
    for (int64_t i = first_; i < n_; ++i) {
      if (i == position) continue;
      const double size = is_done_[i] ? 0 : std::abs(x[i]);
      if (size <= errors_.bound(i, position)) {
        x[i] = 0;
      } else if (size > c.largest) {
        c.largest = size;
        c.largest_at = i;
      }
    }
    x[position] = diagonal_[position];
  }

  int single_pivot() {
    const int64_t i = this_.position;
    is_done_[i] = true;
    const double d = diagonal_[i];
    if (d == 0) return 1;  // with its column: nothing is left of this row
    const double root = std::sqrt(std::abs(d));
    const Rests rests = errors_.rests(i, row_[i], std::abs(d));
    E* const to = next_column(d);
    for (int64_t r = first_; r < n_; ++r) to[r] = is_done_[r] ? E(0) : this_.entries[r] / (d < 0 ? -root : root);
    to[i] = root;
    errors_.add(to, first_, E(1), rests, E(0), rests, root);
    finish_column();
    finish_pivot();
    return 1;
  }

  int pair_pivot() {
    const int64_t i = this_.position, r = this_.largest_at;
    const E b = this_.entries[r];
    const double size = std::abs(b), a = diagonal_[i], c = diagonal_[r];
    const E phase = b / size;
    const double tau = (c - a) / (2 * size);
    const double t = std::copysign(1 / (std::abs(tau) + std::sqrt(1 + tau * tau)), tau);
    const double cosine = 1 / std::sqrt(1 + t * t), sine = t * cosine;
    is_done_[i] = is_done_[r] = true;
    const double d_1 = a - t * size, d_2 = c + t * size, cosine_2 = cosine * cosine, sine_2 = sine * sine;
    const Rests of_i = errors_.rests(i, row_[i], cosine_2 * std::abs(d_1) + sine_2 * std::abs(d_2));
    const Rests of_r = errors_.rests(r, row_[r], sine_2 * std::abs(d_1) + cosine_2 * std::abs(d_2));
    // The columns of W: (cosine, -phase sine), (sine, phase cosine).
    add_pair_column({i, E(cosine), of_i}, {r, -sine * phase, of_r}, d_1);
    add_pair_column({i, E(sine), of_i}, {r, cosine * phase, of_r}, d_2);
    finish_pivot();
    return 2;
  }

  // A row of a pivot of order 2: its position, its component of W's column, its rests.
  struct PairRow {
    int64_t position;
    E component;
    const Rests& rests;
  };

  // The column of [this_ next_] W |D|^(-1/2) that belongs to the eigenvalue d.
  void add_pair_column(const PairRow& i, const PairRow& r, double d) {
    const double root = std::sqrt(std::abs(d));
    const E x = i.component, y = r.component;
    E* const to = next_column(d);
    for (int64_t k = first_; k < n_; ++k) {
      to[k] = is_done_[k] ? E(0) : (this_.entries[k] * x + next_.entries[k] * y) / (d < 0 ? -root : root);
    }
    to[i.position] = x * root;
    to[r.position] = y * root;
    errors_.add(to, first_, x, i.rests, y, r.rests, root);
    finish_column();
  }

  // Columns of the panel are zero in the rows above first_, which are done.
  E* next_column(double d) {
    signs_.push_back(d < 0 ? -1 : 1);
    return panel_.data + width_ * n_;
  }

  void finish_column() {
    const double sign = signs_.back();
    const E* const g = panel_.data + width_ * n_;
    E* const signed_g = signed_panel_.data + width_ * n_;
    for (int64_t r = first_; r < n_; ++r) {
      signed_g[r] = sign * g[r];
      const double size = std::abs(g[r]);
      if (size == 0) continue;
      diagonal_[r] -= sign * (size * size);
    }
    ++width_;
  }

  // Not between the columns of a pair: they may cancel in the diagonal and in the errors.
  void finish_pivot() {
    errors_.finish(first_);
    for (int64_t r = first_; r < n_; ++r) {
      if (std::abs(diagonal_[r]) <= errors_.bound(r, r)) diagonal_[r] = 0;
    }
  }

  void store_panel() {
    const int64_t column = static_cast<int64_t>(signs_.size()) - width_;
    for (int64_t j = 0; j < width_; ++j) {
      E* const to = g_.data + (column + j) * g_.ld;
      for (int64_t r = first_; r < n_; ++r) to[row_[r]] = panel_.data[r + j * n_];
    }
  }

  // Rows that are done come to the front of what is left.
  void gather_done() {
    int64_t to = first_;
    for (int64_t i = first_; i < n_; ++i) {
      if (is_done_[i]) exchange(to++, i);
    }
  }

  // Positions k <= p change places.
  void exchange(int64_t k, int64_t p) {
    if (k == p) return;
    const auto at = [&](int64_t i, int64_t j) -> E& { return a_.data[i + j * a_.ld]; };
    std::swap(row_[k], row_[p]);
    std::swap(diagonal_[k], diagonal_[p]);
    errors_.exchange(k, p);
    const bool done = is_done_[k];
    is_done_[k] = is_done_[p];
    is_done_[p] = done;
    for (int64_t j = 0; j < width_; ++j) {
      std::swap(panel_.data[k + j * n_], panel_.data[p + j * n_]);
      std::swap(signed_panel_.data[k + j * n_], signed_panel_.data[p + j * n_]);
    }
    for (int64_t i = k + 1; i < p; ++i) {
      const E x = at(i, k);
      at(i, k) = conjugate(at(p, i));
      at(p, i) = conjugate(x);
    }
    at(p, k) = conjugate(at(p, k));
    for (int64_t i = p + 1; i < n_; ++i) std::swap(at(i, k), at(i, p));
  }

  // The lower triangle of what is left -= panel J panel^H; the diagonal is kept in diagonal_.
  void update() {
    const int64_t left = n_ - first_;
    if (left == 0 || width_ == 0) return;
    const int64_t grain = std::clamp<int64_t>(left / (4 * threads_.threads()), 32, kLevel3Columns);
    threads_.for_ranges(left, grain, [&](int64_t first, int64_t last) {
      const int64_t at = first_ + first;
      blas::gemm(false, true, n_ - at, last - first, width_, -1, signed_panel_.data + at, n_, panel_.data + at, n_, 1,
                 a_.data + at + at * a_.ld, a_.ld);
    });
  }

  const LargeThreads& threads_;
  const LargeView<E> a_, g_;
  const bool complete_;
  const int64_t n_;
  RowErrors<E> errors_;
  int64_t first_ = 0;  // positions before it are done
  std::vector<int64_t> row_;
  std::vector<double> diagonal_;  // of what is left, up to date
  std::vector<char> is_done_;     // also within the panel
  std::vector<int8_t> signs_;
  AlignedArray<E> panel_memory_, signed_memory_;
  LargeView<E> panel_, signed_panel_;  // the panel's columns of G, by positions; times J
  int64_t width_ = 0;                  // their number
  std::vector<E> coefficients_;
  Column this_, next_;
};

}  // namespace

template <class E>
std::vector<int8_t> indefinite_factor(const LargeThreads& threads, LargeView<E> m, LargeView<E> g,
                                      const FactorProgress& progress, PivotSearch search) {
  return Factorization<E>(threads, m, g, search).run(progress);
}
template std::vector<int8_t> indefinite_factor(const LargeThreads&, LargeView<double>, LargeView<double>,
                                               const FactorProgress&, PivotSearch);
template std::vector<int8_t> indefinite_factor(const LargeThreads&, LargeView<Complex>, LargeView<Complex>,
                                               const FactorProgress&, PivotSearch);

}  // namespace svdserve::host
