#include "engine/backends/cuda/large/large_lane.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {
namespace {

using large::LargeStop;

struct IdleLanes {
  std::mutex mutex;
  std::vector<std::unique_ptr<LargeLane>> lanes;
};
// Never destroyed: at the process's end the driver may be gone before it.
IdleLanes& idle() {
  static auto* const all = new IdleLanes;
  return *all;
}

int transfer_threads() {
  return std::min(kLargeTransferThreads, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  LargeStop stop;
  stop.status = error == cudaErrorMemoryAllocation ? LargeStatus::kOutOfMemory : LargeStatus::kFault;
  stop.detail = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error) + ", while " + what;
  (void)cudaGetLastError();
  size_t unused = 0, all = 0;
  stop.device_lost = cudaMemGetInfo(&unused, &all) != cudaSuccess;  // of a dead context no call succeeds
  (void)cudaGetLastError();
  throw stop;
}
void require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  require(cudaGetLastError(), what);
  throw LargeStop{status == CUBLAS_STATUS_ALLOC_FAILED ? LargeStatus::kOutOfMemory : LargeStatus::kFault,
                  "cuBLAS status " + std::to_string(static_cast<int>(status)) + ", while " + what};
}
void require(cusolverStatus_t status, const char* what) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  require(cudaGetLastError(), what);
  throw LargeStop{status == CUSOLVER_STATUS_ALLOC_FAILED ? LargeStatus::kOutOfMemory : LargeStatus::kFault,
                  "cuSOLVER status " + std::to_string(static_cast<int>(status)) + ", while " + what};
}

LargeLane::LargeLane(int which) : device(which), transfers(transfer_threads()) {
  const Libraries& l = libraries();
  if (!l.refusal.empty()) throw LargeStop{LargeStatus::kFault, l.refusal};
  try {
    require(cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "asking for multiprocessors");
    require(cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
            "asking for shared memory");
    int least = 0, greatest = 0;
    require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, least), "creating a stream");
    require(cudaStreamCreateWithPriority(&beside, cudaStreamNonBlocking, least), "creating a stream");
    // Lower numbers go first.
    require(cudaStreamCreateWithPriority(&ahead, cudaStreamNonBlocking, std::max(least - 1, greatest)),
            "creating a stream");
    for (Rotations& of_half : rotations) {
      require(cudaStreamCreateWithPriority(&of_half.stream, cudaStreamNonBlocking, std::max(least - 1, greatest)),
              "creating a stream");
      for (cudaEvent_t* const event : {&of_half.begin, &of_half.end}) {
        require(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "creating an event");
      }
    }
    require(l.cublasCreate_v2(&cublas), "opening cuBLAS");
    require(l.cublasSetStream_v2(cublas, stream), "opening cuBLAS");
    require(l.cublasCreate_v2(&cublas_ahead), "opening cuBLAS");
    require(l.cublasSetStream_v2(cublas_ahead, ahead), "opening cuBLAS");
    require(l.cusolverDnCreate(&cusolver), "opening cuSOLVER");
    require(l.cusolverDnSetStream(cusolver, stream), "opening cuSOLVER");
    require(l.cusolverDnCreateParams(&params), "opening cuSOLVER");
    void* memory = nullptr;
    require(cudaHostAlloc(&memory, 2 * kTransferBytes, cudaHostAllocPortable), "allocating pinned memory");
    pinned[0] = static_cast<char*>(memory);
    pinned[1] = pinned[0] + kTransferBytes;
    for (cudaEvent_t& event : transferred) {
      require(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming), "creating an event");
    }
    for (cudaEvent_t& event : passed_on) {
      require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    }
    require(cudaEventCreateWithFlags(&waited, cudaEventBlockingSync | cudaEventDisableTiming), "creating an event");
  } catch (...) {
    release();
    throw;
  }
}

LargeLane::~LargeLane() { release(); }

void LargeLane::release() {
  const Libraries& l = libraries();
  if (params != nullptr) (void)l.cusolverDnDestroyParams(params);
  if (cusolver != nullptr) (void)l.cusolverDnDestroy(cusolver);
  if (cublas_ahead != nullptr) (void)l.cublasDestroy_v2(cublas_ahead);
  if (cublas != nullptr) (void)l.cublasDestroy_v2(cublas);
  if (pinned[0] != nullptr) (void)cudaFreeHost(pinned[0]);
  for (cudaEvent_t event : transferred) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  for (cudaEvent_t event : passed_on) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  for (const Rotations& of_half : rotations) {
    for (const cudaEvent_t event : {of_half.begin, of_half.end}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (of_half.stream != nullptr) (void)cudaStreamDestroy(of_half.stream);
  }
  if (waited != nullptr) (void)cudaEventDestroy(waited);
  if (ahead != nullptr) (void)cudaStreamDestroy(ahead);
  if (beside != nullptr) (void)cudaStreamDestroy(beside);
  if (stream != nullptr) (void)cudaStreamDestroy(stream);
  (void)cudaGetLastError();
}

TwoStreams::TwoStreams(LargeLane& lane, cudaStream_t other) : lane_(lane), other_(other) {
  pass_on(0);
  await_other(1);
}

TwoStreams::~TwoStreams() {
  (void)cudaEventRecord(lane_.passed_on[1], other_);
  (void)cudaStreamWaitEvent(lane_.stream, lane_.passed_on[1], 0);
}

void TwoStreams::pass_on(int i) { require(cudaEventRecord(lane_.passed_on[i], of(i)), "recording an event"); }

void TwoStreams::await_other(int i) {
  require(cudaStreamWaitEvent(of(i), lane_.passed_on[1 - i], 0), "waiting for an event");
}

std::unique_ptr<LargeLane> take_lane(int device) {
  {
    const std::lock_guard lock(idle().mutex);
    auto& lanes = idle().lanes;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i]->device != device) continue;
      std::unique_ptr<LargeLane> lane = std::move(lanes[i]);
      lanes.erase(lanes.begin() + static_cast<std::ptrdiff_t>(i));
      return lane;
    }
  }
  return std::make_unique<LargeLane>(device);
}

void keep_lane(std::unique_ptr<LargeLane> lane) {
  const std::lock_guard lock(idle().mutex);
  idle().lanes.push_back(std::move(lane));
}

}  // namespace svdserve::cuda
