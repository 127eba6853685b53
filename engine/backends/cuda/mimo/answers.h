// MIMO answers of a batch whose singular values are in device memory: what the launchers of all element types share.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_

#include <cuda_runtime_api.h>

#include "engine/cuda_outcome.h"
#include "engine/planner.h"

namespace svdserve::cuda {

// Enqueues the kernels that make the answers of plan.outputs into batch.planes, null ones left out. values: in device
// memory, k of each of the batch's matrices.
cudaError_t launch_answers(const Plan& plan, const DeviceBatch& batch, const float* values, cudaStream_t stream);
cudaError_t launch_answers(const Plan& plan, const DeviceBatch& batch, const double* values, cudaStream_t stream);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_
