// A thread block of one dimension, whole warps, as algorithms/blocks/placed_jacobi.h and block_qr.h want it.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_CUDA_BLOCK_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_CUDA_BLOCK_H_

namespace svdserve::cuda {

struct CudaBlock {
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ bool any(bool b) const { return __syncthreads_or(b) != 0; }
  __device__ __forceinline__ bool any_of_warp(bool b) const { return __any_sync(~0u, b) != 0; }
  template <class T>
  __device__ __forceinline__ T from_lane(T x, int lane) const {
    return __shfl_sync(~0u, x, lane);
  }
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_CUDA_BLOCK_H_
