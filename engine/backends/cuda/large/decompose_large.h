// Large matrices on a GPU, as the plugin's table offers them; the contracts are in plugin_abi.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

const char* large_refusal();
uint64_t large_device_bytes(const LargePlan* plan);
uint64_t large_host_bytes(const LargePlan* plan);
void decompose_large(int32_t device, const LargePlan* plan, const LargeOperands* operands,
                     const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_DECOMPOSE_LARGE_H_
