// Device resources of a large matrix beside memory for its matrices: a stream, the libraries' handles, pinned memory
// for transfers. Made when none is idle, kept for the next matrix.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_LANE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_LANE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/library_loader.h"
#include "engine/backends/cuda/device/transfer_threads.h"
#include "engine/backends/cuda/p_steps/gram_step.h"
#include "engine/backends/cuda/p_steps/step_halves.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// Throws large::LargeStop unless error is success; `what` was being done.
void require(cudaError_t error, const char* what);
void require(cublasStatus_t status, const char* what);
void require(cusolverStatus_t status, const char* what);

// A pinned buffer has so many bytes. Transfers of threads go through slots, into which the two of them are cut.
inline constexpr uint64_t kTransferBytes = uint64_t{16} << 20;

struct LargeLane {
  // For the rotations of a half of a p-step.
  struct Rotations {
    cudaStream_t stream = nullptr;  // of the priority of `ahead`
    cudaEvent_t begin = nullptr, end = nullptr;
  };

  explicit LargeLane(int device);  // throws large::LargeStop
  ~LargeLane();
  LargeLane(const LargeLane&) = delete;
  LargeLane& operator=(const LargeLane&) = delete;

  int device;
  GramStepLimits limits;
  Rotations rotations[kHalves];
  cudaStream_t stream = nullptr;  // of the lowest priority: batches of other streams go first
  cudaStream_t beside = nullptr;  // of the same
  cudaStream_t ahead = nullptr;   // of the next higher: its kernels do not wait for all blocks of the others
  cublasHandle_t cublas = nullptr;
  cublasHandle_t cublas_ahead = nullptr;  // of the stream `ahead`
  cusolverDnHandle_t cusolver = nullptr;
  cusolverDnParams_t params = nullptr;
  char* pinned[2] = {nullptr, nullptr};  // one behind the other
  TransferThreads transfers;
  cudaEvent_t transferred[TransferParts::kSlots * kLargeTransferThreads] = {};  // of a slot
  cudaEvent_t waited = nullptr;                                                 // who waits for it sleeps
  cudaEvent_t passed_on[2] = {};                                                // TwoStreams's

 private:
  void release();
};

// Work in two streams of a lane: its own, 0, and another, 1. The lane's own stream goes on behind both when the object's
// life ends.
class TwoStreams {
 public:
  // Stream 1 goes on behind what stream 0 has so far. Throws large::LargeStop.
  TwoStreams(LargeLane& lane, cudaStream_t other);
  ~TwoStreams();
  TwoStreams(const TwoStreams&) = delete;
  TwoStreams& operator=(const TwoStreams&) = delete;

  cudaStream_t of(int i) const { return i == 0 ? lane_.stream : other_; }
  // The other stream's next await_other() waits for all of this stream so far. Both throw large::LargeStop.
  void pass_on(int i);
  void await_other(int i);

 private:
  LargeLane& lane_;
  const cudaStream_t other_;
};

// Throws large::LargeStop.
std::unique_ptr<LargeLane> take_lane(int device);
// Only of a device that is sound, with nothing left in the stream.
void keep_lane(std::unique_ptr<LargeLane> lane);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LARGE_LANE_H_
