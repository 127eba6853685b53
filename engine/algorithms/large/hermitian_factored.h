// Method FACTORED: eigenvalues and eigenvectors of one large Hermitian matrix by factorization and hyperbolic Jacobi.
// Small eigenvalues keep their digits. The driver of all back ends.
//
//   M = G J G^H,   G = U S V^H with V^H J V = J   =>   M = U (S J S) U^H,   lambda_j = J_j s_j^2
// Method:
//   1. factor:   M = G J G^H by symmetric indefinite factorization, the back end's indefinite_factor(). G and J that
//                are given take its place, and M is never formed.
//   2. svd:      the hyperbolic SVD of G without V (block_jacobi.h). A definite M has J = I or -I, and G an ordinary
//                SVD, which may start warm.
//   3. finish:   lambda ascending, with exact zeros for what the rank lacks, and U completed to a basis.
// Source: Novakovic and Singer, BIT 51 (2011) 1009-1030, section 2; Veselic, Numer. Math. 64 (1993) 241-269.
// Accuracy: |lambda - exact| <= 10 max(n, 8) kappa u |lambda| for the eigenvalues of G J G^H, kappa the condition
// number of G with unit columns; |M U - U L|_F <= 10 n u |M|_F. The eigenvalues of M itself have errors of some 100 n u
// where M = D K D with D diagonal and K well-conditioned, and of some n u where K is definite. Slapnicar, Linear Algebra
// Appl. 272 (1998) 227-275, has bounds. Rank: factor_error.h.
// Range: entries of M below 2^-1022 times the largest are zero.
// Cost: n^3 / 3 multiplications and additions for G (a GPU: n^3), and those of the hyperbolic SVD.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_FACTORED_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_FACTORED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/algorithms/large/large_backend.h"

namespace svdserve::large {

// Whether a plan is computed by this method.
inline bool is_factored(const LargePlan& plan) {
  return is_hermitian(plan.options.kind) && plan.options.method != Method::kTridiagonal;
}

// The problem of step 2: G, m x rank, in doubles; U alone. kJacobi alone is a method of SVDs, too.
inline LargePlan factor_svd_plan(const LargePlan& plan, int64_t rank, LargeKind kind) {
  LargePlan svd;
  svd.problem = {plan.problem.rows, rank, is_complex(plan.problem.dtype) ? DType::kC128 : DType::kF64,
                 Order::kColumnMajor};
  svd.options = plan.options;
  svd.options.kind = kind;
  svd.options.method = plan.options.method == Method::kJacobi ? Method::kJacobi : Method::kAuto;
  svd.options.certificate = false;
  svd.values = rank;
  svd.left_columns = plan.left_columns > 0 ? rank : 0;
  return svd;
}

template <HermitianBackend Backend>
class HermitianFactored {
 public:
  using E = typename Backend::Element;
  using View = LargeView<E>;

  // All arguments must outlive the object. run() may be called once.
  HermitianFactored(Backend& backend, const LargePlan& plan, const LargeOperands& operands, const LargeControl& control)
      : backend_(backend),
        plan_(plan),
        operands_(operands),
        control_(control),
        watch_(control),
        progress_(watch_),
        n_(plan.problem.rows),
        vectors_(plan.left_columns > 0) {}

  // Throws LargeStop for everything but kOk and kNotConverged.
  LargeOutcome run() {
    progress_.begin(parts(plan_.problem.cols), kFactoredFactor);
    plan_.options.kind == LargeKind::kHermitian ? factor() : load_factor();
    rank_ = static_cast<int64_t>(signs_.size());
    if (plan_.options.certificate) measure_factor();
    if (rank_ > 0) decompose_factor();
    finish();
    if (plan_.options.certificate) certify();
    outcome_.method = plan_.options.method;
    outcome_.phases = backend_.phases();
    progress_.end();
    return std::move(outcome_);
  }

 private:
  // As far as the signs are known.
  bool is_definite() const {
    return !signs_.empty() &&
           std::all_of(signs_.begin(), signs_.end(), [this](int8_t s) { return s == signs_.front(); });
  }

  // With a factor of so many columns.
  WorkParts parts(int64_t rank) const {
    const LargeKind kind = is_definite() ? LargeKind::kSvd : LargeKind::kHyperbolicSvd;
    return factored_parts(plan_, factor_svd_plan(plan_, rank, kind), backend_.work_speeds());
  }

  // --- step 1 ---------------------------------------------------------------------------------------

  void factor() {
    backend_.stage("load");
    View m = backend_.matrix(n_, n_);
    exponent_ = load_hermitian(backend_, plan_, operands_.matrix, m);
    backend_.stage("factorize");
    g_ = backend_.matrix(n_, n_);
    signs_ = backend_.indefinite_factor(m, g_, progress_.between(0, 1));
    backend_.release(m);
  }

  void load_factor() {
    backend_.stage("load");
    const int64_t columns = plan_.problem.cols;
    g_ = backend_.matrix(n_, columns);
    const LoadReport report = backend_.load(operands_.matrix, plan_.problem, false, g_);
    if (!report.finite) throw entry_is_not_finite(report.row, report.col);
    signs_.assign(operands_.signature, operands_.signature + columns);
  }

  // At least the condition number of G with unit columns: sqrt(|R|_1 |R|_inf |R^-1|_1 |R^-1|_inf) of its QR.
  void measure_factor() {
    outcome_.factor_condition = 1;
    if (rank_ == 0) return;
    progress_.begin(parts(rank_), kFactoredCondition);
    backend_.stage("certificate");
    View q = backend_.matrix(n_, rank_);
    backend_.copy(g_.columns(0, rank_), q);
    int32_t* exponents = backend_.exponents(rank_);
    backend_.normalize_columns(q, exponents, false);
    std::vector<double> inverse;
    for (const ScaledNorm& norm : backend_.column_norms(q, nullptr)) {
      inverse.push_back(1 / std::ldexp(norm.mantissa, norm.exponent));
    }
    backend_.scale_columns(q, inverse);
    E* tau = backend_.scalars(rank_);
    backend_.qr(q, tau);
    View r = backend_.matrix(rank_, rank_), identity = backend_.matrix(rank_, rank_);
    backend_.copy_triangle(q, r);
    const double of_r = backend_.square_bound(r);
    // R^H is lower triangular, and the norms are those of R^-H.
    View lower = q.block(0, 0, rank_, rank_);
    backend_.set_identity(identity);
    backend_.gemm(Op::kAdjoint, Op::kNone, 1.0, r, identity, 0.0, lower);
    backend_.solve_lower(lower, identity);
    outcome_.factor_condition = std::sqrt(of_r * backend_.square_bound(identity));
    backend_.release(identity);
    backend_.release(r);
    backend_.release(tau);
    backend_.release(exponents);
    backend_.release(q);
  }

  // --- step 2 ---------------------------------------------------------------------------------------

  void decompose_factor() {
    const bool definite = is_definite();
    const LargePlan plan = factor_svd_plan(plan_, rank_, definite ? LargeKind::kSvd : LargeKind::kHyperbolicSvd);
    singular_.resize(static_cast<size_t>(rank_));
    LargeOperands operands;
    operands.signature = definite ? nullptr : signs_.data();
    operands.values = singular_.data();
    progress_.begin(parts(rank_), kFactoredSvd);
    LargeControl control = progress_.of_part(control_);
    control.states = control_.states;
    BlockJacobi<Backend> svd(backend_, plan, operands, control);
    const double condition = outcome_.factor_condition;
    outcome_ = svd.run_resident(g_.columns(0, rank_), &u_);
    outcome_.factor_condition = condition;
  }

  // --- step 3 ---------------------------------------------------------------------------------------

  void finish() {
    progress_.begin(parts(rank_), kFactoredFinish);
    backend_.stage("finish");
    if (rank_ == 0) {
      outcome_.status = LargeStatus::kOk;
      backend_.release(g_);
    }
    const std::vector<Eigenvalue> sorted = sorted_eigenvalues();
    store_eigenvalues(sorted, plan_, operands_, outcome_);
    if (!vectors_) return;
    View basis = completed_basis();
    store_eigenvectors(backend_, sorted, plan_, operands_, basis);
    backend_.release(basis);
  }

  std::vector<Eigenvalue> sorted_eigenvalues() const {
    std::vector<Eigenvalue> values(static_cast<size_t>(n_));
    for (int64_t j = 0; j < n_; ++j) {
      values[j].column = j;
      if (j >= rank_) continue;
      int exponent = 0;
      const double s = std::frexp(singular_[j], &exponent);
      values[j] = Eigenvalue::of(signs_[j] * (s * s), 2 * exponent + exponent_, j);
    }
    std::stable_sort(values.begin(), values.end());
    return values;
  }

  // U and, behind it, an orthonormal basis of what is orthogonal to it. Takes U's memory.
  View completed_basis() {
    if (rank_ == n_) return u_;
    View basis = backend_.matrix(n_, n_);
    const int64_t rest = n_ - rank_;
    backend_.set_zero(basis);
    backend_.set_identity(basis.block(rank_, rank_, rest, rest));
    if (rank_ == 0) return basis;
    backend_.copy(u_, basis.columns(0, rank_));
    E* tau = backend_.scalars(rank_);
    backend_.qr(u_, tau);
    backend_.apply_q(Op::kNone, u_, tau, basis.columns(rank_, rest));
    backend_.release(tau);
    backend_.release(u_);
    return basis;
  }

  void certify() {
    progress_.begin(parts(rank_), kFactoredCertificate);
    backend_.stage("certificate");
    View m = backend_.matrix(n_, n_);
    if (plan_.options.kind == LargeKind::kHermitian) {
      exponent_ = load_hermitian(backend_, plan_, operands_.matrix, m);
    } else {
      multiply_factor(m);
    }
    certify_eigenpairs(backend_, plan_, operands_, m, exponent_, outcome_);
    backend_.release(m);
  }

  // m := 2^-exponent_ G J G^H, of columns of G of norms below one.
  void multiply_factor(View m) {
    load_factor();
    const int64_t columns = plan_.problem.cols;
    int32_t exponent = kZeroColumn;
    for (const ScaledNorm& norm : backend_.column_norms(g_, nullptr)) exponent = std::max(exponent, norm.exponent);
    multiply_by_power(backend_, g_, -exponent);
    exponent_ = 2 * exponent;
    View signed_g = backend_.matrix(n_, columns);
    backend_.copy(g_, signed_g);
    backend_.scale_columns(signed_g, {signs_.begin(), signs_.end()});
    backend_.gemm(Op::kNone, Op::kAdjoint, 1, signed_g, g_, 0, m);
    backend_.release(signed_g);
    backend_.release(g_);
  }

  Backend& backend_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  const LargeControl& control_;
  LargeWatch watch_;
  ProgressTeller progress_;
  const int64_t n_;
  const bool vectors_;
  int exponent_ = 0;  // M = 2^exponent_ G J G^H
  int64_t rank_ = 0;
  View g_{}, u_{};
  std::vector<int8_t> signs_;
  std::vector<double> singular_;
  LargeOutcome outcome_;
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_FACTORED_H_
