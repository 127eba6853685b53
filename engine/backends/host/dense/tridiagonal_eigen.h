// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer, spread over threads.
//
//   T = Q diag(d) Q^T,   T with diagonal d and off-diagonal e, n x n
// Method: T is torn into blocks of at most kLeaf rows by rank one. Implicit QL (LAPACK's ?steqr) decomposes the blocks.
// These are joined in pairs: deflation (?laed2), the roots of the secular equation (?laed4), Gu and Eisenstat's
// vectors, and one product for each half. It is LAPACK's ?stedc, whose last joins are single calls of seconds for n =
// 4096. Here every loop and product is cut into tasks, so that all threads work and a cancel is seen.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195; Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 172-191.
// Cost: up to 4/3 n^3 multiplications and additions, less by what deflates.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_TRIDIAGONAL_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_TRIDIAGONAL_EIGEN_H_

#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// [in,out] d: n numbers, the eigenvalues at the end; [in] e: n - 1, overwritten; [out] q: n x n. order: column order[i]
// of q has the i-th smallest eigenvalue, d[order[i]]. False: LAPACK reports failure. T: float or double.
template <class T>
bool tridiagonal_eigen(const LargeThreads& threads, std::vector<T>& d, std::vector<T>& e, large::LargeView<T> q,
                       std::vector<int64_t>& order);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_TRIDIAGONAL_EIGEN_H_
