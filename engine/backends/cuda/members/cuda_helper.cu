#include "engine/backends/cuda/members/cuda_helper.h"

namespace svdserve::cuda {

template <class E>
CudaHelper<E>::CudaHelper(int device, uint64_t bytes, const LargeLane& home, const LargeWatch& watch)
    : home_(home), part_(device) {
  cudaEvent_t asked = nullptr;
  require(cudaEventCreateWithFlags(&asked, cudaEventDisableTiming), "creating an event");
  asked_.reset(asked);
  part_.open(bytes, watch);
  answered_ = part_.new_event();
  shared_ = part_.new_event();
}

template <class E>
void CudaHelper<E>::begin() {
  require(cudaEventRecord(asked_.get(), home_.stream), "recording an event");
  const OnDevice here(part_.device());
  require(cudaStreamWaitEvent(part_.stream(), asked_.get(), 0), "waiting for another GPU");
}

template <class E>
void CudaHelper<E>::mark() {
  const OnDevice here(part_.device());
  require(cudaEventRecord(answered_, part_.stream()), "recording an event");
}

template <class E>
void CudaHelper<E>::wait() {
  require(cudaStreamWaitEvent(home_.stream, answered_, 0), "waiting for another GPU");
}

template <class E>
void CudaHelper<E>::share() {
  const OnDevice here(part_.device());
  require(cudaEventRecord(shared_, part_.stream()), "recording an event");
}

template <class E>
void CudaHelper<E>::fetch_shared(const CudaHelper& other, View from, View to) {
  const OnDevice here(part_.device());
  require(cudaStreamWaitEvent(part_.stream(), other.shared_, 0), "waiting for another GPU");
  copy(from, other.part_.device(), to, part_.device());
}

// Columns without gaps go in one piece.
template <class E>
void CudaHelper<E>::copy(View from, int from_device, View to, int to_device) {
  if (from.rows == 0 || from.cols == 0) return;
  const OnDevice here(part_.device());
  const size_t rows = static_cast<size_t>(from.rows) * sizeof(E), cols = static_cast<size_t>(from.cols);
  if (from.rows == from.ld && from.rows == to.ld) {
    require(cudaMemcpyPeerAsync(to.data, to_device, from.data, from_device, rows * cols, part_.stream()),
            "copying to another GPU");
    return;
  }
  cudaMemcpy3DPeerParms call{};
  call.srcPtr = make_cudaPitchedPtr(from.data, static_cast<size_t>(from.ld) * sizeof(E), rows, cols);
  call.dstPtr = make_cudaPitchedPtr(to.data, static_cast<size_t>(to.ld) * sizeof(E), rows, cols);
  call.srcDevice = from_device;
  call.dstDevice = to_device;
  call.extent = make_cudaExtent(rows, cols, 1);
  require(cudaMemcpy3DPeerAsync(&call, part_.stream()), "copying to another GPU");
}

template class CudaHelper<double>;
template class CudaHelper<Complex>;

}  // namespace svdserve::cuda
