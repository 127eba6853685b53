#include "engine/backends/cuda/large/general_eigenproblem.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/algorithms/large/general_eigenpairs.h"
#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/algorithms/large/progress_teller.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/eigenpair_kernels.h"
#include "engine/backends/cuda/large/geev.h"
#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/large/simultaneous_steps.h"

namespace svdserve::cuda {
namespace {

using large::LargeStop;
using Values = std::vector<std::complex<double>>;

constexpr int kBalanceRounds = 10;
// In units of n u |A|_F. The contract's 10, less what rounding the results adds.
constexpr double kBound = 8;
// Xgeev's share of the time, for the progress; Newton steps and left vectors have the rest.
constexpr double kGeevShare = 0.85;

Values conjugates(Values values) {
  for (auto& x : values) x = std::conj(x);
  return values;
}

class GeneralEigenproblem {
 public:
  GeneralEigenproblem(LargeLane& lane, DeviceArena& arena, const LargePlan& plan, const LargeOperands& operands,
                      const LargeControl& control)
      : lane_(lane),
        arena_(arena),
        plan_(plan),
        operands_(operands),
        watch_(control),
        progress_(watch_),
        n_(plan.problem.rows),
        real_(!is_complex(plan.problem.dtype)),
        backend_(lane, arena, watch_),
        parts_(large::general_parts(plan, backend_.work_speeds())) {}

  // Throws LargeStop for everything but kOk.
  LargeOutcome run() {
    progress_.begin(parts_, large::kGeneralLoad);
    a_ = backend_.matrix(n_, n_);
    const bool jacobi = plan_.options.method == Method::kJacobi;
    if (wants_right() || jacobi) v_ = backend_.matrix(n_, n_);
    if (plan_.right_rows > 0) w_ = backend_.matrix(n_, n_);
    numbers_ = take_piece<Complex>(arena_, n_);
    kinds_ = take_piece<ColumnKind>(arena_, n_);
    pivots_ = take_piece<int64_t>(arena_, n_);
    d_ = take_piece<int>(arena_, n_);
    load();
    const bool balanced = balance();
    if (!jacobi || !by_jacobi(balanced)) by_qr(balanced);
    store();
    if (plan_.options.certificate) judge_stored();
    outcome_.status = LargeStatus::kOk;
    outcome_.phases = backend_.phases();
    progress_.end();
    return outcome_;
  }

 private:
  bool wants_right() const { return plan_.left_columns > 0; }
  [[noreturn]] static void refuse(const char* what) { throw LargeStop{LargeStatus::kFault, what}; }
  [[noreturn]] static void refuse_left() {
    refuse(
        "the right eigenvectors are so nearly dependent that they do not give the left ones; ask for right vectors "
        "alone, or for a CPU");
  }

  // --- the operand --------------------------------------------------------------------------------------------------

  void load() {
    backend_.stage("load");
    real_ ? load_real() : load_scaled(backend_, a_);
  }

  // a := 2^-exponent_ A, whose largest column has a norm in [1/2, 1).
  template <class Backend>
  void load_scaled(Backend& backend, LargeView<typename Backend::Element> a) {
    const LoadReport report = backend.load(operands_.matrix, plan_.problem, false, a);
    if (!report.finite) throw large::entry_is_not_finite(report.row, report.col);
    int32_t largest = kZeroColumn;
    for (const ScaledNorm& norm : backend.column_norms(a, nullptr)) largest = std::max(largest, norm.exponent);
    if (largest != kZeroColumn) {
      exponent_ = largest;
      large::multiply_by_power(backend, a, -exponent_);
    }
    set_norm(backend, a);
  }
  template <class Backend>
  void set_norm(Backend& backend, LargeView<typename Backend::Element> a) {
    const auto squares = backend.column_products(a, a);
    norm_ = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  }
  void load_real() {
    CudaLargeBackend<double> real(lane_, arena_, watch_);
    const LargeView<double> a = real.matrix(n_, n_);
    load_scaled(real, a);
    each(n_, WidenReal{a, a_});
    real.release(a);
  }

  // a_ := D^-1 a_ D. False: nothing was to be scaled.
  bool balance() {
    backend_.stage("balance");
    auto* const memory = take_piece<int>(arena_, 3 * n_ + 1);
    int *const columns = memory, *const rows = columns + n_, *const factors = rows + n_, *const changes = factors + n_;
    fill(rows, n_, kNoExponent);
    fill(d_, n_, 0);
    bool any = false;
    for (int round = 0; round < kBalanceRounds; ++round) {
      fill(changes, 1, 0);
      line_exponents_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(a_, columns, rows);
      require(cudaGetLastError(), "launching a kernel");
      each(1, BalanceFactors{columns, rows, factors, d_, changes});
      int changed = 0;
      download(lane_, &changed, changes, 1);
      if (changed == 0) break;
      any = true;
      each(n_, ApplyFactors{a_, factors});
    }
    arena_.give_back(memory);
    if (any) set_norm(backend_, a_);
    return any;
  }
  void fill(int* to, int64_t count, int value) {
    const std::vector<int> values(static_cast<size_t>(count), value);
    require(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice, lane_.stream),
            "uploading");
    require(cudaStreamSynchronize(lane_.stream), "uploading");
  }

  // V := D V, W := D^-1 W, and a_ is A. False: a residual misses its bound for A, which balancing has caused.
  bool hold_unbalanced() {
    unbalance(v_, 1);
    if (w_) unbalance(w_, -1);
    load();
    multiply(Op::kNone, v_);
    bool hold = residual(v_, values_) <= bound();
    if (w_) {
      multiply(Op::kAdjoint, w_);
      hold = residual(w_, conjugates(values_)) <= bound() && hold;
    }
    return hold;
  }
  void unbalance(ComplexView x, int sign) {
    unbalance_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(x, d_, sign);
    require(cudaGetLastError(), "launching a kernel");
    finish(x);
  }

  // --- JACOBI -------------------------------------------------------------------------------------------------------

  // False: A is not nearly diagonal in a basis that is known, or the results miss their bounds. Where a_ was balanced
  // and V misses its bound for A, a_ is A.
  bool by_jacobi(bool balanced) {
    progress_.begin(parts_, large::kGeneralSolve);
    backend_.stage("jacobi");
    make_products();
    if (!step_simultaneously()) return false;
    real_ ? pair_columns() : set_kinds(std::vector<ColumnKind>(static_cast<size_t>(n_), ColumnKind::kComplex));
    finish(v_);
    multiply(Op::kNone, v_);
    values_ = rayleigh_quotients(v_);
    residual_ = residual(v_, values_);
    if (!meets_bounds() || !pairs_hold()) return false;
    if (w_ && !find_left()) return false;
    outcome_.method = Method::kJacobi;
    return !balanced || !wants_right() || hold_unbalanced();
  }

  bool step_simultaneously() {
    set_kinds(std::vector<ColumnKind>(static_cast<size_t>(n_), ColumnKind::kComplex));
    SimultaneousMatrices matrices{a_, v_, product_, next_, factors_, pivots_};
    SimultaneousSteps steps(lane_, arena_, backend_, matrices);
    outcome_.warm_started = plan_.options.starting_vectors;
    if (outcome_.warm_started) {
      const Problem basis = large::general_basis_problem(plan_);
      if (!backend_.load(operands_.start, basis, false, v_).finite) return false;
      unbalance(v_, -1);
    } else if (!steps.start_nearly_normal()) {
      return false;
    }
    const auto limits = large::simultaneous_limits(n_, large::unit_roundoff(plan_), norm_, plan_.options.max_sweeps,
                                                   !outcome_.warm_started);
    const auto heard = [this](const large::SimultaneousReport& now) { hear(now); };
    const auto done = large::SimultaneousJacobi<SimultaneousSteps>(steps, limits, heard).run();
    v_ = matrices.v;
    next_ = matrices.next;
    values_ = steps.values();
    outcome_.sweeps = done.steps;
    outcome_.rotations = outcome_.proper_rotations = done.clusters;
    return done.converged;
  }
  void hear(const large::SimultaneousReport& now) {
    progress_.state.sweep = now.steps;
    progress_.state.rotations = progress_.state.proper_rotations = now.clusters;
    progress_.state.off_diagonal = norm_ > 0 ? now.residual / norm_ : 0;
    progress_.at(1 - std::exp2(-now.steps));
  }

  void set_kinds(const std::vector<ColumnKind>& kinds) {
    require(cudaMemcpyAsync(kinds_, kinds.data(), kinds.size(), cudaMemcpyHostToDevice, lane_.stream), "uploading");
    require(cudaStreamSynchronize(lane_.stream), "uploading");
  }

  // Values that are nearest to each other's conjugates become neighbours, the one with a positive imaginary part first.
  // Others are real.
  void pair_columns() {
    const double tolerance = static_cast<double>(n_) * large::unit_roundoff(plan_) * norm_;
    std::vector<int64_t> order;
    std::vector<ColumnKind> kinds;
    std::vector<char> placed(values_.size(), 0);
    for (size_t j = 0; j < values_.size(); ++j) {
      if (placed[j] != 0) continue;
      const size_t other = nearest_conjugate(j, placed);
      const double size = std::abs(values_[j].imag());
      const bool pair = size > tolerance && other < values_.size() && values_[j].imag() * values_[other].imag() < 0 &&
                        std::abs(values_[other] - std::conj(values_[j])) <= size;
      if (pair) {
        const bool swapped = values_[j].imag() < 0;
        order.insert(order.end(),
                     {static_cast<int64_t>(swapped ? other : j), static_cast<int64_t>(swapped ? j : other)});
        kinds.insert(kinds.end(), {ColumnKind::kFirst, ColumnKind::kSecond});
        placed[other] = 1;
      } else {
        order.push_back(static_cast<int64_t>(j));
        kinds.push_back(ColumnKind::kReal);
      }
    }
    backend_.permute_columns(v_, order);
    set_kinds(kinds);
  }
  // Behind j, of those that have no place yet; n where there is none.
  size_t nearest_conjugate(size_t j, const std::vector<char>& placed) const {
    size_t nearest = values_.size();
    for (size_t i = j + 1; i < values_.size(); ++i) {
      if (placed[i] != 0) continue;
      const auto distance = [&](size_t x) { return std::abs(values_[x] - std::conj(values_[j])); };
      if (nearest == values_.size() || distance(i) < distance(nearest)) nearest = i;
    }
    return nearest;
  }

  // --- V by QR ------------------------------------------------------------------------------------------------------

  void by_qr(bool balanced) {
    outcome_.method = Method::kQr;
    outcome_.warm_started = false;
    give_back_products();
    if (!wants_right() && v_) {
      backend_.release(v_);
      v_ = {};
    }
    if (v_) {
      find_vectors();
      if (balanced && !hold_unbalanced()) find_vectors();
    } else if (!(large::is_single(plan_) && start(true)) && !start(false)) {
      refuse("QR of cuSOLVER did not converge; ask for a CPU");
    }
  }

  void make_products() {
    for (ComplexView* const view : {&product_, &next_, &factors_}) {
      if (!*view) *view = backend_.matrix(n_, n_);
    }
  }

  void find_vectors() {
    find_right();
    if (w_ && !find_left()) refuse_left();
  }

  void find_right() {
    if (start(true) && refine(large::is_single(plan_) ? 1 : 2)) return;
    if (!start(false)) refuse("QR of cuSOLVER did not converge; ask for a CPU");
    product_ = backend_.matrix(n_, n_);
    finish(v_);
    multiply(Op::kNone, v_);
    residual_ = residual(v_, values_);
    if (!meets_bounds()) refuse("the eigenvectors of cuSOLVER miss the bound of the residual; ask for a CPU");
  }

  // values_, and v_ where it is wanted, by Xgeev. False: it did not converge.
  bool start(bool single) {
    give_back_products();
    progress_.begin(LargeStage::kPrepare, parts_[large::kGeneralSolve].seconds,
                    large::seconds_from(parts_, large::kGeneralSolve));
    backend_.stage("eigenvectors");
    values_ = geev(lane_, arena_, {a_, real_, single, v_, kinds_});
    progress_.at(kGeevShare);
    return !values_.empty();
  }

  // At most so many Newton steps. True: v_ and values_ meet the bounds.
  bool refine(int steps) {
    backend_.stage("refine");
    make_products();
    finish(v_);
    multiply(Op::kNone, v_);
    values_ = rayleigh_quotients(v_);
    residual_ = residual(v_, values_);
    for (int step = 0; step < steps; ++step) {
      progress_.at(kGeevShare + 0.05 * (step + 1));
      if (!newton_step(v_)) break;
      multiply(Op::kNone, next_);
      const Values better = rayleigh_quotients(next_);
      const double smaller = residual(next_, better);
      if (!(smaller < residual_)) break;
      std::swap(v_, next_);
      values_ = better;
      residual_ = smaller;
    }
    return meets_bounds() && pairs_hold();
  }

  // next_ := x after a step, [in] product_ = A x or A^H x. False: x is singular.
  bool newton_step(ComplexView x) {
    backend_.copy(x, factors_);
    if (!backend_.lu(factors_, pivots_)) return false;
    backend_.solve_lu(Op::kNone, factors_, pivots_, product_);
    each(1, CopyDiagonal{product_, numbers_});
    each(n_, ShearFactors{product_, numbers_, large::kLargestShear});
    backend_.gemm(Op::kNone, Op::kNone, 1, x, product_, 0, next_);
    finish(next_);
    return true;
  }

  bool meets_bounds() {
    each(1, CopyDiagonal{a_, numbers_});
    Values diagonal(static_cast<size_t>(n_));
    download(lane_, reinterpret_cast<Complex*>(diagonal.data()), numbers_, n_);
    const std::complex<double> zero = 0;
    const double trace_error = std::abs(std::accumulate(values_.begin(), values_.end(), zero) -
                                        std::accumulate(diagonal.begin(), diagonal.end(), zero));
    return residual_ <= bound() && trace_error <= bound();
  }
  double bound() const { return kBound * static_cast<double>(n_) * large::unit_roundoff(plan_) * norm_; }

  // The first of a pair of a real matrix still has a positive imaginary part.
  bool pairs_hold() {
    if (!real_) return true;
    std::vector<ColumnKind> kinds(static_cast<size_t>(n_));
    download(lane_, kinds.data(), kinds_, n_);
    for (size_t j = 0; j < kinds.size(); ++j) {
      if (kinds[j] == ColumnKind::kFirst && !(values_[j].imag() > 0)) return false;
    }
    return true;
  }

  // --- W ------------------------------------------------------------------------------------------------------------

  // False: V is so nearly dependent that it does not give them.
  bool find_left() {
    progress_.at(0.95);
    backend_.stage("left_vectors");
    make_products();
    backend_.copy(v_, factors_);
    if (!backend_.lu(factors_, pivots_)) return false;
    backend_.set_identity(w_);
    backend_.solve_lu(Op::kAdjoint, factors_, pivots_, w_);
    finish(w_);
    const Values values = conjugates(values_);
    multiply(Op::kAdjoint, w_);
    if (residual(w_, values) <= bound()) return true;
    if (!newton_step(w_)) return false;
    std::swap(w_, next_);
    multiply(Op::kAdjoint, w_);
    return residual(w_, values) <= bound();
  }

  // --- results ------------------------------------------------------------------------------------------------------

  void store() {
    progress_.begin(parts_, large::kGeneralFinish);
    backend_.stage("finish");
    const Problem basis = large::general_basis_problem(plan_);
    large::store_general_values(values_, exponent_, plan_, operands_.values, outcome_);
    if (wants_right()) backend_.store(v_, false, operands_.left, basis);
    if (w_) backend_.store(w_, true, operands_.right, basis);
  }

  // The residual of the results as they are stored, relative to |A|_F.
  void judge_stored() {
    progress_.begin(parts_, large::kGeneralCertificate);
    backend_.stage("certificate");
    if (outcome_.out_of_range) {  // some of L is infinite
      outcome_.residual = std::numeric_limits<double>::infinity();
      return;
    }
    if (norm_ == 0) return;
    const Problem basis = large::general_basis_problem(plan_);
    const Values values = large::stored_general_values(plan_, operands_.values, exponent_);
    (void)backend_.load(operands_.left, basis, false, v_);
    multiply(Op::kNone, v_);
    outcome_.residual = residual(v_, values) / norm_;
    if (!w_) return;
    (void)backend_.load(operands_.right, basis, true, w_);
    multiply(Op::kAdjoint, w_);
    outcome_.residual = std::max(outcome_.residual, residual(w_, conjugates(values)) / norm_);
  }

  // --- columns ------------------------------------------------------------------------------------------------------

  void finish(ComplexView x) {
    unit_columns_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(x, kinds_);
    require(cudaGetLastError(), "launching a kernel");
  }

  // product_ := op(A) x
  void multiply(Op op, ComplexView x) { backend_.gemm(op, Op::kNone, 1, a_, x, 0, product_); }

  // x_j^H A x_j of unit columns, exact pairs of a real matrix. [in] product_ = A x
  Values rayleigh_quotients(ComplexView x) {
    rayleigh_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(x, product_, kinds_, numbers_);
    require(cudaGetLastError(), "launching a kernel");
    Values values(static_cast<size_t>(n_));
    download(lane_, reinterpret_cast<Complex*>(values.data()), numbers_, n_);
    return values;
  }

  // |op(A) x - x L|_F. [in] product_ = op(A) x
  double residual(ComplexView x, const Values& values) {
    require(
        cudaMemcpyAsync(numbers_, values.data(), values.size() * sizeof(Complex), cudaMemcpyHostToDevice, lane_.stream),
        "uploading");
    auto* const squares = take_piece<double>(arena_, n_);
    residual_kernel<<<static_cast<unsigned>(n_), kColumnThreads, 0, lane_.stream>>>(x, product_, numbers_, squares);
    require(cudaGetLastError(), "launching a kernel");
    std::vector<double> host(static_cast<size_t>(n_));
    download(lane_, host.data(), squares, n_);
    arena_.give_back(squares);
    return std::sqrt(std::accumulate(host.begin(), host.end(), 0.0));
  }

  template <class F>
  void each(int64_t cols, F f) {
    const int64_t most = int64_t{16} * lane_.limits.multiprocessors;
    const auto grid = static_cast<unsigned>(std::min(most, (n_ * cols + 255) / 256));
    entries_kernel<<<grid, 256, 0, lane_.stream>>>(n_, cols, f);
    require(cudaGetLastError(), "launching a kernel");
  }

  void give_back_products() {
    for (ComplexView* const view : {&product_, &next_, &factors_}) {
      if (*view) backend_.release(*view);
      *view = {};
    }
  }

  LargeLane& lane_;
  DeviceArena& arena_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  large::LargeWatch watch_;
  large::ProgressTeller progress_;
  LargeOutcome outcome_;
  const int64_t n_;
  const bool real_;
  CudaLargeBackend<Complex> backend_;
  const large::WorkParts parts_;
  ComplexView a_, v_, w_;
  ComplexView product_, next_, factors_;  // of refine() and find_left()
  int64_t* pivots_ = nullptr;
  int* d_ = nullptr;            // n: the exponents of D
  Complex* numbers_ = nullptr;  // n: values, or a diagonal
  ColumnKind* kinds_ = nullptr;
  Values values_;
  double norm_ = 0;      // |a_|_F
  double residual_ = 0;  // of v_ and values_
  int exponent_ = 0;     // A = 2^exponent_ a_
};

}  // namespace

LargeOutcome general_eigenproblem(LargeLane& lane, DeviceArena& arena, const LargePlan& plan,
                                  const LargeOperands& operands, const LargeControl& control) {
  return large::outcome_of([&] { return GeneralEigenproblem(lane, arena, plan, operands, control).run(); });
}

// Matrices: A, V, a product, the next V and factors, or A, V and three for Xgeev; W beside them. Values alone: A, a copy,
// and Xgeev's own; JACOBI has a V. JACOBI without starting vectors may begin with an eigenbasis, which takes two more.
uint64_t general_eigenproblem_device_bytes(const LargePlan& plan) {
  const int64_t n = plan.values;
  const auto matrix = static_cast<uint64_t>(CudaLargeBackend<Complex>::leading_dimension(n) * n) * sizeof(Complex);
  const bool has_v = plan.left_columns > 0 || plan.options.method == Method::kJacobi;
  const bool has_basis = plan.options.method == Method::kJacobi && !plan.options.starting_vectors;
  const uint64_t matrices = (plan.right_rows > 0 ? 6 : has_v ? 5 : 3) + (has_basis ? 2 : 0);
  return matrices * matrix + static_cast<uint64_t>(n) * 4096 + 2 * kTransferBytes + (uint64_t{64} << 20);
}

uint64_t general_eigenproblem_host_bytes(const LargePlan& plan) {
  const auto n = static_cast<uint64_t>(plan.values);
  const uint64_t element = is_complex(plan.problem.dtype) ? sizeof(Complex) : sizeof(double);
  return (plan.left_columns > 0 ? 27 : 17) * n * n / 10 * element + n * 4096 + (uint64_t{1} << 20);
}

}  // namespace svdserve::cuda
