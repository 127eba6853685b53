// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer, spread over threads.
//
//   T = Q diag(lambda) Q^T,   T with diagonal d and off-diagonal e, n x n
// Method: T is torn into leaves of at most kLeaf rows by rank one. TridiagonalVectors decomposes them, a thread each. They are
// merged in pairs (tridiagonal_merger.h): many small merges by a thread each, few large ones by all of them. Every loop
// and product is cut into tasks, so that a cancel is seen.
// Cost: up to 4/3 n^3 multiplications and additions, less by what deflates.
// Accuracy: |T - Q L Q^T| and |I - Q^T Q| a few n u |T|.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_EIGEN_H_

#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// d: n numbers, e: n - 1 at least; [out] q: n x n. order: column order[i] of q has the i-th smallest eigenvalue. False: T is not
// finite. The caller holds a BlasThreads. T: float or double. Throws std::bad_alloc, and what a cancel throws.
template <class T>
bool tridiagonal_eigen(const LargeThreads& threads, const std::vector<T>& d, const std::vector<T>& e,
                       large::LargeView<T> q, std::vector<int64_t>& order);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_EIGEN_H_
