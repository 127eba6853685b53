// The kernels of MIMO answers, for both real types.
#include "engine/backends/cuda/mimo/answer_kernels.h"

namespace svdserve::cuda {

cudaError_t launch_answers(const Plan& plan, const DeviceBatch& batch, const float* values, cudaStream_t stream) {
  return launch_answers_of(plan, batch, values, stream);
}

cudaError_t launch_answers(const Plan& plan, const DeviceBatch& batch, const double* values, cudaStream_t stream) {
  return launch_answers_of(plan, batch, values, stream);
}

}  // namespace svdserve::cuda
