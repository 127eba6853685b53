#include "engine/backends/host/shears/block_shears.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/algorithms/large/block_jacobi_sweeps.h"
#include "engine/algorithms/large/block_pivot_strategy.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/numbers.h"

namespace svdserve::host {
namespace {

using large::BlockPair;
using ComplexView = large::LargeView<Complex>;

// Rows or columns of a task of products, and lines of one of norms.
constexpr int64_t kLinesOfShears = 256;

// The lines of a block pair: `first` and `second` from p and q on.
struct PairLines {
  int64_t p = 0, q = 0;
  int64_t first = 0, second = 0;
  int64_t count() const { return first + second; }
  int64_t at(int64_t i) const { return i < first ? p + i : q + (i - first); }
};

// f(from, to) for the ranges of 0 .. n - 1 without the pair's lines.
template <class F>
void for_ranges_outside(const PairLines& lines, int64_t n, const F& f) {
  f(0, lines.p);
  f(lines.p + lines.first, lines.q);
  f(lines.q + lines.second, n);
}

// The transformation of a pair, K x K by columns.
struct PairTransformation {
  Complex *w = nullptr, *inverse = nullptr;
  ShearBlockCounts counts;
};

class BlockShears {
 public:
  BlockShears(const LargeThreads& threads, ComplexView a, ComplexView e, const BlockShearOptions& options,
              const std::function<void(const BlockShearReport&)>& tell)
      : threads_(threads), a_(a), e_(e), n_(a.cols), options_(options), tell_(tell) {}

  BlockShearReport run() {
    // At least two blocks, so that a small matrix is one pair.
    width_ = std::max<int64_t>(1, std::min(host_general_block_width(n_), (n_ + 1) / 2));
    const large::PivotSweep sweep = large::pivot_sweep(options_.strategy, static_cast<int>((n_ + width_ - 1) / width_));
    transformations_.resize((static_cast<size_t>(n_ / width_) + 2) / 2);
    products_.reserve(transformations_.size() * 8 * static_cast<size_t>(width_ * width_) + blas::kReadBeyond);
    const double enough = (options_.kind == ShearKind::kRotations ? 2 : 1) * static_cast<double>(n_) * kU;
    for (;; ++report_.sweeps) {
      const TriangleNorms norms = triangle_norms(threads_, a_);
      report_.lower = norms.all > 0 ? norms.lower / norms.all : norms.all;
      report_.converged = report_.lower <= enough;
      if (report_.converged || report_.sweeps >= options_.max_sweeps || !std::isfinite(norms.all)) return report_;
      least_ = kU * kU * norms.all * norms.all;
      run_sweep(sweep);
      if (options_.kind == ShearKind::kShearsAndRotations) {
        for (int parity = 0; parity < 2; ++parity) scale_every_other(parity);
      }
    }
  }

 private:
  void run_sweep(const large::PivotSweep& sweep) {
    for (size_t step = 0; step < sweep.size(); ++step) {
      p_step(sweep[step]);
      if (!tell_) continue;
      BlockShearReport now = report_;
      now.sweeps = report_.sweeps + 1;
      now.part_of_sweep = static_cast<double>(step + 1) / static_cast<double>(sweep.size());
      tell_(now);
    }
  }

  PairLines lines_of(BlockPair pair) const {
    const auto end = [&](int b) { return std::min<int64_t>((b + 1) * width_, n_); };
    return {pair.p * width_, pair.q * width_, end(pair.p) - pair.p * width_, end(pair.q) - pair.q * width_};
  }

  void p_step(const large::PivotStep& pairs) {
    const auto count = static_cast<int64_t>(pairs.size());
    const int64_t square = 4 * width_ * width_;
    threads_.for_each(count, [&](int64_t i) {
      PairTransformation& own = transformations_[static_cast<size_t>(i)];
      own.w = products_.data() + 2 * i * square;
      own.inverse = own.w + square;
      find_transformation(lines_of(pairs[static_cast<size_t>(i)]), own);
    });
    changed_.clear();
    for (int64_t i = 0; i < count; ++i) {
      const ShearBlockCounts& counts = transformations_[static_cast<size_t>(i)].counts;
      report_.transforms += counts.transforms;
      report_.proper_transforms += counts.proper;
      if (counts.transforms > 0) changed_.push_back(i);
    }
    const int64_t ranges = (n_ + kLinesOfShears - 1) / kLinesOfShears;
    const auto changed = static_cast<int64_t>(changed_.size());
    const auto pair_of = [&](int64_t task) { return changed_[static_cast<size_t>(task % changed)]; };
    threads_.for_each(changed * ranges, [&](int64_t task) {
      const int64_t i = pair_of(task);
      transform_rows(lines_of(pairs[static_cast<size_t>(i)]), transformations_[static_cast<size_t>(i)].inverse,
                     task / changed * kLinesOfShears);
    });
    threads_.for_each(2 * changed * ranges, [&](int64_t task) {
      const int64_t i = pair_of(task), range = task / changed;
      transform_columns(range < ranges ? a_ : e_, lines_of(pairs[static_cast<size_t>(i)]),
                        transformations_[static_cast<size_t>(i)].w, range % ranges * kLinesOfShears);
    });
  }

  void find_transformation(const PairLines& lines, PairTransformation& own) const {
    const int64_t k = lines.count();
    const int half = shear_half(static_cast<int>(k));
    const size_t size = ShearBlock<double>::memory(half);
    AlignedArray<double> memory;
    memory.reserve(size);
    std::fill(memory.data(), memory.data() + size, 0.0);
    const ShearBlock<double> block(half, memory.data());
    fill_block(lines, block);
    own.counts = {};
    const bool full = options_.variant == BlockVariant::kFullBlock;
    for (int sweep = 0; sweep < (full ? large::kFullBlockSweeps : 1); ++sweep) {
      if (sweep > 0) threads_.check();
      const ShearBlockCounts counts = shear_sweep(block, least_, options_.kind);
      own.counts.transforms += counts.transforms;
      own.counts.proper += counts.proper;
      if (counts.transforms == 0 || lower_square(block, k) <= static_cast<double>(k * k) * least_) break;
    }
    if (own.counts.transforms == 0) return;
    const int plane = block.plane();
    for (int64_t j = 0; j < k; ++j) {
      const double* const w = block.column(ShearMatrix::kW, 0, static_cast<int>(j));
      const double* const inverse = block.column(ShearMatrix::kInverse, 0, static_cast<int>(j));
      for (int64_t i = 0; i < k; ++i) {
        const int at = block.place(static_cast<int>(i));
        own.w[i + j * k] = {w[at], w[plane + at]};
        own.inverse[i + j * k] = {inverse[at], inverse[plane + at]};
      }
    }
  }

  // |strict lower triangle of P|_F^2
  static double lower_square(const ShearBlock<double>& block, int64_t k) {
    double square = 0;
    for (int64_t j = 0; j < k; ++j) {
      const double* const p = block.column(ShearMatrix::kP, 0, static_cast<int>(j));
      for (int64_t i = j + 1; i < k; ++i) {
        const int at = block.place(static_cast<int>(i));
        square += p[at] * p[at] + p[block.plane() + at] * p[block.plane() + at];
      }
    }
    return square;
  }

  static void put(const ShearBlock<double>& block, ShearMatrix m, int64_t i, int64_t j, Complex x) {
    double* const column = block.column(m, 0, static_cast<int>(j));
    const int at = block.place(static_cast<int>(i));
    column[at] = x.real();
    column[block.plane() + at] = x.imag();
  }

  void fill_block(const PairLines& lines, const ShearBlock<double>& block) const {
    const int64_t k = lines.count(), outside = n_ - k;
    for (int64_t j = 0; j < k; ++j) {
      const Complex* const column = a_.data + lines.at(j) * a_.ld;
      for (int64_t i = 0; i < k; ++i) put(block, ShearMatrix::kP, i, j, column[lines.at(i)]);
    }
    for (int j = 0; j < 2 * block.half; ++j) {
      put(block, ShearMatrix::kW, j, j, 1);
      put(block, ShearMatrix::kInverse, j, j, 1);
    }
    if (options_.kind == ShearKind::kRotations || outside == 0) return;
    AlignedArray<Complex> memory;
    memory.reserve(static_cast<size_t>(outside * k + k * k) + blas::kReadBeyond);
    Complex* const copies = memory.data();
    Complex* const gram = copies + outside * k;
    const auto store_gram = [&](ShearMatrix m) {
      blas::gram(k, outside, copies, outside, gram, k);
      for (int64_t j = 0; j < k; ++j) {
        for (int64_t i = 0; i <= j; ++i) {
          put(block, m, i, j, gram[i + j * k]);
          put(block, m, j, i, std::conj(gram[i + j * k]));
        }
      }
    };
    copy_columns(lines, copies);
    store_gram(ShearMatrix::kC);
    copy_rows(lines, copies);
    store_gram(ShearMatrix::kR);
  }

  // A(out, idx), and A(idx, out)^H.
  void copy_columns(const PairLines& lines, Complex* to) const {
    for (int64_t j = 0; j < lines.count(); ++j) {
      const Complex* const column = a_.data + lines.at(j) * a_.ld;
      for_ranges_outside(lines, n_,
                         [&](int64_t from, int64_t end) { to = std::copy(column + from, column + end, to); });
    }
  }
  void copy_rows(const PairLines& lines, Complex* to) const {
    const int64_t k = lines.count(), outside = n_ - k;
    int64_t row = 0;
    for_ranges_outside(lines, n_, [&](int64_t from, int64_t end) {
      for (int64_t j = from; j < end; ++j, ++row) {
        const Complex* const column = a_.data + j * a_.ld;
        for (int64_t i = 0; i < k; ++i) to[row + i * outside] = std::conj(column[lines.at(i)]);
      }
    });
  }

  // A(idx, range) := inverse A(idx, range)
  void transform_rows(const PairLines& lines, const Complex* inverse, int64_t from) const {
    const int64_t k = lines.count(), columns = std::min(kLinesOfShears, n_ - from);
    AlignedArray<Complex> copies;
    copies.reserve(static_cast<size_t>(k * columns) + blas::kReadBeyond);
    const ComplexView part = a_.columns(from, columns);
    Complex* to = copies.data();
    for (int64_t j = 0; j < columns; ++j) {
      const Complex* const column = part.data + j * part.ld;
      to = std::copy(column + lines.p, column + lines.p + lines.first, to);
      to = std::copy(column + lines.q, column + lines.q + lines.second, to);
    }
    blas::gemm(false, false, lines.first, columns, k, 1, inverse, k, copies.data(), k, 0, part.data + lines.p, part.ld);
    blas::gemm(false, false, lines.second, columns, k, 1, inverse + lines.first, k, copies.data(), k, 0,
               part.data + lines.q, part.ld);
  }

  // x(range, idx) := x(range, idx) w
  static void transform_columns(ComplexView x, const PairLines& lines, const Complex* w, int64_t from) {
    const int64_t k = lines.count(), rows = std::min(kLinesOfShears, x.rows - from);
    AlignedArray<Complex> copies;
    copies.reserve(static_cast<size_t>(rows * k) + blas::kReadBeyond);
    Complex* to = copies.data();
    for (int64_t j = 0; j < k; ++j) {
      const Complex* const column = x.data + lines.at(j) * x.ld + from;
      to = std::copy(column, column + rows, to);
    }
    blas::gemm(false, false, rows, lines.first, k, 1, copies.data(), rows, w, k, 0, x.data + lines.p * x.ld + from,
               x.ld);
    blas::gemm(false, false, rows, lines.second, k, 1, copies.data(), rows, w + lines.first * k, k, 0,
               x.data + lines.q * x.ld + from, x.ld);
  }

  // The diagonal scaling of the lines parity, parity + 2, .. : column j by d_j, row j by 1 / d_j.
  void scale_every_other(int parity) {
    const std::vector<double> row_squares = off_diagonal_squares_of_rows(), squares = off_diagonal_squares_of_columns();
    const double noise = 64 * static_cast<double>(n_) * static_cast<double>(n_) * least_;
    std::vector<double> factors(static_cast<size_t>(n_), 1.0);
    bool any = false;
    for (int64_t j = parity; j < n_; j += 2) {
      const double h = row_squares[static_cast<size_t>(j)], g = squares[static_cast<size_t>(j)];
      if (!(std::min(g, h) > noise)) continue;
      const double gain = 0.95 * (g + h);
      const double factor = 4 * g + h / 4 < gain ? 2.0 : 4 * h + g / 4 < gain ? 0.5 : 1.0;
      factors[static_cast<size_t>(j)] = factor;
      any = any || factor != 1;
    }
    if (!any) return;
    threads_.for_ranges(n_, kLinesOfShears, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        const double d = factors[static_cast<size_t>(j)];
        for (int64_t i = 0; i < n_; ++i) {
          a_.data[i + j * a_.ld] *= d / factors[static_cast<size_t>(i)];
          e_.data[i + j * e_.ld] *= d;
        }
      }
    });
  }

  std::vector<double> off_diagonal_squares_of_columns() const {
    std::vector<double> squares(static_cast<size_t>(n_), 0.0);
    threads_.for_ranges(n_, kLinesOfShears, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        double square = 0;
        for (int64_t i = 0; i < n_; ++i) square += i == j ? 0 : std::norm(a_.data[i + j * a_.ld]);
        squares[static_cast<size_t>(j)] = square;
      }
    });
    return squares;
  }

  std::vector<double> off_diagonal_squares_of_rows() const {
    std::vector<double> squares(static_cast<size_t>(n_), 0.0);
    threads_.for_ranges(n_, kLinesOfShears, [&](int64_t first, int64_t last) {
      for (int64_t j = 0; j < n_; ++j) {
        for (int64_t i = first; i < last; ++i) {
          squares[static_cast<size_t>(i)] += i == j ? 0 : std::norm(a_.data[i + j * a_.ld]);
        }
      }
    });
    return squares;
  }

  const LargeThreads& threads_;
  const ComplexView a_, e_;
  const int64_t n_;
  const BlockShearOptions& options_;
  const std::function<void(const BlockShearReport&)>& tell_;
  int64_t width_ = 1;
  double least_ = 0;  // u^2 |A|_F^2
  BlockShearReport report_;
  std::vector<PairTransformation> transformations_;  // of the pairs of a p-step
  std::vector<int64_t> changed_;                     // of these, those that are not identities
  AlignedArray<Complex> products_;                   // W and W' of each
};

}  // namespace

BlockShearReport block_shears(const LargeThreads& threads, ComplexView a, ComplexView e,
                              const BlockShearOptions& options,
                              const std::function<void(const BlockShearReport&)>& tell) {
  return BlockShears(threads, a, e, options, tell).run();
}

uint64_t block_shears_bytes(int64_t n, int threads) {
  const int64_t width = std::min(host_general_block_width(n), (n + 1) / 2), k = 2 * width;
  const int64_t transformations = (n / width + 2) / 2 * 2 * k * k, blocks = n / width + 1;
  const auto block = static_cast<int64_t>(ShearBlock<double>::memory(shear_half(static_cast<int>(k))));
  const int64_t task = std::max(n * k + k * k, kLinesOfShears * k) * 2 + block;
  // blocks^2: the list of pairs
  return static_cast<uint64_t>(2 * transformations + threads * task + blocks * blocks + 8 * n + 4096) * sizeof(double);
}

TriangleNorms triangle_norms(const LargeThreads& threads, ComplexView a) {
  const int64_t n = a.cols;
  std::vector<double> upper(static_cast<size_t>(n)), lower(static_cast<size_t>(n));
  threads.for_ranges(n, kLinesOfShears, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      const Complex* const column = a.data + j * a.ld;
      double above = 0, below = 0;
      for (int64_t i = 0; i <= j; ++i) above += std::norm(column[i]);
      for (int64_t i = j + 1; i < n; ++i) below += std::norm(column[i]);
      upper[static_cast<size_t>(j)] = above;
      lower[static_cast<size_t>(j)] = below;
    }
  });
  double above = 0, below = 0;
  for (int64_t j = 0; j < n; ++j) {
    above += upper[static_cast<size_t>(j)];
    below += lower[static_cast<size_t>(j)];
  }
  return {std::sqrt(below), std::sqrt(above + below)};
}

}  // namespace svdserve::host
