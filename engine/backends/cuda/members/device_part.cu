#include "engine/backends/cuda/members/device_part.h"

#include <utility>

namespace svdserve::cuda {

OnDevice::OnDevice(int device) {
  require(cudaGetDevice(&before_), "asking for the device");
  require(cudaSetDevice(device), "choosing a device");
}
OnDevice::~OnDevice() {
  (void)cudaSetDevice(before_);
  (void)cudaGetLastError();
}

template <class E>
DevicePart<E>::~DevicePart() {
  try {
    const OnDevice here(device_);
    const bool sound = lane_ == nullptr || cudaStreamSynchronize(lane_->stream) == cudaSuccess;
    backend_.reset();
    if (sound) {
      for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
      (void)cudaFree(memory_);
      if (lane_ != nullptr) keep_lane(std::move(lane_));
    }
    (void)cudaGetLastError();
  } catch (const large::LargeStop&) {
    // The device cannot even be chosen.
  }
  if (lane_ != nullptr) (void)lane_.release();
}

template <class E>
void DevicePart<E>::open(uint64_t bytes, const LargeWatch& watch) {
  const OnDevice here(device_);
  lane_ = take_lane(device_);
  require(cudaMalloc(&memory_, bytes), "allocating a large matrix's memory");
  arena_ = std::make_unique<DeviceArena>(memory_, bytes);
  backend_ = std::make_unique<CudaLargeBackend<E>>(*lane_, *arena_, watch);
}

template <class E>
cudaEvent_t DevicePart<E>::new_event() {
  const OnDevice here(device_);
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  events_.push_back(event);
  return event;
}

template class DevicePart<double>;
template class DevicePart<Complex>;

}  // namespace svdserve::cuda
