// kThreads neighbouring threads of one warp as a team (core/team.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_TEAM_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_TEAM_H_

#include "engine/core/lane.h"
#include "engine/core/team.h"

namespace svdserve::cuda {

template <int kThreads>
class CudaTeam {
 public:
  static_assert(kThreads > 1 && 32 % kThreads == 0);
  __device__ CudaTeam()
      : rank_(static_cast<int>(threadIdx.x) % kThreads),
        mask_((kThreads == 32 ? ~0u : (1u << (kThreads % 32)) - 1) << (threadIdx.x % 32 / kThreads * kThreads)) {}

  __device__ __forceinline__ int rank() const { return rank_; }
  __device__ __forceinline__ void sync() const { __syncwarp(mask_); }
  template <class F>
  __device__ __forceinline__ void for_each(int first, int last, F f) const {
    for (int i = first + rank_; i < last; i += kThreads) f(i);
    sync();
  }
  template <class F>
  __device__ __forceinline__ void for_each_line(int first, int last, F f) const {
    for_each(first, last, f);
  }
  template <class F>
  __device__ __forceinline__ void once(F f) const {
    sync();
    if (rank_ == 0) f();
    sync();
  }
  // Bit i: m of the member with rank i.
  __device__ __forceinline__ unsigned ballot(bool m) const {
    return __ballot_sync(mask_, m) >> (threadIdx.x % 32 / kThreads * kThreads) &
           (kThreads == 32 ? ~0u : (1u << (kThreads % 32)) - 1);
  }
  __device__ __forceinline__ scalar::ScalarMask any(scalar::ScalarMask m) const {
    return {__any_sync(mask_, m.m) != 0};
  }

 private:
  int rank_;
  unsigned mask_;
};

// The phase of algorithms/general/shear_step.h: a thread has tiles of one column, if the team is large enough.
template <int kThreads, class F>
__device__ __forceinline__ void deal_tiles(const CudaTeam<kThreads>& team, int columns, F f) {
  const int parts = columns < kThreads ? kThreads / columns : 1;
  for (int x = team.rank(); x < parts * columns; x += kThreads) f(x % columns, x / columns, parts);
  team.sync();
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_CUDA_TEAM_H_
