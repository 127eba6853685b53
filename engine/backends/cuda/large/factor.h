// Large factors on a GPU, as the plugin's table offers them (plugin_abi.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

const char* factor_refusal();
uint64_t factor_bytes(const SvdserveCudaFactorPlan* plan);
void decompose_factor(int32_t device, const SvdserveCudaFactorPlan* plan, const SvdserveCudaFactorOperands* operands,
                      const SvdserveCudaFactorControl* control, SvdserveCudaFactorOutcome* outcome);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_FACTOR_H_
