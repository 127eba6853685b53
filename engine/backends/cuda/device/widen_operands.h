// Operands of 16-bit numbers become floats in device memory, before any other kernel sees them.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_WIDEN_OPERANDS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_WIDEN_OPERANDS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/cuda_outcome.h"
#include "engine/planner.h"

namespace svdserve::cuda {

// Bytes of the floats of `count` matrices at the head of the workspace, a multiple of its alignment. 0 where the plan's
// operands are not narrow.
uint64_t widened_bytes(const Plan& plan, int64_t count);

// Enqueues the conversion. *batch has the floats and the rest of the workspace afterwards.
cudaError_t widen_operands(const Plan& plan, DeviceBatch* batch, int device, cudaStream_t stream);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_WIDEN_OPERANDS_H_
