#include "engine/backends/host/large/general_eigenproblem.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/large/block_jacobi_sweeps.h"
#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/backends/host/general/general_eigen.h"
#include "engine/backends/host/large/host_large_backend.h"

namespace svdserve::host {
namespace {

using large::LargeStop;
using Complex = std::complex<double>;
using ComplexView = large::LargeView<Complex>;

// x 2^exponent, without an overflow on the way.
Complex times_power(Complex x, int exponent) {
  return {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
}

template <class T>
bool store_values(const std::vector<Complex>& values, int exponent, void* to) {
  bool out_of_range = false;
  auto* const numbers = static_cast<T*>(to);
  for (size_t j = 0; j < values.size(); ++j) {
    const Complex value = times_power(values[j], exponent);
    const T parts[2] = {static_cast<T>(value.real()) + T(0), static_cast<T>(value.imag()) + T(0)};  // no -0
    std::copy(parts, parts + 2, numbers + 2 * j);
    out_of_range |= std::isinf(parts[0]) || std::isinf(parts[1]);
  }
  return out_of_range;
}

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
        backend_(threads),
        results_(threads) {
    vectors_problem_.rows = vectors_problem_.cols = n_;
    vectors_problem_.dtype = plan.vector_type();
    vectors_problem_.order = plan.problem.order;
  }

  // Throws LargeStop for everything but kOk.
  LargeOutcome run() {
    load();
    decompose();
    store();
    if (plan_.options.certificate) certify();
    outcome_.status = LargeStatus::kOk;
    outcome_.method = Method::kQr;
    outcome_.phases = backend_.phases();
    progress_.at(LargeStage::kFinish, 1);
    return outcome_;
  }

 private:
  void load() {
    progress_.at(LargeStage::kPrepare, 0);
    backend_.stage("load");
    a_ = backend_.matrix(n_, n_);
    const large::LoadReport report = backend_.load(operands_.matrix, plan_.problem, false, a_);
    if (!report.finite) throw large::entry_is_not_finite(report.row, report.col);
    int32_t largest = large::kZeroColumn;
    for (const large::ScaledNorm& norm : backend_.column_norms(a_, nullptr)) largest = std::max(largest, norm.exponent);
    if (largest == large::kZeroColumn) return;
    exponent_ = largest;
    large::multiply_by_power(backend_, a_, -exponent_);
  }

  void decompose() {
    progress_.at(LargeStage::kPrepare, 0.02);
    backend_.stage("eigenvectors");
    if (plan_.left_columns > 0) right_ = results_.matrix(n_, n_);
    if (plan_.right_rows > 0) left_ = results_.matrix(n_, n_);
    large::LargeView<E> work = a_;
    if (plan_.options.certificate) {
      work = backend_.matrix(n_, n_);
      backend_.copy(a_, work);
    }
    values_.resize(static_cast<size_t>(n_));
    const auto tell = [this](double fraction) { progress_.at(LargeStage::kPrepare, 0.02 + 0.9 * fraction); };
    if (!general_eigen<E>(threads_, work, {values_, right_, left_}, tell)) {
      throw LargeStop{LargeStatus::kFault, "QR did not converge; scale the matrix, or send it in double precision"};
    }
    backend_.release(work);
  }

  void store() {
    progress_.at(LargeStage::kFinish, 0.93);
    backend_.stage("finish");
    outcome_.rank = std::count_if(values_.begin(), values_.end(), [](Complex value) { return value != Complex(0); });
    const bool single = value_bytes(plan_.problem.dtype) == sizeof(float);
    outcome_.out_of_range = single ? store_values<float>(values_, exponent_, operands_.values)
                                   : store_values<double>(values_, exponent_, operands_.values);
    if (right_) results_.store(right_, false, operands_.left, vectors_problem_);
    if (left_) results_.store(left_, true, operands_.right, vectors_problem_);
  }

  // Judges the results as they are stored, with 2^-exponent A for A.
  void certify() {
    progress_.at(LargeStage::kFinish, 0.95);
    backend_.stage("certificate");
    if (outcome_.out_of_range) {  // some of L is infinite
      outcome_.residual = std::numeric_limits<double>::infinity();
      return;
    }
    const bool single = value_bytes(plan_.problem.dtype) == sizeof(float);
    for (size_t j = 0; j < values_.size(); ++j) {
      const Complex stored = single ? Complex(static_cast<const std::complex<float>*>(operands_.values)[j])
                                    : static_cast<const Complex*>(operands_.values)[j];
      values_[j] = times_power(stored, -exponent_);
    }
    const ComplexView a = results_.matrix(n_, n_);
    for (int64_t j = 0; j < n_; ++j) std::copy(a_.data + j * a_.ld, a_.data + j * a_.ld + n_, a.data + j * a.ld);
    const double size = norm(a);
    if (size == 0) return;
    // V from its array; W from that of W^H, for A^H.
    outcome_.residual = residual(a, large::Op::kNone, right_, operands_.left, false) / size;
    if (left_) {
      const double of_left = residual(a, large::Op::kAdjoint, left_, operands_.right, true) / size;
      outcome_.residual = std::max(outcome_.residual, of_left);
    }
  }

  // |op(A) X - X op(L)|_F, X as stored.
  double residual(ComplexView a, large::Op op, ComplexView x, const void* stored, bool adjoint) {
    (void)results_.load(stored, vectors_problem_, adjoint, x);
    const ComplexView product = results_.matrix(n_, n_);
    results_.gemm(op, large::Op::kNone, 1, a, x, 0, product);
    for (int64_t j = 0; j < n_; ++j) {
      const Complex value = adjoint ? std::conj(values_[static_cast<size_t>(j)]) : values_[static_cast<size_t>(j)];
      for (int64_t i = 0; i < n_; ++i) product.data[i + j * product.ld] -= value * x.data[i + j * x.ld];
    }
    const double found = norm(product);
    results_.release(product);
    return found;
  }

  double norm(ComplexView x) {
    double sum = 0;
    for (const double square : results_.column_products(x, x)) sum += square;
    return std::sqrt(sum);
  }

  const LargeThreads& threads_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  large::LargeWatch watch_;
  large::ProgressTeller progress_;
  LargeOutcome outcome_;
  const int64_t n_;
  Problem vectors_problem_;
  HostLargeBackend<E> backend_;
  HostLargeBackend<Complex> results_;
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
  const uint64_t vectors = (right ? 1 : 0) + (left ? 1 : 0), copies = plan.options.certificate ? 2 : 1;
  const uint64_t element = complex ? sizeof(Complex) : sizeof(double);
  constexpr uint64_t kLists = 1 << 20;
  // The certificate has A once more, and a product.
  const uint64_t certificate = plan.options.certificate ? 2 * n * n * sizeof(Complex) : 0;
  const uint64_t solver = general_eigen_bytes(plan.values, complex, right, left, threads);
  return (copies * element + vectors * sizeof(Complex)) * n * n + std::max(solver, certificate) + kLists;
}

}  // namespace svdserve::host
