// Large factors on a GPU, as the plugin's table offers them (plugin_abi.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

const char* large_refusal();
uint64_t factor_bytes(const SvdserveCudaLargePlan* plan);
void decompose_large(int32_t device, const SvdserveCudaLargePlan* plan, const SvdserveCudaLargeOperands* operands,
                     const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_
