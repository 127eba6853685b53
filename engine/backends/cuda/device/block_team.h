// The threads of a block as the team of core/team.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLOCK_TEAM_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLOCK_TEAM_H_

#include "engine/core/lane.h"

namespace svdserve::cuda {

class BlockTeam {
 public:
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  template <class F>
  __device__ __forceinline__ void for_each(int first, int last, F f) const {
    for (int i = first + static_cast<int>(threadIdx.x); i < last; i += static_cast<int>(blockDim.x)) f(i);
    sync();
  }
  template <class F>
  __device__ __forceinline__ void once(F f) const {
    sync();
    if (threadIdx.x == 0) f();
    sync();
  }
  __device__ __forceinline__ scalar::ScalarMask any(scalar::ScalarMask m) const {
    return {__syncthreads_or(static_cast<int>(m.m)) != 0};
  }
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLOCK_TEAM_H_
