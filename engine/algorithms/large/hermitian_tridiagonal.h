// Method TRIDIAGONAL: eigenvalues and eigenvectors of one large Hermitian matrix by the eigensolver of the back end. The
// driver of all back ends.
//
//   M = U L U^H, n x n Hermitian, by one of its triangles; U unitary, L ascending
// Method:
//   1. M is completed from its triangle and scaled by a power of two.
//   2. M = V D V^H by the back end's eigenbasis(): reflectors to tridiagonal form, divide and conquer, and back. f32 and
//      c64 need single precision alone (decisions/0020-single-precision-where-it-is-enough.md). Where that does not
//      converge, M with its rows and columns in reverse is tried, which other reflectors reduce.
//   3. lambda_j = v_j^H M v_j / v_j^H v_j: a Rayleigh quotient's error is the square of its vector's, beside rounding.
// Eigenvalues alone cost as much: their vectors are made and thrown away.
// Accuracy: |lambda - exact| <= 10 n u |M|_2, |M U - U L|_F <= 10 n u |M|_F, |I - U^H U|_F <= 10 n u. That is absolute:
// an eigenvalue below u |M|_2 need not have a digit. hermitian_factored.h is about those that have.
// Ends without results (kFault) where neither attempt converges, which is known of no finite matrix.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195 (divide and conquer); Parlett, The Symmetric Eigenvalue Problem (1998),
// sections 4.5 (Rayleigh quotients) and 7 (tridiagonal form).
// Cost: up to 14/3 n^3 multiplications and additions for V, and n^3 for the quotients (complex: four times).
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_TRIDIAGONAL_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_TRIDIAGONAL_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/algorithms/large/hermitian_eigenpairs.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/predicted_work.h"
#include "engine/algorithms/large/progress_teller.h"

namespace svdserve::large {

template <HermitianBackend Backend>
class HermitianTridiagonal {
 public:
  using View = LargeView<typename Backend::Element>;

  // All arguments must outlive the object. run() may be called once.
  HermitianTridiagonal(Backend& backend, const LargePlan& plan, const LargeOperands& operands,
                       const LargeControl& control)
      : backend_(backend),
        plan_(plan),
        operands_(operands),
        watch_(control),
        progress_(watch_),
        parts_(tridiagonal_parts(plan, backend.work_speeds())),
        n_(plan.problem.rows) {}

  // Throws LargeStop for everything but kOk.
  LargeOutcome run() {
    load();
    make_basis();
    finish();
    outcome_.status = LargeStatus::kOk;
    outcome_.method = Method::kTridiagonal;
    outcome_.phases = backend_.phases();
    progress_.end();
    return outcome_;
  }

 private:
  // Step 1.
  void load() {
    progress_.begin(parts_, kTridiagonalLoad);
    backend_.stage("load");
    m_ = backend_.matrix(n_, n_);
    exponent_ = load_hermitian(backend_, plan_, operands_.matrix, m_);
  }

  // Step 2. Leaves V in v_; work_ is for what comes next.
  void make_basis() {
    progress_.begin(parts_, kTridiagonalBasis);
    backend_.stage("eigenvectors");
    v_ = backend_.matrix(n_, n_);
    work_ = backend_.matrix(n_, n_);
    backend_.copy(m_, work_);
    const Precision precision = precision_of_results(plan_.problem.dtype);
    if (backend_.eigenbasis(work_, v_, precision, progress_.between(0, 1))) return;
    progress_.begin(parts_, kTridiagonalBasis);
    std::vector<int64_t> reverse(static_cast<size_t>(n_));
    std::iota(reverse.rbegin(), reverse.rend(), int64_t{0});
    backend_.copy(m_, work_);
    backend_.permute_rows(work_, reverse);
    backend_.permute_columns(work_, reverse);
    if (!backend_.eigenbasis(work_, v_, precision, progress_.between(0, 1))) {
      throw LargeStop{LargeStatus::kFault, "the eigensolver did not converge; ask for FACTORED, which has none"};
    }
    backend_.permute_rows(v_, reverse);
  }

  // Step 3, and what is stored.
  void finish() {
    progress_.begin(parts_, kTridiagonalFinish);
    backend_.stage("finish");
    backend_.gemm(Op::kNone, Op::kNone, 1.0, m_, v_, 0.0, work_);
    const std::vector<double> products = backend_.column_products(v_, work_);
    const std::vector<double> squares = backend_.column_products(v_, v_);
    backend_.release(work_);
    std::vector<Eigenvalue> sorted;
    sorted.reserve(static_cast<size_t>(n_));
    // V has them descending.
    for (int64_t j = n_ - 1; j >= 0; --j) {
      const auto i = static_cast<size_t>(j);
      sorted.push_back(Eigenvalue::of(products[i] / squares[i], exponent_, j));
    }
    std::stable_sort(sorted.begin(), sorted.end());
    store_eigenvalues(sorted, plan_, operands_, outcome_);
    if (plan_.left_columns > 0) store_eigenvectors(backend_, sorted, plan_, operands_, v_);
    backend_.release(v_);
    if (!plan_.options.certificate) return;
    progress_.begin(parts_, kTridiagonalCertificate);
    backend_.stage("certificate");
    certify_eigenpairs(backend_, plan_, operands_, m_, exponent_, outcome_);
  }

  Backend& backend_;
  const LargePlan& plan_;
  const LargeOperands& operands_;
  LargeWatch watch_;
  ProgressTeller progress_;
  const WorkParts parts_;
  LargeOutcome outcome_;
  const int64_t n_;
  View m_, v_, work_;
  int exponent_ = 0;  // M = 2^exponent_ m_
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_TRIDIAGONAL_H_
