// The kernels of MIMO answers for matrices whose real type is f64.
#include "engine/backends/cuda/answer_kernels.h"

namespace svdserve::cuda {
cudaError_t launch_answers(const SvdserveCudaPlan& plan, const SvdserveCudaBatch& batch, const double* values,
                           cudaStream_t stream) {
  return launch_answers_of(plan, batch, values, stream);
}
}  // namespace svdserve::cuda
