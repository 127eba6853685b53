// Pieces of a job's memory, waiting, and one call of cuSOLVER with its memory and its verdict.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LIBRARY_WORK_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LIBRARY_WORK_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

// A piece of n elements. Throws LargeStop where none is so large.
template <class T>
T* take_piece(DeviceArena& arena, int64_t n) {
  const uint64_t bytes = static_cast<uint64_t>(n) * sizeof(T);
  void* const memory = arena.take(bytes);
  if (memory == nullptr) {
    throw large::LargeStop{LargeStatus::kOutOfMemory,
                           "a large matrix needs " + std::to_string(bytes) + " bytes more of device memory, where " +
                               std::to_string(arena.largest_piece()) + " are left of its own"};
  }
  return static_cast<T*>(memory);
}

// A piece of the arena for as long as the object lives.
template <class T>
class Piece {
 public:
  Piece(DeviceArena& arena, int64_t n) : arena_(arena), data_(take_piece<T>(arena, n)) {}
  ~Piece() { arena_.give_back(data_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  T* get() const { return data_; }

 private:
  DeviceArena& arena_;
  T* data_;
};

// Waits for all that was enqueued.
inline void wait_for(LargeLane& lane) {
  require(cudaEventRecord(lane.waited, lane.stream), "recording an event");
  require(cudaEventSynchronize(lane.waited), "computing a large matrix");
}

// Waits.
template <class T>
void download(LargeLane& lane, T* to, const T* from, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(T);
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, lane.stream), "downloading");
  wait_for(lane);
}

// The sizes are set, then it is allocated, then result() is asked for: the memory must live so long.
class LibraryWork {
 public:
  LibraryWork(LargeLane& lane, DeviceArena& arena) : lane_(lane), arena_(arena) {}
  ~LibraryWork() {
    if (is_own_) {
      (void)cudaFree(device);
    } else if (device != nullptr) {
      arena_.give_back(device);
    }
    if (info != nullptr) arena_.give_back(info);
  }
  LibraryWork(const LibraryWork&) = delete;
  LibraryWork& operator=(const LibraryWork&) = delete;

  void allocate() {
    device = arena_.take(device_bytes);
    // cuSOLVER wants more than large_memory() foresees for some shapes, very tall ones.
    is_own_ = device == nullptr;
    if (is_own_) require(cudaMalloc(&device, device_bytes), "allocating cuSOLVER's memory");
    info = take_piece<int>(arena_, 1);
    host = std::make_unique_for_overwrite<char[]>(host_bytes);
  }
  // Zero: it succeeded. Waits.
  int result() {
    int value = 0;
    download(lane_, &value, info, 1);
    return value;
  }
  void check(const char* what) {
    const int value = result();
    if (value == 0) return;
    throw large::LargeStop{LargeStatus::kFault,
                           "cuSOLVER refused argument " + std::to_string(-value) + ", while " + what};
  }

  size_t device_bytes = 0, host_bytes = 0;
  void* device = nullptr;
  int* info = nullptr;
  std::unique_ptr<char[]> host;

 private:
  LargeLane& lane_;
  DeviceArena& arena_;
  bool is_own_ = false;  // and not the arena's
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_LIBRARY_WORK_H_
