// Eigenvalues and eigenvectors of one large matrix that need not be Hermitian, on a GPU.
//
//   A V = V L and W^H A = L W^H, A n x n; L diagonal, columns of V and W of norm 1
// Method QR, with vectors:
//   1. A is scaled by a power of two, so that nothing overflows on the way.
//      Then it is balanced by powers of two, B = D^-1 A D, where rows and columns differ by a factor of 16.
//   2. V by Xgeev in single precision (geev.h).
//   3. Newton's method in double precision, twice; once where the operand is single:
//        S = V^-1 A V,   F with f_ij = s_ij / (s_jj - s_ii) off the diagonal, 0 where that is above 0.3,
//        V := V (I + F) with unit columns,   lambda_j = v_j^H A v_j
//      A step stays where it made the residual smaller.
//   4. A residual or a trace that misses its bound, as with defective eigenvalues: V and L by Xgeev in double precision.
//   5. W = V^-H with unit columns. Where its residual misses the bound, one Newton step for A^H.
//   6. A residual above its bound after that is a fault, so that the processor takes the matrix. Nearly dependent
//      eigenvectors end so where W is wanted.
//   7. V := D V, W := D^-1 W. Where a residual misses its bound for A, all is repeated without balancing.
// Values alone: Xgeev in the operand's precision. Which way is taken depends on the matrix alone.
// All but Xgeev is complex. A real matrix keeps the pairs that Xgeev finds. Vectors of real values are real, and the
// second vector of a pair is the conjugate of the first. Newton's method in exact arithmetic does the same.
// Accuracy: |A V - V L|_F <= 10 n u |A|_F and |sum of L - trace of A| <= 10 n u |A|_F, measured on the device. W has
// the bound of V. Random complex matrices of order 512 and 2048: 86 and 788 u |A|_F, where Xgeev has 82 and 147.
// A cancel is not seen while Xgeev computes.
// Certificate: as that of host/large/general_eigenproblem.h.
// Sources: Dongarra, Moler and Wilkinson, SIAM J. Numer. Anal. 20 (1983) 23-45, for refined eigenvectors; Golub and Van
// Loan, Matrix Computations (4th ed.), section 7.2, for the first-order change of an eigenvector, which F has.
// Cost: Xgeev, and 27 n^3 real operations a step: two products, an LU factorization and its solves. The product A V is
// that of the residual. Memory: 5 n^2 complex numbers, 6 n^2 with W, 3 n^2 for values alone, and 2.6 n^2 of the host's.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GENERAL_EIGENPROBLEM_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GENERAL_EIGENPROBLEM_H_

#include <cstdint>

#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/large_engine.h"

namespace svdserve::cuda {

// plan: of LargeKind::kGeneral, where libraries().has_geev(). Blocks until the results are written. Never throws.
LargeOutcome general_eigenproblem(LargeLane& lane, DeviceArena& arena, const LargePlan& plan,
                                  const LargeOperands& operands, const LargeControl& control);

// Bytes of the arena, and of the host beside the operand and the results.
uint64_t general_eigenproblem_device_bytes(const LargePlan& plan);
uint64_t general_eigenproblem_host_bytes(const LargePlan& plan);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GENERAL_EIGENPROBLEM_H_
