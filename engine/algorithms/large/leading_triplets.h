// The leading k singular triplets of one large matrix, from a block Krylov subspace where the spectrum allows it, else
// cut off the full decomposition. The driver of all back ends.
//
//   A V_k = U_k S_k,   A^H U_k = V_k S_k,   A m x n, m >= n (a wide operand is taken as its adjoint)
// Method:
//   1. A Gaussian start V_1, n x b, from a fixed generator. Step j: Q_j from A V_j, and V_{j+1} from A^H Q_j, each made
//      orthonormal to all columns before (block Golub-Kahan-Lanczos, fully reorthogonalized). Its columns span the
//      Krylov space of A^H A and V_1, and A V = Q R with R block upper triangular.
//   2. R = X S Y^H by block_jacobi.h. U = Q X, V = V Y have A V = U S, and A^H u_i - s_i v_i = V_{j+1} T x_i, T the
//      triangle of the last block and x_i the last b rows of column i of X. So the residual is known without A.
//   3. It ends when p >= k triplets have residuals below kTarget sqrt(n) u s_1, and nothing above s_k is missing (4).
//      Two products with A then give the true residual E of the k triplets. |E|_F <= (16 + 2n) u s_1 is required.
//   4. The values that are not among these p lie below sqrt(s_{p+1}^2 + rho^2), rho = |A - Q Q^H A|_2. One of these is
//      required, with s_{p+1} the next value of R:
//        rho^2 <= |A|_F^2 - |Q^H A|_F^2 <= s_k^2 - s_{p+1}^2, which is proof;
//        rho <= 10 sqrt(2/pi) max_i |(I - Q Q^H) A w_i| for b new Gaussian vectors w_i, which is wrong with a probability
//        of at most 10^-b (Halko, Martinsson and Tropp 2011, section 4.3), and the same inequality, or rho <= (16 + 2n) u
//        s_1;
//        (1.648 sqrt(n) exp(-sqrt(e) (2 j - 1)))^b <= 10^-15, e = 1 - (s_{p+1} / s_k)^2: the bound on the probability
//        that j steps of Lanczos from b random starts underestimate the largest value of what is left by more than a
//        factor of 1 - e (Kuczynski and Wozniakowski 1992).
//   5. The full decomposition where the subspace may have no more columns, or the residuals fall too slowly for it.
//      It has then cost at most about a quarter of the full one in vain. It has V alone if a tall operand is
//      not copied; A V_k = Q_k R_k and the SVD of R_k give U.
// By |E| (Weyl's bound for [0 A; A^H 0]) each value is within (16 + 2n) u s_1 of a singular value, and in fact within
// about |E|^2 / gap. Cost: 4 m n b a step, and 8 (m + n) b^2 j for orthogonality. The full decomposition takes
// 4 m n^2 or more.
// Sources: Halko, Martinsson and Tropp, SIAM Rev. 53 (2011) 217-288; Musco and Musco, NIPS 2015 (block Krylov);
// Golub, Luk and Overton, ACM Trans. Math. Software 7 (1981) 149-169 (the block method); Kuczynski and Wozniakowski,
// SIAM J. Matrix Anal. Appl. 13 (1992) 1094-1122.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_LEADING_TRIPLETS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_LEADING_TRIPLETS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/planner.h"

namespace svdserve::large {

// In units of sqrt(n) u s_1: the residual at which a triplet counts as found.
inline constexpr double kTarget = 4;
// log10 of the probability with which a larger value may be missed.
inline constexpr double kMissedLog10 = -15;
// Largest |B^H z| of unit columns z that one more projection makes orthogonal to B.
inline constexpr double kNearlyOrthogonal = 1e-8;
// An operand whose columns have exponents beyond is scaled.
inline constexpr int32_t kPlainExponent = 300;

// Standard normal numbers, the same in every run: number `index` of a stream, by Box and Muller from SplitMix64.
class FixedNormals {
 public:
  explicit FixedNormals(uint64_t stream) : offset_(stream << 40) {}
  double operator()(uint64_t index) const {
    const double radius = std::sqrt(-2 * std::log(uniform(2 * index)));
    return radius * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
  }

 private:
  // In (0, 1].
  double uniform(uint64_t index) const {
    uint64_t z = (offset_ + index + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<double>((z >> 11) + 1) * 0x1p-53;
  }

  uint64_t offset_;
};

template <LargeBackend Backend>
class LeadingTriplets {
 public:
  using E = typename Backend::Element;
  using View = LargeView<E>;

  // All arguments must outlive the object. run() may be called once.
  LeadingTriplets(Backend& backend, const LargePlan& plan, const LargeOperands& operands, const LargeControl& control)
      : backend_(backend),
        plan_(plan),
        operands_(operands),
        control_(control),
        watch_(control),
        progress_(watch_),
        parts_(leading_parts(plan, backend.work_speeds())) {
    const Problem& p = plan.problem;
    wide_ = p.rows < p.cols;
    m_ = std::max(p.rows, p.cols);
    n_ = std::min(p.rows, p.cols);
    k_ = plan.values;
    block_ = subspace_block(k_);
    vectors_ = plan.left_columns > 0;
    unit_ = value_bytes(p.dtype) == 4 ? 0x1p-24 : kUnitRoundoff;
    accepted_ = (16 + 2 * static_cast<double>(n_)) * unit_;
    target_ = kTarget * std::sqrt(static_cast<double>(n_)) * unit_;
  }

  // Throws LargeStop for everything but kOk and kNotConverged.
  LargeOutcome run() {
    make_tall_operand();
    if (plan_.subspace_columns == 0 || !found_by_subspace()) decompose_all();
    if (plan_.options.certificate) certify();
    outcome_.phases = backend_.phases();
    progress_.end();
    return std::move(outcome_);
  }

 private:
  // The SVD of R, or of R_k: leading vectors and values.
  struct SmallSvd {
    View left, right;
    std::vector<double> values;
  };

  // --- the operand --------------------------------------------------------------------------------------------------

  void make_tall_operand() {
    if constexpr (requires { backend_.tall_operand(plan_, operands_); }) {
      tall_ = backend_.tall_operand(plan_, operands_);
    }
  }

  // Afterwards there are products with 2^-exponent_ A, whose norm is norm_.
  void load() {
    backend_.stage("load");
    LoadReport report;
    std::vector<ScaledNorm> norms;
    if (tall_ != nullptr) {
      int32_t* const exponents = backend_.exponents(n_);
      report = tall_->scan(exponents);
      backend_.release(exponents);
      if (report.finite) norms = tall_->column_norms();
    } else {
      a_ = backend_.matrix(m_, n_);
      report = backend_.load(operands_.matrix, plan_.problem, wide_, a_);
      if (report.finite) norms = backend_.column_norms(a_, nullptr);
    }
    if (!report.finite) throw entry_is_not_finite(report.row, report.col);
    int32_t largest = kZeroColumn;
    for (const ScaledNorm& norm : norms) largest = norm.mantissa > 0 ? std::max(largest, norm.exponent) : largest;
    exponent_ = largest == kZeroColumn || std::abs(largest) <= kPlainExponent ? 0 : largest;
    if (exponent_ != 0 && a_) multiply_by_power(backend_, a_, -exponent_);
    double sum = 0;
    for (const ScaledNorm& norm : norms) {
      const double x = norm.mantissa > 0 ? std::ldexp(norm.mantissa, norm.exponent - exponent_) : 0;
      sum += x * x;
    }
    norm_ = std::sqrt(sum);
  }

  // y := A x
  void multiply(View x, View y) {
    tall_ != nullptr ? tall_->multiply(exponent_, x, y) : backend_.gemm(Op::kNone, Op::kNone, 1.0, a_, x, 0.0, y);
  }

  // x := A^H y
  void multiply_adjoint(View y, View x) {
    if (tall_ != nullptr) {
      tall_->multiply_adjoint(exponent_, y, x);
    } else {
      backend_.gemm(Op::kAdjoint, Op::kNone, 1.0, a_, y, 0.0, x);
    }
  }

  View normals(int64_t rows, uint64_t stream) {
    const View view = backend_.matrix(rows, block_);
    const bool complex = is_complex(plan_.problem.dtype);
    const Problem p{rows, block_, complex ? DType::kC128 : DType::kF64, Order::kColumnMajor};
    std::vector<double> numbers(static_cast<size_t>(rows * block_ * (complex ? 2 : 1)));
    const FixedNormals normal(stream);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = normal(i);
    (void)backend_.load(numbers.data(), p, false, view);
    return view;
  }

  // --- the subspace -------------------------------------------------------------------------------------------------

  bool found_by_subspace() {
    progress_.begin(parts_, kLeadingLoad);
    load();
    const bool found = norm_ > 0 && make_triplets();
    release({&v_, &q_, &r_, &t_, &work_m_, &work_n_});
    if (!found) release({&a_});
    return found;
  }

  bool make_triplets() {
    allocate();
    for (int steps = 1; steps <= most_steps_; ++steps) {
      const double left = seconds_of_steps(steps, std::clamp(expected_steps_, steps, most_steps_)) +
                          (expected_steps_ > 2 * most_steps_ ? full_seconds() : parts_[kLeadingFinish].seconds);
      progress_.begin(LargeStage::kSubspace, seconds_of_steps(steps, steps), left);
      step(steps);
      if (steps < next_check_ && steps < most_steps_) continue;
      backend_.stage("ritz");
      SmallSvd svd = svd_of_projection(steps);
      const bool found = is_found(steps, svd) && take(steps, svd);
      release({&svd.left, &svd.right});
      if (found) outcome_.subspace_steps = steps;
      if (found || is_hopeless_) return found;
    }
    return false;
  }

  void allocate() {
    const int64_t columns = plan_.subspace_columns;
    most_steps_ = expected_steps_ = static_cast<int>(columns / block_);
    v_ = backend_.matrix(n_, columns + block_);
    q_ = backend_.matrix(m_, columns);
    r_ = backend_.matrix(columns, columns);
    t_ = backend_.matrix(block_, block_);
    work_m_ = backend_.matrix(m_, block_);
    work_n_ = backend_.matrix(n_, block_);
    backend_.set_zero(r_);
    const View start = normals(n_, 0);
    backend_.copy(start, work_n_);
    backend_.release(start);
    make_orthonormal(v_, 0, work_n_, {}, t_);
  }

  // Predicted, of first .. last.
  double seconds_of_steps(int first, int last) const {
    const PredictedWork work(backend_.work_speeds(), plan_.problem.dtype);
    double sum = 0;
    for (int j = first; j <= last; ++j) {
      sum += subspace_step(work, double(m_), double(n_), double(block_), double((j - 1) * block_));
    }
    return sum;
  }

  // A V_j = Q (column j of R), A^H Q_j = V R^H + V_{j+1} T.
  void step(int steps) {
    const int64_t before = (steps - 1) * block_, now = steps * block_;
    backend_.stage("products");
    multiply(v_.columns(before, block_), work_m_);
    make_orthonormal(q_, before, work_m_, r_.block(0, before, before, block_),
                     r_.block(before, before, block_, block_));
    backend_.stage("products");
    multiply_adjoint(q_.columns(before, block_), work_n_);
    View rest = backend_.matrix(now, block_);
    make_orthonormal(v_, now, work_n_, rest, t_);
    backend_.release(rest);
  }

  // The `count` first columns of `basis`, B, are orthonormal. Makes the next block of them so from z, which is
  // overwritten: z = B c + (next block) t.
  void make_orthonormal(View basis, int64_t count, View z, View c, View t) {
    backend_.stage("orthogonalize");
    const View before = basis.columns(0, count), next = basis.columns(count, block_);
    if (count > 0) project(before, z, c);
    factor(z, next, t);
    const auto diagonal = backend_.diagonal(t);
    const bool dependent = !(*std::min_element(diagonal.begin(), diagonal.end()) > 64 * kUnitRoundoff * norm_);
    if (count == 0) return;
    const View again = backend_.matrix(count, block_);
    project(before, next, again);
    double largest = 0;
    for (const ScaledNorm& norm : backend_.column_norms(again, nullptr)) {
      largest = std::max(largest, norm.mantissa > 0 ? std::ldexp(norm.mantissa, norm.exponent) : 0.0);
    }
    if (dependent || !(largest <= kNearlyOrthogonal)) repair(before, next, z, t, again);
    backend_.release(again);
  }

  // Columns that depend on those before are rounding errors, and even of exact zeros a basis is needed. So a little
  // noise is added, no more than the rounding errors of the product, before they are made orthogonal again.
  void repair(View before, View next, View z, View t, View c) {
    const View noise = normals(z.rows, 2), small = backend_.matrix(block_, block_);
    backend_.set_identity(small);
    backend_.copy(next, z);
    backend_.gemm(Op::kNone, Op::kNone, kUnitRoundoff / std::sqrt(double(z.rows)), noise, small, 1.0, z);
    backend_.release(noise);
    const View old = backend_.matrix(block_, block_);
    for (int pass = 0; pass < 2; ++pass) {
      project(before, z, c);
      factor(z, next, small);
      backend_.copy(t, old);
      backend_.gemm(Op::kNone, Op::kNone, 1.0, small, old, 0.0, t);
      backend_.copy(next, z);
    }
    project(before, next, c);
    backend_.release(old);
    backend_.release(small);
  }

  // c := B^H z, z := z - B c
  void project(View b, View z, View c) {
    backend_.gemm(Op::kAdjoint, Op::kNone, 1.0, b, z, 0.0, c);
    backend_.gemm(Op::kNone, Op::kNone, -1.0, b, c, 1.0, z);
  }

  // z = q t, q with orthonormal columns, t upper triangular; z is overwritten.
  void factor(View z, View q, View t) {
    E* const tau = backend_.scalars(z.cols);
    backend_.qr(z, tau);
    backend_.copy_triangle(z.block(0, 0, z.cols, z.cols), t);
    backend_.set_identity(q);
    backend_.apply_q(Op::kNone, z, tau, q);
    backend_.release(tau);
  }

  // --- the small SVD ------------------------------------------------------------------------------------------------

  SmallSvd svd_of_projection(int steps) {
    const int64_t size = steps * block_;
    const View copy = backend_.matrix(size, size);
    backend_.copy(r_.block(0, 0, size, size), copy);
    return small_svd(copy, block_);
  }

  // The SVD of a square matrix, which it owns from now on.
  SmallSvd small_svd(View matrix, int64_t leading) {
    LargePlan plan;
    plan.problem = {matrix.rows, matrix.rows, is_complex(plan_.problem.dtype) ? DType::kC128 : DType::kF64,
                    Order::kColumnMajor};
    plan.options.strategy = PivotStrategy::kRecursive;
    plan.options.variant = BlockVariant::kBlockOriented;
    plan.values = plan.left_columns = plan.right_rows = leading;
    SmallSvd svd;
    svd.values.resize(static_cast<size_t>(leading));
    LargeOperands operands;
    operands.values = svd.values.data();
    LargeControl control;
    control.cancel = control_.cancel;
    BlockJacobi<Backend>(backend_, plan, operands, control).run_resident(matrix, &svd.left, &svd.right);
    return svd;
  }

  // --- the decision -------------------------------------------------------------------------------------------------

  // Whether the leading k values of R are those of A (steps 3 and 4). Otherwise it plans the next check.
  bool is_found(int steps, const SmallSvd& svd) {
    const View product = backend_.matrix(block_, block_);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, t_, svd.left.block((steps - 1) * block_, 0, block_, block_), 0.0, product);
    const auto norms = backend_.column_norms(product, nullptr);
    backend_.release(product);
    const double limit = target_ * svd.values[0];
    double sum = 0, of_k = 0;
    int64_t good = 0;
    for (int64_t i = 0; i < block_; ++i) {
      const double x = norms[i].mantissa > 0 ? std::ldexp(norms[i].mantissa, norms[i].exponent) : 0;
      sum += x * x;
      if (i == k_ - 1) of_k = std::sqrt(sum);
      if (good == i && sum <= limit * limit) good = i + 1;
    }
    if (good >= k_ && nothing_is_missing(steps, svd.values, good)) return true;
    plan_check(steps, of_k, limit, good >= k_);
    return false;
  }

  bool nothing_is_missing(int steps, const std::vector<double>& s, int64_t good) {
    const double of_k = s[k_ - 1], next = s[std::min(good, block_ - 1)];
    const double room = of_k * of_k - next * next;
    if (of_k > 0) {
      const double e = room / (of_k * of_k);
      const double one =
          std::log10(1.648 * std::sqrt(double(n_))) - std::sqrt(e) * (2 * steps - 1) / std::numbers::ln10;
      if (one * static_cast<double>(block_) <= kMissedLog10) return true;
    }
    // The subtraction is as exact as the sums of squares.
    const double slack = 8 * std::sqrt(double(m_)) * static_cast<double>(n_) * kUnitRoundoff * norm_ * norm_;
    const double left = norm_ * norm_ - squares(r_.block(0, 0, steps * block_, steps * block_)) - squares(t_) + slack;
    if (left <= room) return true;
    // A bound of ten times the columns' norms, each about |A - Q Q^H A|_F, cannot be below what that norm exceeds.
    if (left > 2 * slack + 1e4 * std::max(room, std::pow(accepted_ * s[0], 2))) return false;
    const double rho = bound_of_rest(steps);
    return rho * rho <= room || rho <= accepted_ * s[0];
  }

  double squares(View view) {
    double sum = 0;
    for (const double square : backend_.column_products(view, view)) sum += square;
    return sum;
  }

  // A bound of |A - Q Q^H A|_2 (Halko, Martinsson and Tropp, section 4.3).
  double bound_of_rest(int steps) {
    backend_.stage("products");
    const View random = normals(n_, 1);
    multiply(random, work_m_);
    backend_.release(random);
    const View c = backend_.matrix(steps * block_, block_);
    for (int pass = 0; pass < 2; ++pass) project(q_.columns(0, steps * block_), work_m_, c);
    backend_.release(c);
    double largest = 0;
    for (const double square : backend_.column_products(work_m_, work_m_)) largest = std::max(largest, square);
    return 10 * std::sqrt(2 / std::numbers::pi * largest);
  }

  // The next check comes where the residuals will be small enough if they fall as they have. They fall ever faster, so
  // there is no hope only where even twice the room would not be enough.
  void plan_check(int steps, double residual, double limit, bool good) {
    next_check_ = steps + 1;
    const double now = std::log(std::max(residual, std::numeric_limits<double>::min()) / limit);
    if (checked_ > 0 && !good) {
      const double rate = (before_ - now) / (steps - checked_);
      const double wanted = rate > 0 ? now / rate : std::numeric_limits<double>::infinity();
      is_hopeless_ = steps >= 4 && steps + wanted > 2 * most_steps_;
      if (!is_hopeless_) next_check_ = steps + std::clamp(static_cast<int>(0.8 * std::min(wanted, 100.0)), 1, 4);
      expected_steps_ = steps + static_cast<int>(std::ceil(std::min(wanted, 100.0)));
    }
    checked_ = steps;
    before_ = now;
  }

  // --- results of the subspace --------------------------------------------------------------------------------------

  // Stores the triplets, unless their true residual is too large.
  bool take(int steps, const SmallSvd& svd) {
    progress_.begin(parts_, kLeadingFinish);
    const int64_t size = steps * block_;
    View u = backend_.matrix(m_, k_), v = backend_.matrix(n_, k_);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, q_.columns(0, size), svd.left.columns(0, k_), 0.0, u);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, v_.columns(0, size), svd.right.columns(0, k_), 0.0, v);
    const std::vector<double> values(svd.values.begin(), svd.values.begin() + k_);
    const auto [of_v, of_u] = residuals(u, v, values);
    const bool good = std::hypot(of_v, of_u) <= accepted_ * values[0];
    if (good) {
      outcome_.status = LargeStatus::kOk;
      outcome_.method = plan_.options.method;
      store_values(values);
      if (vectors_) store_vectors(u, v);
    } else {
      is_hopeless_ = true;
    }
    release({&u, &v});
    return good;
  }

  // |A V - U S|_F and |A^H U - V S|_F
  std::pair<double, double> residuals(View u, View v, const std::vector<double>& values) {
    backend_.stage("residual");
    std::vector<double> negative(values);
    for (double& value : negative) value = -value;
    View of_v = backend_.matrix(m_, k_), of_u = backend_.matrix(n_, k_);
    const View identity = backend_.matrix(k_, k_);
    backend_.set_identity(identity);
    backend_.scale_columns(identity, negative);  // -S
    multiply(v, of_v);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, u, identity, 1.0, of_v);
    multiply_adjoint(u, of_u);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, v, identity, 1.0, of_u);
    const std::pair<double, double> result{std::sqrt(squares(of_v)), std::sqrt(squares(of_u))};
    backend_.release(identity);
    release({&of_v, &of_u});
    return result;
  }

  void store_values(const std::vector<double>& values) {
    for (size_t j = 0; j < values.size(); ++j) {
      const double value = std::ldexp(values[j], exponent_);
      if (value_bytes(plan_.problem.dtype) == 4) {
        static_cast<float*>(operands_.values)[j] = static_cast<float>(value);
        outcome_.out_of_range |= std::isinf(static_cast<float>(value));
      } else {
        static_cast<double*>(operands_.values)[j] = value;
        outcome_.out_of_range |= std::isinf(value);
      }
    }
  }

  // u: m x k, v: n x k, of the tall matrix.
  void store_vectors(View u, View v) {
    backend_.stage("finish");
    store(wide_ ? v : u, false);
    store(wide_ ? u : v, true);
  }

  // As the operand's U, or the adjoint as its V^H.
  void store(View basis, bool adjoint) {
    Problem p = plan_.problem;
    p.rows = adjoint ? basis.cols : basis.rows;
    p.cols = adjoint ? basis.rows : basis.cols;
    backend_.store(basis, adjoint, adjoint ? operands_.right : operands_.left, p);
  }

  // --- the full decomposition ---------------------------------------------------------------------------------------

  double full_seconds() const {
    const WorkSpeeds speeds = backend_.work_speeds();
    return seconds_from(svd_parts(plan_, expected_start(plan_, speeds), speeds), 0);
  }

  void decompose_all() {
    LargePlan plan = plan_;
    plan.options.certificate = false;
    // A tall operand's basis is made of all its columns, or not at all.
    const bool is_short_alone = tall_ != nullptr && vectors_ && k_ < n_;
    if (is_short_alone) (wide_ ? plan.right_rows : plan.left_columns) = 0;
    const double seconds = full_seconds();
    const double rest = is_short_alone || plan_.options.certificate ? parts_[kLeadingFinish].seconds : 0;
    progress_.begin(LargeStage::kPrepare, seconds, seconds + rest);
    const LargeControl control = progress_.of_part(control_);
    BlockJacobi<Backend> svd(backend_, plan, operands_, control);
    if (!is_short_alone) {
      outcome_ = svd.run_and_release();
      return;
    }
    View v;
    outcome_ = svd.run_for_right(&v);
    make_left(v);
  }

  // A V_k = Q R, R = X S Y^H: U = Q X, and V_k := V_k Y, which is V_k but for rounding.
  void make_left(View v) {
    progress_.begin(parts_, kLeadingFinish);
    load();
    View product = backend_.matrix(m_, k_), q = backend_.matrix(m_, k_), r = backend_.matrix(k_, k_);
    backend_.stage("products");
    multiply(v, product);
    factor(product, q, r);
    SmallSvd svd = small_svd(r, k_);
    View right = backend_.matrix(n_, k_);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, q, svd.left, 0.0, product);
    backend_.gemm(Op::kNone, Op::kNone, 1.0, v, svd.right, 0.0, right);
    store_vectors(product, right);
    release({&product, &q, &right, &v, &svd.left, &svd.right});
  }

  // --- the certificate ----------------------------------------------------------------------------------------------

  // The errors of the stored, rounded results.
  void certify() {
    if (!a_) load();
    backend_.stage("certificate");
    const Problem& p = plan_.problem;
    View left = loaded(operands_.left, p.rows, k_, false), right = loaded(operands_.right, k_, p.cols, true);
    View square = backend_.matrix(k_, k_);
    backend_.herk(left, square);
    outcome_.left_orthogonality = backend_.distance_from_signature(square, k_);
    backend_.herk(right, square);
    outcome_.right_orthogonality = backend_.distance_from_signature(square, k_);
    if (outcome_.out_of_range) {  // some of S is +inf
      outcome_.residual = std::numeric_limits<double>::infinity();
    } else if (norm_ > 0) {
      const auto [of_v, of_u] = residuals(wide_ ? right : left, wide_ ? left : right, stored_values());
      outcome_.residual = std::max(of_v, of_u) / norm_;
    }
    release({&left, &right, &square});
  }

  View loaded(const void* matrix, int64_t rows, int64_t cols, bool adjoint) {
    const View view = backend_.matrix(adjoint ? cols : rows, adjoint ? rows : cols);
    Problem p = plan_.problem;
    p.rows = rows;
    p.cols = cols;
    (void)backend_.load(matrix, p, adjoint, view);
    return view;
  }

  // 2^-exponent_ S
  std::vector<double> stored_values() const {
    const bool single = value_bytes(plan_.problem.dtype) == 4;
    std::vector<double> values(static_cast<size_t>(k_));
    for (size_t j = 0; j < values.size(); ++j) {
      const double value =
          single ? static_cast<const float*>(operands_.values)[j] : static_cast<const double*>(operands_.values)[j];
      values[j] = std::ldexp(value, -exponent_);
    }
    return values;
  }

  void release(std::initializer_list<View*> views) {
    for (View* const view : views) {
      if (*view) backend_.release(*view);
      *view = {};
    }
  }

  Backend& backend_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  const LargeControl& control_;
  LargeWatch watch_;
  ProgressTeller progress_;
  const WorkParts parts_;  // where the subspace is enough
  LargeOutcome outcome_;

  bool wide_ = false, vectors_ = false;
  int64_t m_ = 0, n_ = 0;                 // of the tall matrix
  int64_t k_ = 0, block_ = 0;             // triplets; columns of a block
  double unit_ = 0;                       // u of the operand's type
  double accepted_ = 0, target_ = 0;      // residuals, relative to s_1
  int32_t exponent_ = 0;                  // the operand is 2^exponent_ times that of the products
  double norm_ = 0;                       // of the latter
  int most_steps_ = 0, next_check_ = 2;   // steps
  int expected_steps_ = 0;                // for the progress alone
  int checked_ = 0;                       // step of the last check; 0: none
  double before_ = 0;                     // log of the residual over its limit there
  bool is_hopeless_ = false;              // that the subspace will do
  std::unique_ptr<TallOperand<E>> tall_;  // instead of a_, or null
  View a_;
  View v_, q_;            // V, n x (columns + b); Q, m x columns
  View r_, t_;            // R; T
  View work_m_, work_n_;  // m x b, n x b
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_LEADING_TRIPLETS_H_
