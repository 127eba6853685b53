// One large matrix on several GPUs, as the plugin's table offers it; the contracts are in plugin_abi.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DECOMPOSE_RING_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DECOMPOSE_RING_H_

#include "engine/backends/cuda_door/plugin_abi.h"

namespace svdserve::cuda {

int32_t reaches(int32_t from, int32_t to);
LargeWorkspace ring_memory(const LargePlan* plan, uint64_t device_room);
void decompose_ring(const int32_t* devices, int32_t count, int32_t members, const LargePlan* plan,
                    const LargeOperands* operands, const SvdserveCudaLargeControl* control,
                    SvdserveCudaLargeOutcome* outcome);
const char* rank_refusal(const int32_t* devices, int32_t count);
void serve_rank(int32_t socket, int32_t device);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DECOMPOSE_RING_H_
