// A GPU beside the one of a ring's home. It takes a share of home's large products (backends/ring/dealt_home.h).
//
// Its stream makes all copies. Events keep them behind home's calls, and home's calls behind them.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/backends/cuda/members/device_part.h"

namespace svdserve::cuda {

// E: double or Complex. The calling thread's device is home's, and stays so.
template <class E>
class CudaHelper {
 public:
  using View = large::LargeView<E>;

  // With so many bytes for matrices. home and watch must outlive it. Throws LargeStop.
  CudaHelper(int device, uint64_t bytes, const LargeLane& home, const LargeWatch& watch);
  void begin();
  void mark();
  void wait();
  void fetch(View from, View to) { copy(from, home_.device, to, part_.device()); }
  void share();
  void fetch_shared(const CudaHelper& other, View from, View to);
  void give(View from, View to) { copy(from, part_.device(), to, home_.device); }
  template <class F>
  void run(const F& f) {
    const OnDevice here(part_.device());
    f(part_.backend());
  }

 private:
  void copy(View from, int from_device, View to, int to_device);

  struct DestroyEvent {
    void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
  };

  const LargeLane& home_;
  std::unique_ptr<CUevent_st, DestroyEvent> asked_;  // on home's device
  DevicePart<E> part_;
  cudaEvent_t answered_ = nullptr, shared_ = nullptr;
};

extern template class CudaHelper<double>;
extern template class CudaHelper<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_CUDA_HELPER_H_
