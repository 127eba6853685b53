// The SVD, or the hyperbolic SVD, of one large matrix by the hierarchically blocked one-sided Jacobi method: the driver
// of all back ends.
//
//   A = U S V^H, m x n;   hyperbolic: G = U S V^H with U^H U = I, V^H J V = J, J = diag(+-1), m >= n = rank G
// Method, for m >= n (a wide operand is taken as its adjoint):
//   1. Columns scaled by powers of two and sorted by norm, rows sorted by their largest entry: P_r A P_c = A' = Q R.
//      Sorted rows make the QR accurate for graded rows, sorted columns make R's rows graded. An operand that is much
//      taller than wide need not be copied for it (TallOperand in large_backend.h).
//   2. X = R^H (Novakovic, eqs. 1 and 2). Its column norms tell the condition. Within kWarmStartSpread, and where
//      may_start_by_eigenbasis(): X := X V_0, V_0 an eigenbasis of X^H X. After a QR a bad V_0 costs time, never
//      accuracy, because X carries its grading in the rows. Else a second QR of the sorted columns, X P = Q_2 R_2, and
//      X_2 = R_2^H, which is nearly orthogonal.
//      Columns that are level, of a square operand, need no QR: kappa(A) is of the order of kappa(B) then, so an error
//      of n u |A| is within the bound below. Where a Cholesky factorization of A'^H A' finds no column close to the
//      span of those before it, X := A' V_0, V_0 an eigenbasis of A'^H A', and A' = Y S W^H.
//      Those of a tall operand, m >= 2 n, may need none either: its Cholesky factor R stands for A' in the sweeps, X :=
//      R V_0, and A' W = Y S after them. U is as far from orthogonal as A' R^-1, about u times the sum of 1 / d_j^2, d_j
//      the distance of column j, of norm one, from the span of all others (Cholesky QR). So the mean of 1 / d_j^2 is
//      limited. V is an eigenbasis that was rotated, as ever, and A' - U S V^H = A' (I - W W^H).
//   3. Sweeps of p-steps until X W = Y S has orthogonal columns (block_jacobi_sweeps.h; Novakovic, eqs. 5 to 9).
//   4. W was accumulated (from V_0, or where R_2 is singular), or W = X_2^-1 (Y S) by one triangular solve,
//      which after two QRs is as accurate and spares 4 of 10 n^3 operations a sweep. A solver that inverts diagonal
//      blocks, as cuBLAS's does, leaves W^H W further from I than sweeps would; one Newton-Schulz step squares that.
//      A' = Q W S Y^H, or with the second QR A' = Q (P Y) S (Q_2 W)^H. Zero columns of Y are completed to a basis.
//   Hyperbolic: J partitioned by sorting, one QR, R itself is rotated, R W = Y S; U = Q Y, V = W^-H = J W J
//   (Novakovic, eq. 10; W is called V^-* in Novakovic and Singer, section 2).
// States, where the caller keeps some (LargeStateStore): A' = Q R after the first QR; what the sweeps leave as it is; and
// what each of them changes. A run that finds states goes on from the latest, with the bits of one that was not
// interrupted.
// Ends without convergence: after max_sweeps; the results are then the best so far, and said to be kNotConverged.
// Accuracy: |A - U S V^H| and the bases to some n u; for A = B D, D diagonal, every value to a relative error of order
// n u kappa(B). Cost: 4/3 (m - n/3) n^2 a QR, 6 n^3 a sweep and 4 n^3 more where W is accumulated (complex: four
// times). Sources: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30; Novakovic and Singer, BIT 51 (2011)
// 1009-1030; Drmac and Veselic, SIAM J. Matrix Anal. Appl. 29 (2008) 1322-1362 (QR twice, R^H); Yamamoto et al., ETNA
// 44 (2015) 306-326 (Cholesky QR); Golub and Meurant, Numerical Analysis 1993, 105-156 (quadrature). G -> x, V^* -> w.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_jacobi_sweeps.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/states/state_archive.h"

namespace svdserve::large {

// log2 of the largest ratio of R's row norms for which a warm start is faster.
inline constexpr int32_t kWarmStartSpread = 17;
// log2 of the largest ratio of the norms of level columns.
inline constexpr int32_t kLevelSpread = 3;
// The least distance of a column of norm one from the span of those before it, in a matrix that needs no QR. Smaller
// distances would cost more sweeps than the QR takes.
inline constexpr double kLeastDistance = 1e-4;
// log2 of the largest ratio of columns within which their exponents may be made equal.
inline constexpr int32_t kPlainSpread = 300;
inline constexpr double kUnitRoundoff = 0x1p-53;
// The largest mean of 1 / d_j^2 (step 2) of a tall matrix that needs no QR. Normal entries have m / (m - n).
inline constexpr double kLargestMeanSquare = 8;
// The largest ratio of two estimates of its Gram matrix's eigenvalues, and the columns that they are taken from.
inline constexpr double kLargestNodeRatio = 16;
inline constexpr int64_t kProbedColumns = 8;
// Parts of a warm start at whose end the Gram matrix, and its eigenbasis, are known; for the progress.
inline constexpr double kGramDone = 0.1, kEigenbasisDone = 0.75;
// The part of the left basis's time at whose end it is to be stored.
inline constexpr double kLeftMade = 0.95;
// A row of R below this many u of its columns' norms, and of the largest entries left, is rounding error of the QR.
inline constexpr double kNegligibleRow = 8;

template <class Backend>
inline constexpr bool kHasStates = requires(const Backend& backend) {
  backend.identity();
};

template <LargeBackend Backend>
class BlockJacobi {
 public:
  using E = typename Backend::Element;
  using View = LargeView<E>;

  // All arguments must outlive the object. run() may be called once.
  BlockJacobi(Backend& backend, const LargePlan& plan, const LargeOperands& operands, const LargeControl& control)
      : backend_(backend), plan_(plan), operands_(operands), watch_(control), progress_(watch_) {
    if constexpr (kHasStates<Backend>) {
      if (control.states != nullptr) identity_ = backend_.identity();
      if (!identity_.empty()) states_ = control.states;
    }
    const Problem& p = plan.problem;
    hyperbolic_ = plan.options.kind == LargeKind::kHyperbolicSvd;
    wide_ = p.rows < p.cols;
    m_ = std::max(p.rows, p.cols);
    n_ = std::min(p.rows, p.cols);
    // Sizes of the tall matrix's bases: a wide operand's bases change places.
    left_columns_ = wide_ ? plan.right_rows : plan.left_columns;
    right_columns_ = wide_ ? plan.left_columns : plan.right_rows;
    vectors_ = left_columns_ > 0 || right_columns_ > 0;
  }

  // Throws LargeStop for everything but kOk and kNotConverged.
  LargeOutcome run() {
    compute([this] { prepare(); });
    if (plan_.options.certificate) certify();
    return finished();
  }

  // The same of a plan without certificate. All memory of the back end is given back.
  LargeOutcome run_and_release() {
    compute([this] { prepare(); });
    release_all();
    return finished();
  }

  // The same, but the right basis of the tall matrix stays in the back end's memory and is the caller's. It has the
  // plan's number of columns.
  LargeOutcome run_for_right(View* right) {
    resident_right_ = right;
    compute([this] { prepare(); });
    release_all();
    return finished();
  }

  // run() of an operand in the back end's memory, which this object owns from now on. It is column-major and finite, and
  // has at least as many rows as columns. *left: U in the back end's memory, the caller's; without data where the plan
  // has none. *right: V likewise; null where the plan has none. The plan has no certificate, and the operands have no
  // matrix.
  LargeOutcome run_resident(View matrix, View* left, View* right = nullptr) {
    resident_left_ = left;
    resident_right_ = right;
    compute(
        [this, matrix] {
          begin_load();
          a_ = matrix;
          e_ = backend_.exponents(n_);
          scale_and_sort();
        },
        matrix);
    release_all();
    return finished();
  }

 private:
  using SweepsState = typename BlockJacobiSweeps<Backend>::State;
  // The latest state that was there: of the QR, or of the sweeps.
  enum class Reached : uint8_t { kNothing, kFactors, kSweeps };

  // From the latest state that is there, or from the operand. prepare: step 1. given: what it takes, and nobody else.
  template <class Prepare>
  void compute(const Prepare& prepare, View given = {}) {
    make_tall_operand(given);
    const Reached reached = load_states();
    if (reached == Reached::kNothing) {
      prepare();
    } else if (reached == Reached::kSweeps && needs_operand()) {
      prepare();
      backend_.apply_exponents(a_, e_);
      park(a_);
    } else {
      release(given);
    }
    if (reached != Reached::kSweeps) precondition(reached == Reached::kFactors);
    sweep();
    finish();
  }

  LargeOutcome finished() {
    outcome_.method = Method::kJacobi;
    outcome_.phases = backend_.phases();
    outcome_.rotations = progress_.state.rotations;
    outcome_.proper_rotations = progress_.state.proper_rotations;
    progress_.end();
    return outcome_;
  }

  // Step 1: the tall operand, scaled and sorted, in a_ with the column exponents e_.
  void prepare() {
    begin_load();
    backend_.stage("load");
    if (tall_ != nullptr) return prepare_tall();
    a_ = backend_.matrix(m_, n_);
    e_ = backend_.exponents(n_);
    const LoadReport report = backend_.load(operands_.matrix, plan_.problem, wide_, a_);
    if (!report.finite) throw non_finite(report);
    progress_.at(0.6);  // scaling and sorting take the rest
    scale_and_sort();
  }

  void begin_load() {
    start_ = expected_start(plan_, backend_.work_speeds());
    progress_.begin(parts(), kSvdLoad);
  }

  // given: the operand in the back end's memory, or none.
  void make_tall_operand(View given) {
    if constexpr (requires { backend_.tall_operand(plan_, operands_); }) {
      if (!given) tall_ = backend_.tall_operand(plan_, operands_);
    }
  }

  void scale_and_sort() {
    backend_.normalize_columns(a_, e_, false);
    const std::vector<ScaledNorm> norms = backend_.column_norms(a_, e_);
    level_ = std::none_of(norms.begin(), norms.end(), is_zero) && spread(norms) <= kLevelSpread;
    sort_columns(norms);
    backend_.permute_columns(a_, column_order_);
    sort_rows();
  }

  // The same of an operand that is not loaded, but for the rows, which are sorted as they are read.
  void prepare_tall() {
    e_ = backend_.exponents(n_);
    const LoadReport report = tall_->scan(e_);
    if (!report.finite) throw non_finite(report);
    progress_.at(1);
    sort_columns(tall_->column_norms());
  }

  // Finds column_order_ and brings e_ into it.
  void sort_columns(const std::vector<ScaledNorm>& norms) {
    positive_ = n_;
    const auto sign = [&](int64_t j) { return hyperbolic_ && operands_.signature[j] < 0 ? -1 : 1; };
    if (hyperbolic_)
      positive_ = std::count_if(operands_.signature, operands_.signature + n_, [](int8_t s) { return s > 0; });
    column_order_ = identity_order(n_);
    std::stable_sort(column_order_.begin(), column_order_.end(), [&](int64_t i, int64_t j) {
      return sign(i) != sign(j) ? sign(i) > sign(j) : is_larger(norms[i], norms[j]);
    });
    backend_.permute_exponents(e_, column_order_);
  }

  void sort_rows() {
    const auto largest = backend_.row_maxima(a_);
    row_order_ = identity_order(m_);
    std::stable_sort(row_order_.begin(), row_order_.end(),
                     [&](int64_t i, int64_t j) { return largest[i] > largest[j]; });
    backend_.permute_rows(a_, row_order_);
    sorted_row_maxima_.resize(m_);
    for (int64_t i = 0; i < m_; ++i) sorted_row_maxima_[i] = largest[row_order_[i]];
  }

  // Step 2.
  void precondition(bool has_factors) {
    if (!has_factors && start_without_qr()) return;
    if (start_ == SvdStart::kEigenbasis) start_ = SvdStart::kQrAndEigenbasis;
    progress_.begin(parts(), kSvdQr);
    if (!has_factors) factorize();
    x_ = backend_.matrix(n_, n_);
    f_ = backend_.exponents(n_);
    if (hyperbolic_) {
      require_full_rank();
      backend_.copy_triangle(a_, x_);
      backend_.copy_exponents(e_, f_, n_);
      backend_.normalize_columns(x_, f_, true);
      if (left_columns_ == 0 || tall_ != nullptr) release(a_);
      park(a_);
    } else {
      adjoint_without_noise(a_, e_, sorted_row_maxima_);
      if (left_columns_ == 0 || tall_ != nullptr) release(a_);
      park(a_);
      if (!warm_start()) second_qr();
    }
    if (!outcome_.warm_started) limit_exponents(backend_.column_norms(x_, f_));
    if (right_columns_ > 0 && hyperbolic_) {
      w_ = backend_.matrix(n_, n_);
      backend_.set_identity(w_);
    }
  }

  // A' = Q R
  void factorize() {
    backend_.stage("qr");
    if (tall_ != nullptr) {
      a_ = backend_.matrix(n_, n_);
      sorted_row_maxima_ = tall_->reduce(column_order_, a_);
    } else {
      tau_ = backend_.scalars(n_);
      backend_.qr(a_, tau_, progress_.between(0, 1));
    }
    save_factors();
  }

  // X := R^H, R the triangle of `r`, whose rows had the largest entries `row_maxima` before its QR, all of it relative
  // to columns of norm 1. Rows of R that only the QR's rounding made become zero. The change is no larger than the
  // backward error of the QR, of each column and of each row. Without it a matrix far from full rank, such as one of
  // ones, leaves a triangle of structured noise. Its noise is noise again, level by level.
  void adjoint_without_noise(View r, int32_t* e, const std::vector<double>& row_maxima) {
    backend_.copy_triangle(r, x_);
    const std::vector<double> largest = backend_.row_maxima(x_);
    backend_.adjoint_of_triangle(r, e, x_, f_);
    double left = 0;  // the largest entry of this row and those after it
    for (size_t i = row_maxima.size(); i > static_cast<size_t>(n_); --i) left = std::max(left, row_maxima[i - 1]);
    bool found = false;
    for (int64_t j = n_ - 1; j >= 0; --j) {
      left = std::max(left, row_maxima[j]);
      if (largest[j] == 0 || largest[j] > kNegligibleRow * kUnitRoundoff * std::min(1.0, left)) continue;
      backend_.set_zero(x_.columns(j, 1));
      found = true;
    }
    if (found) backend_.normalize_columns(x_, f_, true);
  }

  // The smallest value is at least the smallest column of X times the least singular value of X with unit columns.
  // Where that is below u, X has lost it already: zero is as good.
  void limit_exponents(const std::vector<ScaledNorm>& norms) {
    int32_t least = -kZeroColumn;
    for (const auto& norm : norms) least = is_zero(norm) ? least : std::min(least, norm.exponent);
    smallest_exponent_ = least + std::ilogb(kUnitRoundoff);
  }

  // A diagonal entry of R, relative to its column's norm, that is no more than rounding error: the column depends on
  // those before it.
  void require_full_rank() {
    // The QR's errors, and those that a single precision operand was rounded by.
    const double stored = value_bytes(plan_.problem.dtype) == 4 ? 0x1p-24 : kUnitRoundoff;
    const double limit = std::max(4 * static_cast<double>(n_) * kUnitRoundoff, 16 * stored);
    const auto diagonal = backend_.diagonal(a_);
    for (int64_t j = 0; j < n_; ++j) {
      if (!(diagonal[j] > limit)) {
        throw LargeStop{LargeStatus::kRankDeficient, "the factor does not have full column rank"};
      }
    }
  }

  // X := A' V_0, or R V_0 where A' is tall, if A' needs no QR.
  bool start_without_qr() {
    const bool tall = m_ > n_;
    if (!level_ || n_ < 2 || !may_need_no_qr(plan_, backend_.work_speeds()) || (tall && !may_be_well_conditioned()))
      return false;
    start_ = SvdStart::kEigenbasis;
    progress_.begin(parts(), kSvdQr);
    backend_.stage("warm start");
    backend_.apply_exponents(a_, e_);
    View square = backend_.matrix(n_, n_);
    w_ = backend_.matrix(n_, n_);
    backend_.herk(a_, square);
    without_qr_ = is_well_conditioned(square, w_) && (!tall || take_triangle(square));
    if (without_qr_) {
      progress_.begin(parts(), kSvdStart);
      if (tall && left_columns_ == 0) release(a_);
      park(a_);
      without_qr_ = backend_.eigenbasis(square, w_, Precision::kDouble, progress_.between(0, kEigenbasisDone));
      if (tall && !without_qr_) {  // X := R costs time alone
        backend_.set_identity(w_);
        without_qr_ = true;
      }
    }
    backend_.release(square);
    if (!tall || !without_qr_) unpark(a_);
    if (!without_qr_) {
      backend_.normalize_columns(a_, e_, true);
      release(w_);
      return false;
    }
    x_ = backend_.matrix(n_, n_);
    f_ = backend_.exponents(n_);
    f0_ = backend_.exponents(n_);
    backend_.copy_exponents(e_, f0_, n_);
    if (!tall) x0_ = std::exchange(a_, {});
    multiply_by_eigenbasis();
    limit_exponents(backend_.column_norms(x_, f_));
    park(a_);
    return true;
  }

  // Whether the eigenvalues of G = A'^H A' may be close enough to each other for take_triangle(). A few diagonal entries
  // of G, G^2 and G^3 have the moments of a measure on the eigenvalues as their means. The two nodes of its Gauss
  // quadrature lie between the least and the largest eigenvalue.
  bool may_be_well_conditioned() {
    backend_.stage("probe");
    const View few = a_.columns(0, std::min(n_, kProbedColumns));
    View once = backend_.matrix(n_, few.cols), twice = backend_.matrix(m_, few.cols);
    backend_.gemm(Op::kAdjoint, Op::kNone, 1.0, a_, few, 0.0, once);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, a_, once, 0.0, twice);
    const double m1 = mean_square(few), m2 = mean_square(once), m3 = mean_square(twice);
    backend_.release(twice);
    backend_.release(once);
    // The nodes are the zeros of d x^2 - p x + q.
    const double d = m2 - m1 * m1, p = m3 - m1 * m2, q = m1 * m3 - m2 * m2;
    const double most = (1 + kLargestNodeRatio) * (1 + kLargestNodeRatio) / kLargestNodeRatio;
    return d < 0.01 * m1 * m1 || p * p <= most * d * q;  // d, p and q of nearly equal ones are rounding errors
  }

  // The mean of the columns' |x_j|^2.
  double mean_square(View x) {
    const double norm = frobenius(backend_.column_norms(x, nullptr), 0);
    return norm * norm / static_cast<double>(x.cols);
  }

  // Whether no column is close to the span of those before it, of which `square` has the products. r: room for R.
  bool is_well_conditioned(View square, View r) {
    const std::vector<double> squares = backend_.diagonal(square);
    backend_.copy(square, r);
    if (!backend_.cholesky(r)) return false;
    const std::vector<double> distances = backend_.diagonal(r);
    for (size_t j = 0; j < squares.size(); ++j) {
      if (!(distances[j] > kLeastDistance * std::sqrt(squares[j]))) return false;
    }
    return true;
  }

  // x0_ := R in w_, if it may stand for A' in the sweeps: see step 2.
  bool take_triangle(View square) {
    const std::vector<double> squares = backend_.diagonal(square);
    x0_ = backend_.matrix(n_, n_);
    backend_.copy_triangle(w_, x0_);
    int32_t* f = backend_.exponents(n_);
    backend_.adjoint_of_triangle(x0_, nullptr, w_, f);
    const int32_t exponent = backend_.apply_exponents(w_, f);
    backend_.release(f);
    View inverse = backend_.matrix(n_, n_);
    backend_.set_identity(inverse);
    backend_.solve_lower(w_, inverse);
    const std::vector<ScaledNorm> norms = backend_.column_norms(inverse, nullptr);
    backend_.release(inverse);
    double sum = 0;  // of 1 / d_j^2
    for (int64_t j = 0; j < n_; ++j) {
      const double x = std::ldexp(norms[j].mantissa, norms[j].exponent - exponent);
      sum += x * x * squares[j];
    }
    if (sum <= kLargestMeanSquare * static_cast<double>(n_)) return true;
    release(x0_);
    return false;
  }

  bool warm_start() {
    if (!may_start_by_eigenbasis(plan_) || n_ < 2) return false;
    const auto norms = backend_.column_norms(x_, f_);
    if (std::any_of(norms.begin(), norms.end(), is_zero) || spread(norms) > kWarmStartSpread) return false;
    limit_exponents(norms);
    progress_.begin(parts(), kSvdStart);
    backend_.stage("warm start");
    backend_.apply_exponents(x_, f_);
    View square = backend_.matrix(n_, n_);
    backend_.herk(x_, square);
    park(x_);
    w_ = backend_.matrix(n_, n_);
    const bool found =
        backend_.eigenbasis(square, w_, Precision::kDouble, progress_.between(kGramDone, kEigenbasisDone));
    unpark(x_);
    if (!found) {
      backend_.release(square);
      release(w_);
      return false;
    }
    x0_ = square;
    f0_ = backend_.exponents(n_);
    backend_.copy(x_, x0_);
    backend_.copy_exponents(f_, f0_, n_);
    multiply_by_eigenbasis();
    return true;
  }

  // X := X_0 V_0, V_0 in w_. Both stay where vectors are wanted.
  void multiply_by_eigenbasis() {
    backend_.gemm(Op::kNone, Op::kNone, 1.0, x0_, w_, 0.0, x_);
    backend_.copy_exponents(f0_, f_, n_);
    backend_.normalize_columns(x_, f_, true);
    if (!vectors_) {
      release(w_);
      release(x0_);
    }
    park(x0_);
    outcome_.warm_started = true;
  }

  // X P = Q_2 R_2, X := R_2^H. Leaves Q_2 in (b_, tau2_), P in inner_order_.
  void second_qr() {
    start_ = SvdStart::kTwoQrs;
    progress_.begin(parts(), kSvdStart);
    backend_.stage("qr");
    const auto norms = backend_.column_norms(x_, f_);
    inner_order_ = identity_order(n_);
    std::stable_sort(inner_order_.begin(), inner_order_.end(),
                     [&](int64_t i, int64_t j) { return is_larger(norms[i], norms[j]); });
    backend_.permute_columns(x_, inner_order_);
    backend_.permute_exponents(f_, inner_order_);
    b_ = x_;
    tau2_ = backend_.scalars(n_);
    const std::vector<double> row_maxima = backend_.row_maxima(b_);
    backend_.qr(b_, tau2_, progress_.between(0, 1));
    x_ = backend_.matrix(n_, n_);
    f0_ = backend_.exponents(n_);
    backend_.copy_exponents(f_, f0_, n_);
    adjoint_without_noise(b_, f0_, row_maxima);
    if (!vectors_) {
      release(b_);
      return;
    }
    if (right_columns_ == 0) return;  // the left basis is P Y
    const auto diagonal = backend_.diagonal(b_);
    park(b_);
    x0_ = backend_.matrix(n_, n_);
    backend_.copy(x_, x0_);
    backend_.copy_exponents(f_, f0_, n_);
    solve_for_w_ = *std::min_element(diagonal.begin(), diagonal.end()) > solvable_diagonal();
    if (!solve_for_w_) {
      // The repair multiplies true columns.
      if (spread(backend_.column_norms(x_, f_)) <= kPlainSpread) {
        backend_.apply_exponents(x0_, f0_);
      } else {
        release(x0_);
      }
    }
    park(x0_);
    if (solve_for_w_) return;
    w_ = backend_.matrix(n_, n_);
    backend_.set_identity(w_);
  }

  // Step 3.
  void sweep() {
    const LargeOptions& options = plan_.options;
    typename BlockJacobiSweeps<Backend>::Limits limits;
    limits.strategy = options.strategy;
    limits.variant = options.variant;
    limits.tolerance = options.tolerance > 0 ? options.tolerance : own_tolerance();
    limits.max_sweeps = options.max_sweeps > 0 ? options.max_sweeps : kDefaultLargeSweeps;
    limits.expected_work = expected_work(plan_, start_, bool(w_));
    limits.nearly_orthogonal = outcome_.warm_started;
    progress_.begin(parts(), kSvdSweeps);
    SweepOperands<E> operands;
    operands.x = x_;
    operands.f = f_;
    operands.v = w_;
    if (w_ && !hyperbolic_) operands.x0 = x0_, operands.f0 = f0_;
    operands.positive = positive_;
    operands.smallest_exponent = smallest_exponent_;
    BlockJacobiSweeps<Backend> sweeps(backend_, limits, progress_);
    if (!sweeps_) {
      sweeps_ = sweeps.first(operands);
      save_sweep(*sweeps_);
    }
    const auto result = sweeps.run(operands, *sweeps_, [this](SweepsState& state) { save_sweep(state); });
    outcome_.status = result.converged ? LargeStatus::kOk : LargeStatus::kNotConverged;
    outcome_.sweeps = result.sweeps;
    if (hyperbolic_ && result.zero_column) {
      throw LargeStop{LargeStatus::kRankDeficient, "the factor does not have full column rank"};
    }
  }

  // Cosines of f32 operands' columns need not be smaller than what rounding their results leaves.
  double own_tolerance() const {
    const double u = value_bytes(plan_.problem.dtype) == 4 ? 0x1p-28 : kUnitRoundoff;
    return std::max(4.0, 0.5 * std::sqrt(static_cast<double>(n_))) * u;
  }

  // Step 4.
  void finish() {
    progress_.begin(parts(), kSvdPolish);
    backend_.stage("finish");
    if (vectors_ && solve_for_w_) solve_for_w();
    release(x0_);  // X before the sweeps has done what it was kept for
    if (needs_operand()) multiply_operand();
    // The Newton-Schulz step squares W's distance from orthogonality, some 10 n u after a solve or many rotations.
    if (w_ && !hyperbolic_ && !outcome_.warm_started) {
      park(x_);
      newton_schulz_step(backend_, w_);
    }
    unpark(x_);
    const auto norms = sorted_norms();
    write_values(norms);
    if (!vectors_) return;
    unit_columns(norms);
    if (left_columns_ > 0) store_left();
    if (right_columns_ > 0) store_right();
  }

  // W := X_2^-1 (Y S). Leaves x_ parked.
  void solve_for_w() {
    w_ = backend_.matrix(n_, n_);
    backend_.copy(x_, w_);
    park(x_);
    unpark(x0_);
    backend_.solve_lower(x0_, w_);
    backend_.scale_solution(f0_, f_, w_);
  }

  // X := A' W
  void multiply_operand() {
    release(x_);
    unpark(a_);
    x_ = backend_.matrix(m_, n_);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, a_, w_, 0.0, x_);
    release(a_);
    backend_.copy_exponents(e_, f_, n_);
    backend_.normalize_columns(x_, f_, true);
  }

  // The norms of x, descending among columns of equal sign, in the user's order of signs; the columns of x and w
  // follow.
  std::vector<ScaledNorm> sorted_norms() {
    const auto norms = backend_.column_norms(x_, f_);
    std::vector<int64_t> order = identity_order(n_), sorted(n_);
    const auto descending = [&](int64_t i, int64_t j) { return is_larger(norms[i], norms[j]); };
    std::stable_sort(order.begin(), order.begin() + positive_, descending);
    std::stable_sort(order.begin() + positive_, order.end(), descending);
    int64_t next_positive = 0, next_negative = positive_;
    for (int64_t j = 0; j < n_; ++j) {
      sorted[j] = order[hyperbolic_ && operands_.signature[j] < 0 ? next_negative++ : next_positive++];
    }
    if (hyperbolic_ && w_) change_signs();
    if (vectors_) {
      backend_.permute_columns(x_, sorted);
      if (w_) backend_.permute_columns(w_, sorted);
    }
    std::vector<ScaledNorm> result(n_);
    for (int64_t j = 0; j < n_; ++j) result[j] = norms[sorted[j]];
    return result;
  }

  // W := J W J, J still partitioned.
  void change_signs() {
    const int64_t negative = n_ - positive_;
    backend_.scale_columns(w_.block(0, positive_, positive_, negative), std::vector<double>(negative, -1));
    backend_.scale_columns(w_.block(positive_, 0, negative, positive_), std::vector<double>(positive_, -1));
  }

  void write_values(const std::vector<ScaledNorm>& norms) {
    for (int64_t j = 0; j < plan_.values; ++j) {
      const double value = std::ldexp(norms[j].mantissa, norms[j].exponent);
      if (value_bytes(plan_.problem.dtype) == 4) {
        static_cast<float*>(operands_.values)[j] = static_cast<float>(value);
        outcome_.out_of_range |= std::isinf(static_cast<float>(value));
      } else {
        static_cast<double*>(operands_.values)[j] = value;
        outcome_.out_of_range |= std::isinf(value);
      }
    }
  }

  // x's columns divided by their norms; zero columns completed to an orthonormal basis.
  void unit_columns(const std::vector<ScaledNorm>& sorted) {
    const std::vector<ScaledNorm> own = backend_.column_norms(x_, nullptr);
    std::vector<double> multipliers(n_);
    for (int64_t j = 0; j < n_; ++j) {
      multipliers[j] = own[j].mantissa > 0 ? 1 / std::ldexp(own[j].mantissa, own[j].exponent) : 0;
    }
    backend_.scale_columns(x_, multipliers);
    const int64_t rank =
        std::count_if(sorted.begin(), sorted.end(), [](const ScaledNorm& s) { return s.mantissa > 0; });
    // Columns count as orthogonal at own_tolerance(), so U is off by some n^1.6 u: 6 n u for n = 2048. No W hides that.
    if (rank < n_ || hyperbolic_) park(w_);
    if (hyperbolic_ && outcome_.status == LargeStatus::kOk) newton_schulz_step(backend_, x_);
    if (rank < n_) complete_basis(rank);
    unpark(w_);
  }

  // The columns of x from `rank` on become orthonormal to those before them.
  void complete_basis(int64_t rank) {
    View rest = x_.columns(rank, n_ - rank);
    backend_.set_zero(rest);
    backend_.set_identity(rest.block(rank, 0, n_ - rank, n_ - rank));
    if (rank == 0) return;
    View reflectors = backend_.matrix(x_.rows, rank);
    E* tau = backend_.scalars(rank);
    backend_.copy(x_.columns(0, rank), reflectors);
    backend_.qr(reflectors, tau);
    backend_.apply_q(Op::kNone, reflectors, tau, rest);
    backend_.release(tau);
    backend_.release(reflectors);
  }

  // Q times W, P Y or (hyperbolic) Y, in the operand's order of rows.
  void store_left() {
    const bool second = bool(b_), from_x = hyperbolic_ || second || without_qr_;
    View& core = from_x ? x_ : w_;
    progress_.begin(parts(), kSvdLeft);
    if (second) backend_.permute_rows(core, inverse_order(inner_order_));
    if (without_qr_) return store_left_as_it_is();
    if (right_columns_ > 0) park(from_x ? w_ : x_);
    if (tall_ != nullptr) return tall_->expand(core);
    View left = m_ == n_ && left_columns_ == n_ ? std::exchange(core, {}) : bordered(core);
    unpark(a_);
    backend_.apply_q(Op::kNone, a_, tau_, left, progress_.between(0, kLeftMade));
    release(a_);
    backend_.permute_rows(left, inverse_order(row_order_));
    if (resident_left_ != nullptr) {
      *resident_left_ = left;
      return;
    }
    store(left, wide_);
    backend_.release(left);
  }

  // The leading columns of `core` above zeros, and of the identity where there are more. core is released.
  View bordered(View& core) {
    View left = backend_.matrix(m_, left_columns_);
    const int64_t of_core = std::min(n_, left_columns_);
    if (left_columns_ > n_ || m_ > n_) backend_.set_zero(left);
    backend_.copy(core.columns(0, of_core), left.block(0, 0, n_, of_core));
    if (left_columns_ > n_) backend_.set_identity(left.block(n_, n_, m_ - n_, left_columns_ - n_));
    release(core);
    return left;
  }

  void store_left_as_it_is() {
    const View leading = x_.columns(0, left_columns_);
    backend_.permute_rows(leading, inverse_order(row_order_));
    if (resident_left_ != nullptr) {
      *resident_left_ = leading;
      x_ = {};
    } else {
      store(leading, wide_);
    }
  }

  void store_right() {
    progress_.begin(parts(), kSvdRight);
    const bool second = bool(b_);
    View& core = hyperbolic_ || second || without_qr_ ? w_ : x_;
    unpark(core);
    unpark(b_);
    View right = core;
    if (right_columns_ < n_) right = right.columns(0, right_columns_);
    if (second) backend_.apply_q(Op::kNone, b_, tau2_, right, progress_.between(0, 1));
    backend_.permute_rows(right, inverse_order(column_order_));
    if (resident_right_ != nullptr) {
      *resident_right_ = backend_.matrix(right.rows, right.cols);
      backend_.copy(right, *resident_right_);
      return;
    }
    store(right, !wide_);
  }

  // The tall matrix's left basis is U, or the wide operand's V^H; the right one V^H or U.
  void store(View basis, bool adjoint) {
    Problem p = plan_.problem;
    p.rows = adjoint ? basis.cols : basis.rows;
    p.cols = adjoint ? basis.rows : basis.cols;
    backend_.store(basis, adjoint, adjoint ? operands_.right : operands_.left, p);
  }

  // Errors of the stored, rounded results: |A - U S V^H|_F / |A|_F, |I - U^H U|_F, |I - V^H V|_F or |J - V^H J V|_F.
  void certify() {
    release_all();
    progress_.begin(parts(), kSvdCertificate);
    backend_.stage("certificate");
    if (tall_ != nullptr) return certify_tall();
    const Problem& p = plan_.problem;
    View u = loaded(operands_.left, p.rows, plan_.left_columns, false);
    outcome_.left_orthogonality = distance_from_signature(u, false);
    park(u);
    View v = loaded(operands_.right, plan_.right_rows, p.cols, true);
    outcome_.right_orthogonality = distance_from_signature(v, hyperbolic_);
    if (outcome_.out_of_range) {  // some of S is +inf
      outcome_.residual = std::numeric_limits<double>::infinity();
      return;
    }
    park(v);
    unpark(u);
    View a = loaded(operands_.matrix, p.rows, p.cols, false);
    outcome_.residual = residual(a, u.columns(0, n_), v.columns(0, n_));
    for (View* view : {&a, &u, &v}) release(*view);
  }

  // |I - B^H B|_F, or |J - B^H J B|_F.
  double distance_from_signature(View basis, bool with_signs) {
    View square = backend_.matrix(basis.cols, basis.cols);
    int64_t positive = basis.cols;
    if (with_signs) {
      positive = signed_square(basis, square);
    } else {
      backend_.herk(basis, square);
    }
    const double distance = backend_.distance_from_signature(square, positive);
    backend_.release(square);
    return distance;
  }

  // The same with the long basis where it was stored.
  void certify_tall() {
    View y = wide_ ? loaded(operands_.left, n_, n_, false) : loaded(operands_.right, n_, n_, true);
    View square = backend_.matrix(n_, n_);
    tall_->gram_of_basis(square);
    (wide_ ? outcome_.right_orthogonality : outcome_.left_orthogonality) = backend_.distance_from_signature(square, n_);
    int64_t positive = n_;
    if (hyperbolic_) {
      positive = signed_square(y, square);
    } else {
      backend_.herk(y, square);
    }
    (wide_ ? outcome_.left_orthogonality : outcome_.right_orthogonality) =
        backend_.distance_from_signature(square, positive);
    if (outcome_.out_of_range) {  // some of S is +inf
      outcome_.residual = std::numeric_limits<double>::infinity();
      return;
    }
    const auto norms = tall_->column_norms();
    if (std::all_of(norms.begin(), norms.end(), is_zero)) return;
    int32_t largest = kZeroColumn;
    for (const auto& norm : norms) largest = std::max(largest, norm.exponent);
    backend_.scale_columns(y, stored_values(largest));
    outcome_.residual = tall_->residual(largest, y) / frobenius(norms, largest);
  }

  View loaded(const void* matrix, int64_t rows, int64_t cols, bool adjoint) {
    View view = backend_.matrix(adjoint ? cols : rows, adjoint ? rows : cols);
    Problem p = plan_.problem;
    p.rows = rows;
    p.cols = cols;
    backend_.load(matrix, p, adjoint, view);
    return view;
  }

  // square := V^H J V with rows and columns partitioned; v is left as it was. Returns how many signs are positive.
  int64_t signed_square(View v, View square) {
    std::vector<int64_t> order = identity_order(n_);
    std::stable_partition(order.begin(), order.end(), [&](int64_t j) { return operands_.signature[j] > 0; });
    backend_.permute_rows(v, order);
    const View plus = v.block(0, 0, positive_, n_), minus = v.block(positive_, 0, n_ - positive_, n_);
    backend_.set_zero(square);
    if (plus.rows > 0) backend_.gemm(Op::kAdjoint, Op::kNone, 1.0, plus, plus, 0.0, square);
    if (minus.rows > 0) backend_.gemm(Op::kAdjoint, Op::kNone, -1.0, minus, minus, 1.0, square);
    backend_.permute_columns(square, order);
    backend_.permute_rows(square, order);
    backend_.permute_rows(v, inverse_order(order));
    return positive_;
  }

  // |A - U S V^H|_F / |A|_F. a, u are overwritten; v may be parked. All columns by one power of two: what underflows is
  // negligible.
  double residual(View a, View u, View v) {
    int32_t* exponents = backend_.exponents(a.cols);
    backend_.normalize_columns(a, exponents, false);
    const auto norms = backend_.column_norms(a, exponents);
    if (std::all_of(norms.begin(), norms.end(), is_zero)) return 0;
    const int32_t largest = backend_.apply_exponents(a, exponents);
    backend_.scale_columns(u, stored_values(largest));
    for_column_groups(backend_, v, [&](int64_t first, View columns) {
      backend_.gemm(Op::kNone, Op::kAdjoint, -1.0, u.columns(first, columns.cols), columns, 1.0, a);
    });
    return frobenius(backend_.column_norms(a, nullptr), 0) / frobenius(norms, largest);
  }

  // 2^-exponent S, as it was stored.
  std::vector<double> stored_values(int32_t exponent) const {
    const bool single = value_bytes(plan_.problem.dtype) == 4;
    std::vector<double> values(n_);
    for (int64_t j = 0; j < n_; ++j) {
      const double value =
          single ? static_cast<float*>(operands_.values)[j] : static_cast<double*>(operands_.values)[j];
      values[j] = std::ldexp(value, -exponent);
    }
    return values;
  }

  // 2^-exponent times the Frobenius norm of columns with these norms.
  static double frobenius(const std::vector<ScaledNorm>& norms, int32_t exponent) {
    double sum = 0;
    for (const auto& norm : norms) {
      const double x = std::ldexp(norm.mantissa, norm.exponent - exponent);
      sum += x * x;
    }
    return std::sqrt(sum);
  }

  void park(View& view) { large::park(backend_, view); }
  void unpark(View& view) { large::unpark(backend_, view); }

  void release_all() {
    for (View* view : {&a_, &b_, &x_, &x0_, &w_}) release(*view);
  }

  void release(View& view) {
    if (view) backend_.release(view);
    view = {};
  }

  static LargeStop non_finite(const LoadReport& report) {
    return {LargeStatus::kNonFinite,
            "entry (" + std::to_string(report.row) + ", " + std::to_string(report.col) + ") is not finite", false,
            report.row, report.col};
  }

  static bool is_larger(const ScaledNorm& x, const ScaledNorm& y) {
    if (x.mantissa == 0 || y.mantissa == 0) return x.mantissa > y.mantissa;
    return x.exponent != y.exponent ? x.exponent > y.exponent : x.mantissa > y.mantissa;
  }

  static bool is_zero(const ScaledNorm& norm) { return norm.mantissa == 0; }

  // log2 of the largest ratio of two norms that are not zero, rounded.
  static int32_t spread(const std::vector<ScaledNorm>& norms) {
    int32_t least = -kZeroColumn, most = kZeroColumn;
    for (const auto& norm : norms) {
      if (is_zero(norm)) continue;
      least = std::min(least, norm.exponent);
      most = std::max(most, norm.exponent);
    }
    return std::max(most - least, 0);
  }

  static std::vector<int64_t> identity_order(int64_t n) {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), int64_t{0});
    return order;
  }

  static std::vector<int64_t> inverse_order(const std::vector<int64_t>& order) {
    std::vector<int64_t> inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
    return inverse;
  }

  // The triangular solve divides by R_2's diagonal, each entry relative to its column's norm. So W loses about u over
  // the least of them of its orthogonality, which the repair turns into as much residual. 2 n u leaves a wide margin to
  // the 10 n u that the contract allows.
  double solvable_diagonal() const { return 0.5 / static_cast<double>(n_); }

  // --- states -------------------------------------------------------------------------------------------------------

  // A state is of this decomposition, and leads to the same bits, where all this is the same.
  template <class Archive>
  void identify(Archive& archive) {
    constexpr uint32_t kFormat = 3;
    const LargeOptions& o = plan_.options;
    archive.same(kFormat);
    archive.same(identity_);
    archive.same(plan_.problem.rows);
    archive.same(plan_.problem.cols);
    archive.same(plan_.problem.dtype);
    archive.same(plan_.problem.order);
    archive.same(plan_.left_columns);
    archive.same(plan_.right_rows);
    archive.same(o.kind);
    archive.same(o.method);
    archive.same(o.tolerance);
    archive.same(o.max_sweeps);
    archive.same(o.strategy);
    archive.same(o.variant);
    if (hyperbolic_) archive.same(std::string(operands_.signature, operands_.signature + n_));
  }

  // kFactors. Without bases R is enough.
  template <class Archive>
  void list_factors(Archive& archive) {
    identify(archive);
    archive.number(fraction_);
    archive.number(positive_);
    archive.numbers(row_order_, m_);
    archive.numbers(column_order_, n_);
    archive.numbers(sorted_row_maxima_, m_);
    archive.exponents(e_, n_);
    const int64_t rows = vectors_ && tall_ == nullptr ? m_ : n_;
    View upper = a_ ? a_.block(0, 0, rows, n_) : View{};
    archive.matrix(a_ ? upper : a_, rows, n_);  // what is read belongs to a_ from the beginning, and goes with it
    archive.scalars(tau_, n_);
    if (tall_ != nullptr) tall_->visit_factors([&](void* memory, uint64_t bytes) { archive.host(memory, bytes); });
  }

  // kStart
  template <class Archive>
  void list_start(Archive& archive) {
    identify(archive);
    archive.number(start_);
    archive.number(without_qr_);
    archive.number(solve_for_w_);
    archive.number(outcome_.warm_started);
    archive.number(smallest_exponent_);
    archive.number(positive_);
    archive.numbers(row_order_, m_);
    archive.numbers(column_order_, n_);
    archive.numbers(inner_order_, n_);
    archive.matrix(b_, n_, n_);
    archive.scalars(tau2_, n_);
    archive.matrix(x0_, n_, n_);
    archive.exponents(f0_, n_);
  }

  // kSweep
  template <class Archive>
  void list_sweep(Archive& archive, SweepsState& state) {
    identify(archive);
    archive.number(fraction_);
    archive.number(state.result.sweeps);
    archive.number(state.result.converged);
    archive.number(state.result.zero_column);
    archive.number(state.repaired);
    archive.number(state.few);
    archive.number(state.left);
    archive.numbers(state.tracked, 1 + n_ * (n_ + 1) / 2);  // of pairs of blocks, which have a column or more
    archive.number(progress_.state.rotations);
    archive.number(progress_.state.proper_rotations);
    archive.number(progress_.state.off_diagonal);
    archive.matrix(x_, n_, n_);
    archive.exponents(f_, n_);
    archive.matrix(w_, n_, n_);
  }

  // list(archive) lists the parts of a state.
  template <class List>
  bool write_state(LargeState state, const List& list) {
    fraction_ = progress_.state.fraction;
    if constexpr (kHasStates<Backend>) {
      states::CountingArchive<Backend> count(backend_);
      list(count);
      if (!states_->begin(state, count.bytes())) return false;
      states::StateWriter<Backend> writer(backend_, *states_, [this] { progress_.at(0); });
      list(writer);
      states_->end();
    }
    return true;
  }

  bool write_factors() {
    return write_state(LargeState::kFactors, [this](auto& archive) { this->list_factors(archive); });
  }

  void save_factors() {
    if (states_ != nullptr && states_->due()) has_factors_state_ = write_factors();
  }

  // The state of the sweeps, with those that it needs.
  void save_sweep(SweepsState& state) {
    if (states_ == nullptr || !states_->due()) return;
    has_factors_state_ = has_factors_state_ || !needs_factors() || write_factors();
    if (!has_factors_state_) return;
    has_start_state_ =
        has_start_state_ || write_state(LargeState::kStart, [this](auto& archive) { this->list_start(archive); });
    if (!has_start_state_) return;
    if constexpr (requires { backend_.tracked_pairs(x_); }) state.tracked = backend_.tracked_pairs(x_);
    (void)write_state(LargeState::kSweep, [&](auto& archive) { list_sweep(archive, state); });
  }

  // Whether the bases need Q, or A'.
  bool needs_factors() const { return left_columns_ > 0 && !without_qr_; }
  bool needs_operand() const { return left_columns_ > 0 && without_qr_ && m_ > n_; }

  // False: it is not there, or is not of this decomposition. Some of its parts may have been read then.
  template <class List>
  bool read_state(LargeState state, const List& list) {
    if constexpr (kHasStates<Backend>) {
      const uint64_t bytes = states_->open(state);
      if (bytes == 0) return false;
      states::StateReader<Backend> reader(backend_, *states_, bytes, [this] { progress_.at(0); });
      try {
        list(reader);
        return reader.at_end();
      } catch (const states::StateUnusable&) {
        return false;
      } catch (const LargeStop& stop) {  // damage may ask for parts that are not there together
        if (stop.status != LargeStatus::kOutOfMemory) throw;
      }
    }
    return false;
  }

  bool read_factors() {
    return read_state(LargeState::kFactors, [this](auto& archive) { this->list_factors(archive); });
  }

  bool read_sweeps() {
    if (!read_state(LargeState::kStart, [this](auto& archive) { this->list_start(archive); })) return false;
    park(b_);
    park(x0_);
    has_factors_state_ = needs_factors();
    if (has_factors_state_ && !read_factors()) return false;
    park(a_);
    SweepsState state;
    if (!read_state(LargeState::kSweep, [&](auto& archive) { list_sweep(archive, state); })) return false;
    has_start_state_ = true;
    progress_.state.sweep = outcome_.resumed_sweeps = state.result.sweeps;
    sweeps_ = std::move(state);
    return true;
  }

  Reached load_states() {
    if (states_ == nullptr) return Reached::kNothing;
    backend_.stage("load");
    start_ = expected_start(plan_, backend_.work_speeds());
    Reached reached = Reached::kSweeps;
    if (!read_sweeps()) {
      forget();
      has_factors_state_ = read_factors() && a_;  // R is not kept for as long as Q
      reached = has_factors_state_ ? Reached::kFactors : Reached::kNothing;
      if (!has_factors_state_) forget();
    }
    progress_.go_on_from(fraction_);
    return reached;
  }

  // All that was read.
  void forget() {
    release_all();
    for (int32_t** exponents : {&e_, &f_, &f0_}) release(*exponents);
    for (E** scalars : {&tau_, &tau2_}) release(*scalars);
    start_ = expected_start(plan_, backend_.work_speeds());
    without_qr_ = solve_for_w_ = outcome_.warm_started = has_factors_state_ = false;
    smallest_exponent_ = kZeroColumn;
    fraction_ = 0;
    inner_order_.clear();
    progress_.state = {.off_diagonal = 1};
  }

  template <class T>
  void release(T*& array) {
    if (array != nullptr) backend_.release(array);
    array = nullptr;
  }

  WorkParts parts() const { return svd_parts(plan_, start_, backend_.work_speeds()); }

  Backend& backend_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  LargeWatch watch_;
  ProgressTeller progress_;
  LargeOutcome outcome_;
  SvdStart start_ = SvdStart::kTwoQrs;  // as far as is known

  bool hyperbolic_ = false, wide_ = false, vectors_ = false, solve_for_w_ = false;
  bool level_ = false, without_qr_ = false;
  int64_t m_ = 0, n_ = 0;                                        // of the tall matrix
  int64_t left_columns_ = 0, right_columns_ = 0;                 // of its bases: n or more, or top_k; 0: not wanted
  int32_t smallest_exponent_ = kZeroColumn;                      // of a column that is not rounding error
  int64_t positive_ = 0;                                         // columns with J = 1
  std::vector<int64_t> row_order_, column_order_, inner_order_;  // P_r, P_c, P
  std::vector<double> sorted_row_maxima_;  // of A', relative to its columns; with tall_ of all rows from this one on

  std::unique_ptr<TallOperand<E>> tall_;  // instead of A' and Q, or null
  View a_;                                // A', then Q and R of it; with e_, tau_. With tall_: R, until there is X
  View b_;                                // Q_2 and R_2; with tau2_
  View x_;                                // X, then Y; with f_
  View x0_;                               // X before the sweeps, with f0_
  View w_;                                // W
  View* resident_left_ = nullptr;         // run_resident()'s
  View* resident_right_ = nullptr;        // that, or run_for_right()'s
  int32_t *e_ = nullptr, *f_ = nullptr, *f0_ = nullptr;
  E *tau_ = nullptr, *tau2_ = nullptr;

  LargeStateStore* states_ = nullptr;  // or null
  std::string identity_;
  bool has_factors_state_ = false, has_start_state_ = false;  // there are these states, of this decomposition
  double fraction_ = 0;                                       // of the progress, when a state was written
  std::optional<SweepsState> sweeps_;                         // where the sweeps begin
};

// Runs it, and turns what was thrown into an outcome. Never throws.
template <LargeBackend Backend>
LargeOutcome block_jacobi(Backend& backend, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) {
  return outcome_of([&] { return BlockJacobi<Backend>(backend, plan, operands, control).run(); });
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_H_
