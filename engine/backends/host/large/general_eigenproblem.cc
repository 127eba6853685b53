#include "engine/backends/host/large/general_eigenproblem.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/algorithms/large/general_eigenpairs.h"
#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/algorithms/large/progress_teller.h"
#include "engine/backends/host/general/general_eigen.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/backends/host/shears/general_jacobi.h"

namespace svdserve::host {
namespace {

using large::LargeStop;
using Complex = std::complex<double>;
using ComplexView = large::LargeView<Complex>;

constexpr int64_t kResidualColumns = 256;  // at a time

// E: double or Complex, as the operand.
template <class E>
class GeneralEigenproblem {
 public:
  GeneralEigenproblem(const LargeThreads& threads, const LargePlan& plan, const LargeOperands& operands,
                      const LargeControl& control)
      : threads_(threads),
        plan_(plan),
        operands_(operands),
        watch_(control),
        progress_(watch_),
        n_(plan.problem.rows),
        vectors_problem_(large::general_basis_problem(plan)),
        backend_(threads),
        results_(threads),
        parts_(large::general_parts(plan, backend_.work_speeds())) {}

  // Throws LargeStop for everything but kOk.
  LargeOutcome run() {
    a_ = backend_.matrix(n_, n_);
    if (plan_.left_columns > 0) right_ = results_.matrix(n_, n_);
    if (plan_.right_rows > 0) left_ = results_.matrix(n_, n_);
    progress_.begin(parts_, large::kGeneralLoad);
    backend_.stage("load");
    load();
    const bool jacobi = plan_.options.method == Method::kJacobi;
    if (!jacobi || !by_jacobi()) by_qr(jacobi);
    outcome_.status = LargeStatus::kOk;
    outcome_.phases = backend_.phases();
    progress_.end();
    return outcome_;
  }

 private:
  void load() {
    const large::LoadReport report = backend_.load(operands_.matrix, plan_.problem, false, a_);
    if (!report.finite) throw large::entry_is_not_finite(report.row, report.col);
    int32_t largest = large::kZeroColumn;
    for (const large::ScaledNorm& norm : backend_.column_norms(a_, nullptr)) largest = std::max(largest, norm.exponent);
    if (largest == large::kZeroColumn) return;
    exponent_ = largest;
    large::multiply_by_power(backend_, a_, -exponent_);
  }

  // False: the results are not there, or miss their bound.
  bool by_jacobi() {
    progress_.begin(parts_, large::kGeneralSolve);
    backend_.stage("jacobi");
    ComplexView b;
    if constexpr (kIsReal) {
      b = results_.matrix(n_, n_);
      for (int64_t j = 0; j < n_; ++j) std::copy(a_.data + j * a_.ld, a_.data + j * a_.ld + n_, b.data + j * b.ld);
    } else {
      b = a_;
    }
    const int max_sweeps = plan_.options.max_sweeps > 0 ? plan_.options.max_sweeps : kDefaultLargeSweeps;
    GeneralJacobiOptions options{kIsReal,    plan_.options.strategy,   plan_.options.variant,
                                 max_sweeps, plan_.options.max_sweeps, large::unit_roundoff(plan_)};
    if (plan_.options.starting_vectors) {
      options.start = [this](ComplexView v) {
        return results_.load(operands_.start, vectors_problem_, false, v).finite;
      };
    }
    const GeneralJacobiReport report =
        general_jacobi(threads_, b, {values_, right_, left_}, options,
                       [this](const BlockShearReport& sweeps, double fraction) { tell_sweeps(sweeps, fraction); });
    if (kIsReal) results_.release(b);
    outcome_.warm_started = report.started;
    outcome_.sweeps = report.sweeps.sweeps;
    outcome_.rotations = report.sweeps.transforms;
    outcome_.proper_rotations = report.sweeps.proper_transforms;
    if (!report.good) return false;
    outcome_.method = Method::kJacobi;
    store();
    if (!right_ && !left_) return true;
    judge_stored();
    // A tenth of the bound is left for rounding errors of the residual.
    return outcome_.residual <= 0.9 * kLargestJacobiResidual * static_cast<double>(n_) * large::unit_roundoff(plan_);
  }

  void tell_sweeps(const BlockShearReport& sweeps, double fraction) {
    progress_.state.sweep = sweeps.sweeps;
    progress_.state.rotations = sweeps.transforms;
    progress_.state.proper_rotations = sweeps.proper_transforms;
    progress_.state.off_diagonal = sweeps.lower;
    progress_.at(fraction);
  }

  void by_qr(bool again) {
    if (again) {
      backend_.stage("load");
      load();
    }
    Balancing balancing;
    if (!decompose(&balancing)) {
      throw LargeStop{LargeStatus::kFault, "QR did not converge; scale the matrix, or send it in double precision"};
    }
    outcome_.method = Method::kQr;
    outcome_.residual = 0;
    store();
    const bool checked = balancing.scaled && (right_ || left_);
    if (checked || plan_.options.certificate) judge_stored();
    if (checked) repeat_unbalanced();
  }

  // Overwrites a_. False: QR did not converge.
  bool decompose(Balancing* balancing) {
    progress_.begin(LargeStage::kPrepare, parts_[large::kGeneralSolve].seconds,
                    large::seconds_from(parts_, large::kGeneralSolve));
    backend_.stage("eigenvectors");
    values_.resize(static_cast<size_t>(n_));
    return general_eigen<E>(
        threads_, a_, {values_, right_, left_}, [this](double fraction) { progress_.at(fraction); }, balancing);
  }

  void store() {
    progress_.begin(parts_, large::kGeneralFinish);
    backend_.stage("finish");
    large::store_general_values(values_, exponent_, plan_, operands_.values, outcome_);
    if (right_) results_.store(right_, false, operands_.left, vectors_problem_);
    if (left_) results_.store(left_, true, operands_.right, vectors_problem_);
  }

  // The residual of the results as they are stored, with 2^-exponent A for A.
  void judge_stored() {
    progress_.begin(parts_, large::kGeneralCertificate);
    backend_.stage("certificate");
    if (outcome_.out_of_range) {  // some of L is infinite
      outcome_.residual = std::numeric_limits<double>::infinity();
      return;
    }
    values_ = large::stored_general_values(plan_, operands_.values, exponent_);
    if (right_) (void)results_.load(operands_.left, vectors_problem_, false, right_);
    if (left_) (void)results_.load(operands_.right, vectors_problem_, true, left_);
    outcome_.residual = residual();
  }

  // Where the results of the balanced matrix miss the bound, those without scaling replace them if they are better.
  void repeat_unbalanced() {
    const double u = large::unit_roundoff(plan_);
    if (outcome_.residual <= 10 * static_cast<double>(n_) * u || outcome_.out_of_range) return;
    backend_.stage("load");
    load();
    Balancing none{.wanted = false};
    if (!decompose(&none)) return;
    backend_.stage("certificate");
    if (residual() >= outcome_.residual) return;
    store();
    judge_stored();
  }

  // The larger of |A V - V L|_F and |A^H W - W L^H|_F, as they are in memory, relative to |A|_F. Loads A.
  double residual() {
    load();
    const double size = std::sqrt(sum(backend_.column_products(a_, a_)));
    if (size == 0) return 0;
    const double of_right = right_ ? residual(large::Op::kNone, right_) : 0;
    return std::max(of_right, left_ ? residual(large::Op::kAdjoint, left_) : 0) / size;
  }

  // |op(A) X - X op(L)|_F, some columns at a time.
  double residual(large::Op op, ComplexView x) {
    double square = 0;
    for (int64_t first = 0; first < n_; first += kResidualColumns) {
      const int64_t columns = std::min(kResidualColumns, n_ - first);
      const large::LargeView<E> parts = backend_.matrix(n_, kParts * columns),
                                product = backend_.matrix(n_, kParts * columns);
      for (int64_t j = 0; j < columns; ++j) to_parts(x.data + (first + j) * x.ld, parts.columns(kParts * j, kParts));
      backend_.gemm(op, large::Op::kNone, 1, a_, parts, 0, product);
      for (int64_t j = 0; j < columns; ++j) {
        const Complex value = values_[static_cast<size_t>(first + j)];
        square += distance(product.columns(kParts * j, kParts), x.data + (first + j) * x.ld,
                           op == large::Op::kAdjoint ? std::conj(value) : value);
      }
      backend_.release(product);
      backend_.release(parts);
      threads_.check();
    }
    return std::sqrt(square);
  }

  static constexpr bool kIsReal = std::is_same_v<E, double>;
  // Columns of E that hold a complex one: the real and the imaginary parts.
  static constexpr int64_t kParts = kIsReal ? 2 : 1;

  void to_parts(const Complex* x, large::LargeView<E> parts) const {
    for (int64_t i = 0; i < n_; ++i) {
      if constexpr (kParts == 2) {
        parts.data[i] = x[i].real();
        parts.data[i + parts.ld] = x[i].imag();
      } else {
        parts.data[i] = x[i];
      }
    }
  }

  // |product - value x|^2
  double distance(large::LargeView<E> product, const Complex* x, Complex value) const {
    double square = 0;
    for (int64_t i = 0; i < n_; ++i) {
      if constexpr (kParts == 2) {
        square += std::norm(Complex(product.data[i], product.data[i + product.ld]) - value * x[i]);
      } else {
        square += std::norm(product.data[i] - value * x[i]);
      }
    }
    return square;
  }

  static double sum(const std::vector<double>& squares) { return std::accumulate(squares.begin(), squares.end(), 0.0); }

  const LargeThreads& threads_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  large::LargeWatch watch_;
  large::ProgressTeller progress_;
  LargeOutcome outcome_;
  const int64_t n_;
  const Problem vectors_problem_;
  HostLargeBackend<E> backend_;
  HostLargeBackend<Complex> results_;
  const large::WorkParts parts_;
  large::LargeView<E> a_;
  ComplexView right_, left_;
  std::vector<Complex> values_;
  int exponent_ = 0;  // A = 2^exponent_ a_
};

}  // namespace

LargeOutcome general_eigenproblem(const LargeThreads& threads, const LargePlan& plan, const LargeOperands& operands,
                                  const LargeControl& control) {
  return large::outcome_of([&] {
    return is_complex(plan.problem.dtype) ? GeneralEigenproblem<Complex>(threads, plan, operands, control).run()
                                          : GeneralEigenproblem<double>(threads, plan, operands, control).run();
  });
}

uint64_t general_eigenproblem_bytes(const LargePlan& plan, int threads) {
  const bool complex = is_complex(plan.problem.dtype), right = plan.left_columns > 0, left = plan.right_rows > 0;
  const auto n = static_cast<uint64_t>(plan.values);
  const uint64_t vectors = (right ? 1 : 0) + (left ? 1 : 0);
  const uint64_t element = complex ? sizeof(Complex) : sizeof(double);
  constexpr uint64_t kLists = 1 << 20;
  // Some columns of a residual: V or W, and the product.
  const uint64_t residual = 2 * n * std::min<uint64_t>(n, kResidualColumns) * sizeof(Complex);
  uint64_t solver = general_eigen_bytes(plan.values, complex, right, left, threads);
  if (plan.options.method == Method::kJacobi) {  // and QR where that misses its bound
    const uint64_t copy = complex ? 0 : n * n * sizeof(Complex);
    solver = std::max(solver, copy + general_jacobi_bytes(plan.values, threads));
  }
  return (element + vectors * sizeof(Complex)) * n * n + std::max(solver, vectors > 0 ? residual : 0) + kLists;
}

}  // namespace svdserve::host
