// Matrices that no thread block has room for, or takes longer (is_side_by_side() in planner.h), to k = 512: U, S, V of
// many at once. The launcher of an element type calls these functions.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_LAUNCH_H_

#include "engine/backends/cuda/device/batch_shape.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"

namespace svdserve::cuda {

template <class E>
struct SideBySideLaunch {
  // Bytes of the workspace of decompose(): for the matrices that are decomposed at once, which is not always all.
  static int64_t workspace_bytes(const BatchShape& shape, int64_t count);
  // Values, statuses, and X and Y where call.x and call.y have memory; call.square.a: the operands as given, m x n. Unlike
  // other launches it waits for the device, once a sweep: only then is it known whether there is another one.
  static void decompose(Launch* launch, const BatchShape& shape, const VectorsCall<E>& call, void* workspace);
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_LAUNCH_H_
