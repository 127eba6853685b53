// AUTO with vectors of k >= 33, and without beyond k = 128: U, S and V by bidiagonalization (bidiagonal_kernels.h). The
// launcher of an element type calls these functions. The units that bidiagonal.cu.in makes define them, and take long to
// compile.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_LAUNCH_H_

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"

namespace svdserve::cuda {

template <class E>
struct BidiagonalLaunch {
  // Bytes of the workspace of decompose(): for the matrices that are decomposed at once, which is not always all.
  static int64_t workspace_bytes(int k, int64_t count, bool with_vectors);
  // Values, statuses, and X and Y where call.x and call.y have memory. X may replace the matrices.
  static void decompose(Launch* launch, const VectorsCall<E>& call, void* workspace);
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_LAUNCH_H_
