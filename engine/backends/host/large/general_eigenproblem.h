// Eigenvalues and eigenvectors of one large matrix that need not be Hermitian, on the processor.
//
//   A V = V L and W^H A = L W^H, A n x n; L diagonal, columns of V and W of norm 1
// Method QR:
//   1. A is scaled by a power of two, so that nothing overflows on the way.
//   2. Balancing, Hessenberg form, Schur form, the vectors of its triangle: general/general_eigen.h.
//   3. Eigenvalues are scaled back, and results rounded once.
//   4. Where balancing scaled A, the residual is computed. Above the bound below, 2. is repeated without scaling, and the
//      better results stay. Balancing over hundreds of decades hides components from the norm (Watkins, Electron. Trans.
//      Numer. Anal. 23 (2006) 1-4). Eigenvalues without vectors stay those of the balanced matrix.
// All is computed in double precision. Results are complex; those of a real matrix are exact conjugate pairs.
// Certificate: |A V - V L|_F / |A|_F of what is stored, or |W^H A - L W^H|_F / |A|_F where that is larger. V has no
// orthogonality.
// Accuracy: |A V - V L|_F <= 10 n u |A|_F, and the same for W.
// Source: Golub and Van Loan, Matrix Computations (4th ed.), chapter 7.
// Cost: about 25 n^3 multiplications and additions with V, 10 n^3 for eigenvalues alone (complex: four times). A residual
// takes 2 n^3 for V and 2 n^3 for W, in products of matrices.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_GENERAL_EIGENPROBLEM_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_GENERAL_EIGENPROBLEM_H_

#include <cstdint>

#include "engine/backends/host/base/large_threads.h"
#include "engine/large_engine.h"

namespace svdserve::host {

// plan: of LargeKind::kGeneral. Blocks until the results are written. Never throws.
LargeOutcome general_eigenproblem(const LargeThreads& threads, const LargePlan& plan, const LargeOperands& operands,
                                  const LargeControl& control);

// The memory that it takes on `threads` threads, beside the operand and the results.
uint64_t general_eigenproblem_bytes(const LargePlan& plan, int threads);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_GENERAL_EIGENPROBLEM_H_
