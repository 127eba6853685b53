// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix on the device, by divide and conquer
// (algorithms/large/tridiagonal_merge.h):
//
//   T = V diag(lambda) V^T, n x n, V orthogonal, lambda ascending
// Leaves of at most 32 rows are solved by a warp each. Then all merges of a level are done together: the host deflates,
// and kernels find roots, weights and S. cuBLAS multiplies where matrices are large, a kernel of our own where they are
// many. The host waits once a level, for the eigenvalues and the weights of its merges.
// Accuracy: |T V - V diag(lambda)| and |I - V^T V| are a few n u |T|; T may have any finite scale.
// Cost: at most 4/3 n^3 multiplications and additions; deflation saves most of them for many matrices.
// Determinism: the same matrix gives the same bits on the same device with the same ld and alignment of v, by which cuBLAS
// chooses kernels.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_TRIDIAGONAL_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_TRIDIAGONAL_EIGEN_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

inline constexpr int64_t kMostTridiagonalRows = 32768;

// All memory is the device's.
struct TridiagonalCall {
  int64_t n = 0;              // 1 .. kMostTridiagonalRows
  double* d = nullptr;        // [in,out] [n]: T's diagonal, then the eigenvalues, ascending
  const double* e = nullptr;  // [in] [n - 1]: T's subdiagonal; null where n is 1
  double* v = nullptr;        // [out] n x n, by columns
  int64_t ld = 0;             // of v, at least n
  void* work = nullptr;       // tridiagonal_work_bytes(n), aligned to 256 bytes
};

// About 16 n (n + 4) bytes.
uint64_t tridiagonal_work_bytes(int64_t n);

// False: T has an entry that is not finite, or a leaf did not converge; v is undefined then. All but the last level is
// done when it returns, which may still run on the lane's stream. Uses the lane's pinned memory. Throws
// large::LargeStop.
bool tridiagonal_eigen(LargeLane& lane, const large::LargeWatch& watch, const TridiagonalCall& call);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_TRIDIAGONAL_EIGEN_H_
