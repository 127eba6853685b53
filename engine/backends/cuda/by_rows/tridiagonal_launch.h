// AUTO of Hermitian matrices of 33 <= k <= 512: eigenvalues and eigenvectors by tridiagonalization
// (tridiagonal_kernels.h). The launcher of an element type calls these functions. The units that tridiagonal.cu.in makes
// define them, and take long to compile.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_LAUNCH_H_

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/hermitian_kernels.h"

namespace svdserve::cuda {

template <class E>
struct TridiagonalLaunch {
  // Bytes of the workspace of decompose(): for the matrices that are decomposed at once, which is not always all.
  static int64_t workspace_bytes(int k, int64_t count, bool with_vectors);
  // Eigenvalues, statuses, and eigenvectors where call.u has memory.
  static void decompose(Launch* launch, const HermitianCall<E>& call, void* workspace);
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_LAUNCH_H_
