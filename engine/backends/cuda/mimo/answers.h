// MIMO answers of a batch whose singular values are in device memory: what the launchers of all element types share.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_

#include <cstdint>

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

inline bool wants_answers(const SvdserveCudaOutputs& o) {
  return o.capacity || o.water_filling || o.stream_snr || o.condition_number || o.effective_rank || o.threshold_rank;
}

// Enqueues the kernels that make the answers of plan.outputs into batch.planes, null ones left out. values: in device
// memory, k of each of the batch's matrices.
cudaError_t launch_answers(const SvdserveCudaPlan& plan, const SvdserveCudaBatch& batch, const float* values,
                           cudaStream_t stream);
cudaError_t launch_answers(const SvdserveCudaPlan& plan, const SvdserveCudaBatch& batch, const double* values,
                           cudaStream_t stream);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWERS_H_
