#include "engine/backends/host/large/hermitian_eigen.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/indefinite_factor.h"
#include "engine/backends/host/large/host_large_backend.h"

namespace svdserve::host {
namespace {

using large::Eigenvalue;
using large::LargeView;
using large::LargeWatch;
using large::Op;

// The parts of the whole that the steps take, for the progress.
constexpr double kFactorFraction = 0.15, kSvdFraction = 0.95;
// Bytes of vectors of n numbers, and of what the pool rounds up.
constexpr uint64_t kSlackBytes = 4 << 20;

// The problem of step 2: G, m x rank, in doubles. kJacobi alone is a method of SVDs, too.
LargePlan svd_plan(const LargePlan& plan, int64_t rank, LargeKind kind) {
  LargeOptions options = plan.options;
  options.kind = kind;
  options.method = plan.options.method == Method::kJacobi ? Method::kJacobi : Method::kAuto;
  options.certificate = false;
  const DType dtype = is_complex(plan.problem.dtype) ? DType::kC128 : DType::kF64;
  return *plan_large({plan.problem.rows, rank, dtype, Order::kColumnMajor}, options).plan;
}

template <class E>
class Decomposition {
 public:
  using View = LargeView<E>;

  Decomposition(const LargeEngine& svd, const LargeThreads& threads, const LargePlan& plan,
                const LargeOperands& operands, const LargeControl& control)
      : svd_(svd),
        threads_(threads),
        backend_(threads),
        plan_(plan),
        operands_(operands),
        control_(control),
        n_(plan.problem.rows),
        vectors_(plan.left_columns > 0) {}

  LargeOutcome run() {
    tell(0);
    plan_.options.kind == LargeKind::kHermitian ? factor() : load_factor();
    rank_ = static_cast<int64_t>(signs_.size());
    tell(kFactorFraction);
    if (rank_ > 0 && !decompose_factor()) return std::move(outcome_);
    finish();
    if (plan_.options.certificate) certify();
    outcome_.method = plan_.options.method;
    return std::move(outcome_);
  }

 private:
  void tell(double fraction) {
    LargeProgress progress;
    progress.fraction = fraction;
    if (control_.progress) control_.progress(progress);
  }

  // --- step 1 ---------------------------------------------------------------------------------------

  void factor() {
    const auto start = std::chrono::steady_clock::now();
    View m = backend_.matrix(n_, n_);
    scale_ = large::load_hermitian(backend_, plan_, operands_.matrix, m);
    g_ = backend_.matrix(n_, n_);
    signs_ = indefinite_factor(threads_, m, g_, [this](double done) { tell(kFactorFraction * done); });
    backend_.release(m);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double n = static_cast<double>(n_);
    outcome_.phases.push_back(
        {"factorize", seconds.count(), (is_complex(plan_.problem.dtype) ? 4 : 1) * n * n * n / 3});
  }

  void load_factor() {
    const int64_t columns = plan_.problem.cols;
    g_ = backend_.matrix(n_, columns);
    const large::LoadReport report = backend_.load(operands_.matrix, plan_.problem, false, g_);
    if (!report.finite) throw large::entry_is_not_finite(report.row, report.col);
    signs_.assign(operands_.signature, operands_.signature + columns);
  }

  // --- step 2 ---------------------------------------------------------------------------------------

  // False: the outcome says why.
  bool decompose_factor() {
    const bool definite = std::all_of(signs_.begin(), signs_.end(), [&](int8_t s) { return s == signs_.front(); });
    const LargePlan plan = svd_plan(plan_, rank_, definite ? LargeKind::kSvd : LargeKind::kHyperbolicSvd);
    singular_.resize(static_cast<size_t>(rank_));
    LargeOperands operands;
    operands.matrix = g_.data;
    operands.signature = definite ? nullptr : signs_.data();
    operands.values = singular_.data();
    View right{};
    if (vectors_) {
      u_ = backend_.matrix(n_, rank_);
      right = backend_.matrix(rank_, rank_);
      operands.left = u_.data;
      operands.right = right.data;
    }
    LargeControl control;
    control.cancel = control_.cancel;
    if (control_.progress) {
      control.progress = [this](LargeProgress progress) {
        progress.fraction = kFactorFraction + (kSvdFraction - kFactorFraction) * progress.fraction;
        control_.progress(progress);
      };
    }
    LargeOutcome found = svd_.decompose(plan, operands, control);
    found.phases.insert(found.phases.begin(), outcome_.phases.begin(), outcome_.phases.end());
    outcome_ = std::move(found);
    if (vectors_) backend_.release(right);
    return outcome_.status == LargeStatus::kOk || outcome_.status == LargeStatus::kNotConverged;
  }

  // --- step 3 ---------------------------------------------------------------------------------------

  void finish() {
    if (rank_ == 0) outcome_.status = LargeStatus::kOk;
    const std::vector<Eigenvalue> sorted = sorted_eigenvalues();
    large::store_eigenvalues(sorted, plan_, operands_, outcome_);
    if (!vectors_) return;
    View basis = backend_.matrix(n_, n_);
    complete(basis);
    large::store_eigenvectors(backend_, sorted, plan_, operands_, basis);
    backend_.release(basis);
  }

  std::vector<Eigenvalue> sorted_eigenvalues() const {
    std::vector<Eigenvalue> values(static_cast<size_t>(n_));
    for (int64_t j = 0; j < n_; ++j) {
      values[j].column = j;
      if (j >= rank_) continue;
      int exponent = 0;
      const double s = std::frexp(singular_[j], &exponent);
      values[j] = Eigenvalue::of(signs_[j] * (s * s), 2 * exponent + scale_, j);
    }
    std::stable_sort(values.begin(), values.end());
    return values;
  }

  // basis := U and, behind it, an orthonormal basis of what is orthogonal to it.
  void complete(View basis) {
    backend_.set_zero(basis);
    const int64_t rest = n_ - rank_;
    if (rest > 0) backend_.set_identity(basis.block(rank_, rank_, rest, rest));
    if (rank_ == 0) return;
    backend_.copy(u_, basis.columns(0, rank_));
    if (rest == 0) return;
    E* tau = backend_.scalars(rank_);
    backend_.qr(u_, tau);
    backend_.apply_q(Op::kNone, u_, tau, basis.columns(rank_, rest));
    backend_.release(tau);
  }

  void certify() {
    if (u_) backend_.release(u_);
    outcome_.factor_condition = rank_ > 0 ? condition_of_factor() : 1;
    backend_.release(g_);
    View m = backend_.matrix(n_, n_);
    if (plan_.options.kind == LargeKind::kHermitian) {
      scale_ = large::load_hermitian(backend_, plan_, operands_.matrix, m);
    } else {
      multiply_factor(m);
    }
    large::certify_eigenpairs(backend_, plan_, operands_, m, scale_, outcome_);
  }

  // m := 2^-scale_ G J G^H, of columns of G of norms below one.
  void multiply_factor(View m) {
    load_factor();
    const int64_t columns = plan_.problem.cols;
    int32_t exponent = large::kZeroColumn;
    for (const large::ScaledNorm& norm : backend_.column_norms(g_, nullptr))
      exponent = std::max(exponent, norm.exponent);
    large::multiply_by_power(backend_, g_, -exponent);
    scale_ = 2 * exponent;
    View signed_g = backend_.matrix(n_, columns);
    backend_.copy(g_, signed_g);
    backend_.scale_columns(signed_g, {signs_.begin(), signs_.end()});
    backend_.gemm(Op::kNone, Op::kAdjoint, 1, signed_g, g_, 0, m);
    backend_.release(signed_g);
    backend_.release(g_);
  }

  // At least the condition number of G with unit columns: sqrt(|R|_1 |R|_inf |R^-1|_1 |R^-1|_inf) of its QR.
  double condition_of_factor() {
    View q = backend_.matrix(n_, rank_);
    backend_.copy(g_.columns(0, rank_), q);
    int32_t* exponents = backend_.exponents(rank_);
    backend_.normalize_columns(q, exponents, false);
    std::vector<double> inverse;
    for (const large::ScaledNorm& norm : backend_.column_norms(q, nullptr)) {
      inverse.push_back(1 / std::ldexp(norm.mantissa, norm.exponent));
    }
    backend_.scale_columns(q, inverse);
    E* tau = backend_.scalars(rank_);
    backend_.qr(q, tau);
    View r = backend_.matrix(rank_, rank_), r_inverse = backend_.matrix(rank_, rank_);
    backend_.copy_triangle(q, r);
    backend_.set_identity(r_inverse);
    threads_.for_ranges(rank_, 64, [&](int64_t first, int64_t last) {
      blas::solve_upper(false, rank_, last - first, r.data, r.ld, r_inverse.data + first * r_inverse.ld, r_inverse.ld);
    });
    const double squared = square_bound(r) * square_bound(r_inverse);
    backend_.release(r_inverse);
    backend_.release(r);
    backend_.release(tau);
    backend_.release(exponents);
    backend_.release(q);
    return std::sqrt(squared);
  }

  // |A|_1 |A|_inf, which is at least the square of the 2-norm.
  static double square_bound(View a) {
    double columns = 0;
    std::vector<double> rows(static_cast<size_t>(a.rows), 0.0);
    for (int64_t j = 0; j < a.cols; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < a.rows; ++i) {
        const double size = std::abs(a.data[i + j * a.ld]);
        sum += size;
        rows[i] += size;
      }
      columns = std::max(columns, sum);
    }
    return columns * *std::max_element(rows.begin(), rows.end());
  }

  const LargeEngine& svd_;
  const LargeThreads threads_;
  HostLargeBackend<E> backend_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  const LargeControl& control_;
  const int64_t n_;
  const bool vectors_;
  int scale_ = 0;  // M = 2^scale_ G J G^H
  int64_t rank_ = 0;
  View g_{}, u_{};
  std::vector<int8_t> signs_;
  std::vector<double> singular_;
  LargeOutcome outcome_;
};

}  // namespace

LargeWorkspace HermitianEigen::memory(const LargePlan& plan) const {
  const LargePlan svd = svd_plan(plan, plan.problem.cols, LargeKind::kHyperbolicSvd);
  LargeWorkspace workspace = svd_.memory(svd);
  const auto n = static_cast<uint64_t>(plan.problem.rows), r = static_cast<uint64_t>(plan.problem.cols);
  // Beside the SVD's workspace G, U and V; before it M and G; after it G, U and the basis, or the certificate's matrices.
  uint64_t entries = n * r + (plan.left_columns > 0 ? n * r + std::max(r * r, n * n) : n * n);
  if (plan.options.certificate) entries = std::max(entries, 3 * n * r + 2 * r * r + 3 * n * n);
  workspace.host_bytes += entries * (is_complex(plan.problem.dtype) ? 16 : 8) + kSlackBytes;
  return workspace;
}

LargeOutcome HermitianEigen::decompose(const LargePlan& plan, const LargeOperands& operands,
                                       const LargeControl& control) const {
  const FpEnvironment environment;
  const BlasThreads one_thread_a_call;
  const LargeWatch watch(control);
  const LargeThreads threads(arena_, threads_, &watch);
  return large::outcome_of([&] {
    return is_complex(plan.problem.dtype) ? Decomposition<Complex>(svd_, threads, plan, operands, control).run()
                                          : Decomposition<double>(svd_, threads, plan, operands, control).run();
  });
}

}  // namespace svdserve::host
