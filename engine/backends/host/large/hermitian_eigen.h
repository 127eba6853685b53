// Method FACTORED of large Hermitian eigenproblems, by factorization and hyperbolic Jacobi: small eigenvalues keep their
// digits. JACOBI is the same, with an ordinary SVD that never starts warm.
//
//   M = G J G^H,   G = U S V^H with V^H J V = J   =>   M = U (S J S) U^H,   lambda_j = J_j s_j^2
// Steps:
//   1. factor:   M = G J G^H by symmetric indefinite factorization (dense/indefinite_factor.h). G and J that are given
//                take its place, and M is never formed.
//   2. svd:      the hyperbolic SVD of G. A definite M has J = I or -I, and G an ordinary SVD, which may start warm.
//   3. finish:   lambda ascending, with exact zeros for what the rank lacks, and U completed to a basis.
// Step 2 runs on any LargeEngine, the others here on the host.
// Source: Novakovic and Singer, BIT 51 (2011) 1009-1030, section 2; Veselic, Numer. Math. 64 (1993) 241-269.
// Accuracy: |lambda - exact| <= 10 max(n, 8) kappa u |lambda| for the eigenvalues of G J G^H, kappa the condition
// number of G with unit columns; |M U - U L|_F <= 10 n u |M|_F. For the eigenvalues of M itself the first holds where
// M = D K D with D diagonal and K well-conditioned: Slapnicar, Linear Algebra Appl. 272 (1998) 227-275.
// Range: entries of M below 2^-1022 times the largest are zero.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HERMITIAN_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HERMITIAN_EIGEN_H_

#include "engine/large_engine.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve::host {

// Whether a plan is computed here.
inline bool is_factored(const LargePlan& plan) {
  return is_eigenproblem(plan.options.kind) && plan.options.method != Method::kTridiagonal;
}

// Thread-safe: calls at once share the arena.
class HermitianEigen {
 public:
  // `svd` computes step 2 and outlives this; so does `arena`, which has `threads` threads.
  HermitianEigen(const LargeEngine& svd, oneapi::tbb::task_arena* arena, int threads)
      : svd_(svd), arena_(arena), threads_(threads) {}

  // As LargeEngine's, of plans with is_factored().
  LargeWorkspace memory(const LargePlan& plan) const;
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const;

 private:
  const LargeEngine& svd_;
  oneapi::tbb::task_arena* const arena_;
  const int threads_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HERMITIAN_EIGEN_H_
