#include "engine/backends/cuda/members/cuda_helper.h"

#include <utility>

namespace svdserve::cuda {

template <class E>
CudaHelper<E>::CudaHelper(int device, uint64_t bytes, const LargeLane& home, const LargeWatch& watch)
    : device_(device), home_(home) {
  try {
    require(cudaEventCreateWithFlags(&asked_, cudaEventDisableTiming), "creating an event");
    const OnDevice here(device_);
    lane_ = take_lane(device_);
    require(cudaEventCreateWithFlags(&answered_, cudaEventDisableTiming), "creating an event");
    require(cudaMalloc(&memory_, bytes), "allocating a helper's memory");
    arena_ = std::make_unique<DeviceArena>(memory_, bytes);
    backend_ = std::make_unique<CudaLargeBackend<E>>(*lane_, *arena_, watch);
  } catch (...) {
    free_all();
    throw;
  }
}

template <class E>
CudaHelper<E>::~CudaHelper() {
  free_all();
}

template <class E>
void CudaHelper<E>::free_all() {
  try {
    const OnDevice here(device_);
    const bool sound = lane_ == nullptr || cudaStreamSynchronize(lane_->stream) == cudaSuccess;
    backend_.reset();
    if (sound) {
      if (answered_ != nullptr) (void)cudaEventDestroy(answered_);
      (void)cudaFree(memory_);
      if (lane_ != nullptr) keep_lane(std::move(lane_));
    }
    (void)cudaGetLastError();
  } catch (const large::LargeStop&) {
    // Nothing of a dead context is freed.
  }
  if (lane_ != nullptr) (void)lane_.release();
  if (asked_ != nullptr) (void)cudaEventDestroy(asked_);
  (void)cudaGetLastError();
}

template <class E>
void CudaHelper<E>::begin() {
  require(cudaEventRecord(asked_, home_.stream), "recording an event");
  const OnDevice here(device_);
  require(cudaStreamWaitEvent(lane_->stream, asked_, 0), "waiting for another GPU");
}

template <class E>
void CudaHelper<E>::end() {
  {
    const OnDevice here(device_);
    require(cudaEventRecord(answered_, lane_->stream), "recording an event");
  }
  require(cudaStreamWaitEvent(home_.stream, answered_, 0), "waiting for another GPU");
}

// Columns without gaps go in one piece.
template <class E>
void CudaHelper<E>::copy(View from, int from_device, View to, int to_device) {
  if (from.rows == 0 || from.cols == 0) return;
  const OnDevice here(device_);
  const size_t rows = static_cast<size_t>(from.rows) * sizeof(E), cols = static_cast<size_t>(from.cols);
  if (from.rows == from.ld && from.rows == to.ld) {
    require(cudaMemcpyPeerAsync(to.data, to_device, from.data, from_device, rows * cols, lane_->stream),
            "copying to another GPU");
    return;
  }
  cudaMemcpy3DPeerParms call{};
  call.srcPtr = make_cudaPitchedPtr(from.data, static_cast<size_t>(from.ld) * sizeof(E), rows, cols);
  call.dstPtr = make_cudaPitchedPtr(to.data, static_cast<size_t>(to.ld) * sizeof(E), rows, cols);
  call.srcDevice = from_device;
  call.dstDevice = to_device;
  call.extent = make_cudaExtent(rows, cols, 1);
  require(cudaMemcpy3DPeerAsync(&call, lane_->stream), "copying to another GPU");
}

template class CudaHelper<double>;
template class CudaHelper<Complex>;

}  // namespace svdserve::cuda
