// The state that kernel launches share: the stream with its first error, and pieces of the workspace.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LAUNCH_CONTEXT_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LAUNCH_CONTEXT_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace svdserve::cuda {

// A launch in the making. The first error stays, and what follows it is not enqueued.
struct Launch {
  int device;
  cudaStream_t stream;
  cudaError_t error = cudaSuccess;

  // Threads <= 2^31 blocks of `block`.
  template <auto kKernel, class... Args>
  void operator()(dim3 grid, dim3 block, int shared_bytes, const Args&... args) {
    if (error != cudaSuccess || grid.x == 0) return;
    if (shared_bytes > kSharedWithoutAsking) error = allow_shared<kKernel>();
    if (error != cudaSuccess) return;
    kKernel<<<grid, block, shared_bytes, stream>>>(args...);
    error = cudaGetLastError();
  }

  // In clusters of so many blocks, without dynamic shared memory.
  template <auto kKernel, class... Args>
  void in_clusters(unsigned blocks, dim3 grid, dim3 block, const Args&... args) {
    if (error != cudaSuccess || grid.x == 0) return;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {blocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, kKernel, args...);
  }

 private:
  static constexpr int kSharedWithoutAsking = 48 * 1024;

  // Once for each kernel and device: as much shared memory as a block can have.
  template <auto kKernel>
  cudaError_t allow_shared() {
    static std::atomic<uint64_t> done{0};  // a bit for each device; beyond 64 it is asked for every time
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((done.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
    int most = 0;
    cudaError_t e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    if (e == cudaSuccess) done.fetch_or(bit, std::memory_order_relaxed);
    return e;
  }
};

// Hands out pieces of the workspace; without memory it only counts.
class Carver {
 public:
  explicit Carver(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(int64_t n) {
    char* const piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<uint64_t>(n) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }
  uint64_t used() const { return used_; }

 private:
  static constexpr uint64_t kAlignment = 256;
  char* memory_;
  uint64_t used_ = 0;
};

constexpr unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LAUNCH_CONTEXT_H_
