// A GPU's part in a matrix that several GPUs have together: a lane, one allocation, a back end on it, and events.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DEVICE_PART_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DEVICE_PART_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

// Makes a device current on this thread for the life of an object. The thread is another one from call to call, and the
// driver's in the end, which goes on with its own device.
class OnDevice {
 public:
  explicit OnDevice(int device);  // throws large::LargeStop
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// E: double or Complex.
template <class E>
class DevicePart {
 public:
  explicit DevicePart(int device) : device_(device) {}
  // Waits for the stream, and frees everything. Nothing of a dead context is freed.
  ~DevicePart();
  DevicePart(const DevicePart&) = delete;
  DevicePart& operator=(const DevicePart&) = delete;

  // Once, with so many bytes for matrices, before anything below. watch must outlive the object. Throws large::LargeStop.
  void open(uint64_t bytes, const LargeWatch& watch);
  bool is_open() const { return backend_ != nullptr; }
  int device() const { return device_; }
  cudaStream_t stream() const { return lane_->stream; }
  CudaLargeBackend<E>& backend() { return *backend_; }
  // On this device, without a time. It lives as long as the object. Throws large::LargeStop.
  cudaEvent_t new_event();

 private:
  const int device_;
  std::unique_ptr<LargeLane> lane_;
  void* memory_ = nullptr;
  std::unique_ptr<DeviceArena> arena_;
  std::unique_ptr<CudaLargeBackend<E>> backend_;
  std::vector<cudaEvent_t> events_;
};

extern template class DevicePart<double>;
extern template class DevicePart<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MEMBERS_DEVICE_PART_H_
