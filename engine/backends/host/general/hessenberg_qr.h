// The Schur form of a Hessenberg matrix by multishift QR with aggressive early deflation, spread over threads.
//
//   H = Q T Q^H, Z := Z Q;   T upper triangular, of a real H with 2 x 2 blocks for conjugate pairs (LAPACK's standard)
// Method: in each iteration, the eigenvalues of a window at the end of the active block that have converged are set
// apart (LAPACK's laqr3). Where these are too few, the others are the shifts of a sweep (bulge_sweep.h). Active blocks
// of at most kSmallBlock rows are left to LAPACK's lahqr. Both work on the window alone; products do the rest.
// Sources: Bai and Demmel, Int. J. High Speed Comput. 1 (1989) 97-112; Braman, Byers and Mathias, SIAM J. Matrix Anal.
// Appl. 23 (2002) 929-947 and 948-973; Watkins, The Matrix Eigenvalue Problem (2007), section 4.8.
// Cost: about 10 n^3 multiplications and additions for random matrices, a half without Z.
// Ends without convergence after 30 iterations a row.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_QR_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_QR_H_

#include <complex>
#include <cstdint>
#include <functional>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// Rows of an active block that lahqr decomposes at once.
inline constexpr int64_t kSmallBlock = 75;
// Shifts of a sweep, at most.
inline constexpr int64_t kMostShifts = 128;

// [in,out] h: n x n, := T; rows and columns outside low .. high - 1 are triangular already. z: n x n, or without data;
// then h has no meaning at the end. values: n. False: no convergence.
template <class E>
bool schur_form(const LargeThreads& threads, large::LargeView<E> h, int64_t low, int64_t high, large::LargeView<E> z,
                std::complex<double>* values, const std::function<void(double)>& progress);

// The rows of the largest window of deflation, for an upper bound of the memory.
int64_t largest_window(int64_t n);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_QR_H_
