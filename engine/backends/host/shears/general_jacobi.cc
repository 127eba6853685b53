#include "engine/backends/host/shears/general_jacobi.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/general/eigen_lapack.h"
#include "engine/backends/host/general/schur_vectors.h"
#include "engine/backends/host/shears/simultaneous_steps.h"

namespace svdserve::host {
namespace {

using ComplexView = large::LargeView<Complex>;

constexpr double kLargestTraceError = 8;  // in units of n u |S|_F
// Few, since a cancel is seen between tasks of n^2 operations a column.
constexpr int64_t kColumnsOfTask = 32;
// Parts of the whole work that are done after the sweeps, after the basis, after the right vectors.
constexpr double kSweepsEnd = 0.8, kBasisEnd = 0.9;

Complex trace_of(ComplexView a) {
  Complex sum = 0;
  for (int64_t i = 0; i < a.cols; ++i) sum += a.data[i + i * a.ld];
  return sum;
}

// --- conjugate pairs -----------------------------------------------------------------------------------------------

void copy_column(ComplexView v, int64_t from, int64_t to, bool conjugated) {
  if (!v) return;
  const Complex* const x = v.data + from * v.ld;
  std::transform(x, x + v.rows, v.data + to * v.ld, [=](Complex z) { return conjugated ? std::conj(z) : z; });
}

// The value after j that is nearest to the conjugate of value j; their number where there is none.
size_t nearest_conjugate(const std::vector<Complex>& values, size_t j) {
  size_t nearest = values.size();
  double least = std::numeric_limits<double>::max();
  for (size_t i = j + 1; i < values.size(); ++i) {
    const double distance = size_of(values[i] - std::conj(values[j]));
    if (distance < least) nearest = i, least = distance;
  }
  return nearest;
}

// conjugate_pairs.h for one matrix.
void pair_conjugates(const GeneralResults& results, double tolerance) {
  std::vector<Complex>& values = results.values;
  for (size_t j = 0; j < values.size(); ++j) {
    const double size = std::abs(values[j].imag());
    const size_t other = nearest_conjugate(values, j);
    if (size <= tolerance || other == values.size() || size_of(values[other] - std::conj(values[j])) > size) {
      values[j] = values[j].real();
      continue;
    }
    const Complex middle = (values[j] + std::conj(values[other])) / 2.0;
    const bool turned = middle.imag() < 0;
    std::swap(values[j + 1], values[other]);
    values[j] = turned ? std::conj(middle) : middle;
    values[j + 1] = std::conj(values[j]);
    const auto first = static_cast<int64_t>(j), moved = static_cast<int64_t>(other);
    for (const ComplexView v : {results.right, results.left}) {
      if (moved != first + 1) copy_column(v, first + 1, moved, false);
      if (turned) copy_column(v, first, first, true);
      copy_column(v, first, first + 1, true);
    }
    ++j;
  }
}

// x := x turned to be real, of norm 1. False: its parts are two vectors rather than one with a phase.
bool make_real(Complex* x, int64_t n) {
  Complex product = 0;
  double square = 0;
  for (int64_t i = 0; i < n; ++i) {
    product += x[i] * x[i];
    square += std::norm(x[i]);
  }
  if (!(std::norm(product) >= 0.98 * square * square)) return false;
  const Complex turn = std::conj(std::sqrt(product / std::abs(product)));
  double left = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = (x[i] * turn).real();
    left += std::norm(x[i]);
  }
  const double factor = 1 / std::sqrt(left);
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
  return true;
}

bool make_real_vectors(const GeneralResults& results) {
  for (size_t j = 0; j < results.values.size(); ++j) {
    if (results.values[j].imag() != 0) continue;
    for (const ComplexView v : {results.right, results.left}) {
      if (v && !make_real(v.data + static_cast<int64_t>(j) * v.ld, v.rows)) return false;
    }
  }
  return true;
}

// -------------------------------------------------------------------------------------------------------------------

class GeneralJacobi {
 public:
  GeneralJacobi(const LargeThreads& threads, ComplexView a, const GeneralResults& results,
                const GeneralJacobiOptions& options, const std::function<void(const BlockShearReport&, double)>& tell)
      : threads_(threads), b_(a), n_(a.cols), results_(results), options_(options), tell_(tell) {}

  GeneralJacobiReport run() {
    results_.values.assign(static_cast<size_t>(n_), Complex(0));
    balance();
    memory_.reserve(static_cast<size_t>(3 * n_ * n_) + blas::kReadBeyond);
    t_ = {memory_.data(), n_, n_, n_};
    e_ = {memory_.data() + n_ * n_, n_, n_, n_};
    more_ = {memory_.data() + 2 * n_ * n_, n_, n_, n_};
    if (options_.strategy == PivotStrategy::kAuto && options_.variant == BlockVariant::kAuto && simultaneous()) {
      report_.good = true;
      return report_;
    }
    report_ = {};
    if (!(options_.start ? start_from_vectors() : start_cold())) return report_;
    if (!sweep()) return report_;
    const Complex trace = trace_of(b_);
    if (!make_basis()) return report_;
    const double size = triangle_norms(threads_, b_).all;
    // Many sweeps of rotations may lose it.
    if (!(std::abs(trace_of(b_) - trace) <= kLargestTraceError * static_cast<double>(n_) * kU * size)) return report_;
    tell(kBasisEnd);
    report_.good = finish(static_cast<double>(n_) * kU * size);
    return report_;
  }

 private:
  void balance() {
    scale_.resize(static_cast<size_t>(n_));
    blas::balance(true, n_, b_.data, b_.ld, low_, high_, scale_.data());
  }

  void tell(double fraction) const {
    if (tell_) tell_(report_.sweeps, fraction);
  }

  template <class F>
  void for_columns(const F& f) const {
    threads_.for_ranges(n_, kColumnsOfTask, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) f(j);
    });
  }
  void set_identity(ComplexView x) const {
    for_columns([&](int64_t j) {
      std::fill(x.data + j * x.ld, x.data + j * x.ld + n_, Complex(0));
      x.data[j + j * x.ld] = 1;
    });
  }
  // c := op(x) y
  void multiply(large::Op op, ComplexView x, ComplexView y, ComplexView c) const {
    threads_.for_ranges(n_, kColumnsOfTask, [&](int64_t first, int64_t last) {
      blas::gemm(op == large::Op::kAdjoint, false, n_, last - first, n_, 1, x.data, x.ld, y.data + first * y.ld, y.ld,
                 0, c.data + first * c.ld, c.ld);
    });
  }

  // V by simultaneous_jacobi.h, in whatever matrix it ends, and the results. b_ is as before where it fails.
  bool simultaneous() {
    SimultaneousSteps steps(threads_, b_, e_, t_, more_);
    if (options_.start ? !load_start() : !steps.start_nearly_normal()) return false;
    report_.started = static_cast<bool>(options_.start);
    const double size = triangle_norms(threads_, b_).all, unit = static_cast<double>(n_) * options_.roundoff * size;
    const auto heard = [this, size](const large::SimultaneousReport& now) { hear(now, size); };
    const auto limits = large::simultaneous_limits(n_, options_.roundoff, size, options_.max_steps, !report_.started);
    const large::SimultaneousReport done = large::SimultaneousJacobi<SimultaneousSteps>(steps, limits, heard).run();
    if (!done.converged) return false;
    hear(done, size);
    const std::vector<Complex>& values = steps.values();
    const Complex sum = std::accumulate(values.begin(), values.end(), Complex(0));
    if (!(std::abs(sum - trace_of(b_)) <= kLargestTraceError * unit)) return false;
    return finish_simultaneous(steps, unit);
  }

  void hear(const large::SimultaneousReport& now, double size) {
    report_.sweeps.sweeps = now.steps;
    report_.sweeps.transforms = report_.sweeps.proper_transforms = now.clusters;
    report_.sweeps.lower = size > 0 ? now.residual / size : 0;
    report_.sweeps.part_of_sweep = 1;
    tell(kBasisEnd * (1 - std::exp2(-now.steps)));
  }

  // The triangle of schur_vectors.h is a diagonal here, with V or V^-H as its basis.
  bool finish_simultaneous(SimultaneousSteps& steps, double tolerance) {
    results_.values = steps.values();
    ComplexView inverse;
    if (results_.left && !steps.invert(&inverse)) return false;
    const ComplexView triangle = steps.spare();
    for_columns([&](int64_t j) {
      Complex* const column = triangle.data + j * triangle.ld;
      std::fill(column, column + n_, Complex(0));
      column[j] = results_.values[static_cast<size_t>(j)];
    });
    const auto vectors = [&](Side side, ComplexView basis, ComplexView out) {
      const SchurForm<Complex> form{triangle, basis, results_.values, low_, high_, scale_};
      if (out) schur_vectors<Complex>(threads_, form, side, out, {});
    };
    vectors(Side::kRight, steps.v(), results_.right);
    vectors(Side::kLeft, inverse, results_.left);
    tell(1);
    if (!options_.real) return true;
    pair_conjugates(results_, tolerance);
    return make_real_vectors(results_);
  }

  bool start_cold() {
    for_columns([&](int64_t j) { std::copy(b_.data + j * b_.ld, b_.data + j * b_.ld + n_, t_.data + j * t_.ld); });
    set_identity(e_);
    return true;
  }

  // t_ := E^-1 B E, E = D^-1 P^T V_0 with its columns scaled.
  bool start_from_vectors() {
    if (!load_start()) return false;
    multiply(large::Op::kNone, b_, e_, t_);
    std::vector<Complex> tau(static_cast<size_t>(n_ + blas::kReadBeyond));
    factor_qr(threads_, e_, tau.data());
    for (int64_t j = 0; j < n_; ++j) {
      if (!(size_of(e_.data[j + j * e_.ld]) > static_cast<double>(n_) * kU)) return false;
    }
    apply_reflectors(threads_, large::Op::kAdjoint, e_, tau.data(), t_);
    threads_.for_ranges(n_, kColumnsOfTask, [&](int64_t first, int64_t last) {
      blas::solve_upper(false, n_, last - first, e_.data, e_.ld, t_.data + first * t_.ld, t_.ld);
    });
    report_.started = true;
    return load_start();
  }

  // e_ := D^-1 P^T V_0, columns about one. False: V_0 is not finite, or has a column of zeros.
  bool load_start() {
    if (!options_.start(e_)) return false;
    for_columns([&](int64_t j) {
      Complex* const v = e_.data + j * e_.ld;
      const auto swap_with = [&](int64_t i) {
        std::swap(v[i], v[static_cast<int64_t>(scale_[static_cast<size_t>(i)]) - 1]);
      };
      for (int64_t i = n_ - 1; i >= high_; --i) swap_with(i);
      for (int64_t i = 0; i < low_; ++i) swap_with(i);
      for (int64_t i = low_; i < high_; ++i) v[i] /= scale_[static_cast<size_t>(i)];
    });
    return scale_columns(e_);
  }

  // Columns of x by powers of two to about one. False: one is zero, or not finite.
  bool scale_columns(ComplexView x) const {
    std::vector<char> good(static_cast<size_t>(n_), 0);
    for_columns([&](int64_t j) {
      Complex* const v = x.data + j * x.ld;
      double largest = 0;
      bool finite = true;
      for (int64_t i = 0; i < n_; ++i) {
        const double size = size_of(v[i]);
        finite = finite && std::isfinite(size);
        largest = std::max(largest, size);
      }
      good[static_cast<size_t>(j)] = largest > 0 && finite ? 1 : 0;
      if (good[static_cast<size_t>(j)] == 0) return;
      const int e = -std::ilogb(largest);
      for (int64_t i = 0; i < n_; ++i) v[i] = {std::ldexp(v[i].real(), e), std::ldexp(v[i].imag(), e)};
    });
    return std::all_of(good.begin(), good.end(), [](char x_is_good) { return x_is_good != 0; });
  }

  bool sweep() {
    const BlockShearOptions shears{ShearKind::kShearsAndRotations, options_.strategy, options_.variant,
                                   options_.max_sweeps};
    report_.sweeps = block_shears(threads_, t_, e_, shears, [this](const BlockShearReport& now) {
      report_.sweeps = now;
      tell(kSweepsEnd * part_of_sweeps(now));
    });
    return report_.sweeps.converged;
  }

  // Sweeps to come are guessed: those of a random matrix, or as the convergence, quadratic in the end, shows.
  double part_of_sweeps(const BlockShearReport& now) const {
    const double lower = now.lower, done = now.sweeps - 1 + now.part_of_sweep;
    const double usual = 2 * std::log2(static_cast<double>(n_)) + (lower < 1e-2 ? -1e9 : 0);
    const double left = lower < 1e-9 ? 1 : lower < 1e-5 ? 2 : lower < 1e-2 ? 3 : 4;
    return done / std::max({now.sweeps - 1 + left, done, usual});
  }

  // e_ = Q R; t_ := Q, b_ := S = Q^H B Q, triangular.
  bool make_basis() {
    if (!scale_columns(e_)) return false;
    std::vector<Complex> tau(static_cast<size_t>(n_ + blas::kReadBeyond));
    factor_qr(threads_, e_, tau.data());
    set_identity(t_);
    apply_reflectors(threads_, large::Op::kNone, e_, tau.data(), t_);
    multiply(large::Op::kNone, b_, t_, e_);
    multiply(large::Op::kAdjoint, t_, e_, b_);
    const BlockShearOptions rotations{ShearKind::kRotations, options_.strategy, options_.variant,
                                      std::min(kLargeBasisSweeps, options_.max_sweeps)};
    return block_shears(threads_, b_, t_, rotations,
                        [this](const BlockShearReport& now) {
                          const double done = (now.sweeps - 1 + now.part_of_sweep) / kLargeBasisSweeps;
                          tell(kSweepsEnd + done * (kBasisEnd - kSweepsEnd));
                        })
        .converged;
  }

  bool finish(double tolerance) {
    for (int64_t j = 0; j < n_; ++j) {
      Complex* const column = b_.data + j * b_.ld;
      results_.values[static_cast<size_t>(j)] = column[j];
      std::fill(column + j + 1, column + n_, Complex(0));
    }
    const SchurForm<Complex> form{b_, t_, results_.values, low_, high_, scale_};
    const auto vectors = [&](Side side, ComplexView out, double from, double to) {
      if (!out) return;
      schur_vectors<Complex>(threads_, form, side, out, [&](double part) { tell(from + part * (to - from)); });
    };
    const double middle = results_.left ? (kBasisEnd + 1) / 2 : 1;
    vectors(Side::kRight, results_.right, kBasisEnd, middle);
    vectors(Side::kLeft, results_.left, middle, 1);
    if (!options_.real) return true;
    pair_conjugates(results_, tolerance);
    return make_real_vectors(results_);
  }

  const LargeThreads& threads_;
  const ComplexView b_;
  const int64_t n_;
  const GeneralResults& results_;
  const GeneralJacobiOptions& options_;
  const std::function<void(const BlockShearReport&, double)>& tell_;
  GeneralJacobiReport report_;
  int64_t low_ = 0, high_ = 0;
  std::vector<double> scale_;
  AlignedArray<Complex> memory_;
  ComplexView t_, e_, more_;
};

}  // namespace

GeneralJacobiReport general_jacobi(const LargeThreads& threads, ComplexView a, const GeneralResults& results,
                                   const GeneralJacobiOptions& options,
                                   const std::function<void(const BlockShearReport&, double)>& tell) {
  return GeneralJacobi(threads, a, results, options, tell).run();
}

uint64_t general_jacobi_bytes(int64_t n, int threads) {
  const int64_t panels = 2 * kReflectorPanel * (n + kReflectorPanel);
  const int64_t vectors = 2 * n * (kVectorsOfTask + 1) * threads;
  const auto elements = static_cast<uint64_t>(3 * n * n + std::max(panels, vectors) + 8 * n + 4096);
  return elements * sizeof(Complex) + block_shears_bytes(n, threads);
}

}  // namespace svdserve::host
