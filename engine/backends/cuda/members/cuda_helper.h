// A GPU beside the one of a ring's home. It takes a share of home's large products (backends/ring/dealt_home.h).
//
// It has one allocation, a stream and a back end of its own. Its stream makes all copies. Events keep them behind home's
// calls, and home's calls behind them. One thread enqueues the work of all GPUs.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/backends/cuda/members/cuda_member.h"

namespace svdserve::cuda {

// E: double or Complex. The calling thread's device is home's, and stays so.
template <class E>
class CudaHelper {
 public:
  using View = large::LargeView<E>;

  // With so many bytes for matrices. home and watch must outlive it. Throws LargeStop.
  CudaHelper(int device, uint64_t bytes, const LargeLane& home, const LargeWatch& watch);
  ~CudaHelper();
  CudaHelper(const CudaHelper&) = delete;
  CudaHelper& operator=(const CudaHelper&) = delete;

  void begin();
  void end();
  void fetch(View from, View to) { copy(from, home_.device, to, device_); }
  void give(View from, View to) { copy(from, device_, to, home_.device); }
  template <class F>
  void run(const F& f) {
    const OnDevice here(device_);
    f(*backend_);
  }

 private:
  void copy(View from, int from_device, View to, int to_device);
  void free_all();

  const int device_;
  const LargeLane& home_;
  cudaEvent_t asked_ = nullptr, answered_ = nullptr;  // of home's stream, and of this one
  std::unique_ptr<LargeLane> lane_;
  void* memory_ = nullptr;
  std::unique_ptr<DeviceArena> arena_;
  std::unique_ptr<CudaLargeBackend<E>> backend_;
};

extern template class CudaHelper<double>;
extern template class CudaHelper<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_
