// The engine's facade for GPUs: the same plans, the same bits. A CudaEngine is one GPU. It opens what it needs of CUDA
// when the first one is asked for, so a program that links it runs without a driver.
#ifndef SVDSERVE_ENGINE_CUDA_ENGINE_H_
#define SVDSERVE_ENGINE_CUDA_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "engine/cuda_outcome.h"
#include "engine/execution.h"
#include "engine/planner.h"

struct CUstream_st;  // CUstream and cudaStream_t point to it

namespace svdserve {

struct CudaDeviceDescription {
  int ordinal = 0;  // as CUDA counts
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
};

// How many GPUs can be used. 0: `why_not`, if given, says why.
int cuda_device_count(std::string* why_not = nullptr);

// A slot is never smaller.
inline constexpr uint64_t kLeastSlotBytes = uint64_t{8} << 20;

struct CudaEngineOptions {
  int ordinal = 0;
  int lanes = 1;                          // calls of execute() at once
  uint64_t slot_bytes = kLeastSlotBytes;  // of operands, and of results, that travel together
};

// Thread safety: launch() from any thread; execute() at once for different lanes, never for the same one.
class CudaEngine {
 public:
  // Allocates every lane's memory: pinned and on the device. Null: `status` says why.
  static std::unique_ptr<CudaEngine> open(const CudaEngineOptions& options, CudaStatus* status);
  // Frees what the lanes have; what belongs to a dead context is left alone.
  ~CudaEngine();
  CudaEngine(const CudaEngine&) = delete;
  CudaEngine& operator=(const CudaEngine&) = delete;

  const CudaDeviceDescription& description() const;
  int lanes() const;

  // --- matrices that are on the GPU already ---

  uint64_t workspace_bytes(const Plan& plan, int64_t count) const;
  // Enqueues on `stream` and returns; errors of the kernels themselves show when the stream is waited for. Where
  // is_side_by_side(plan) it waits for all sweeps but the last one.
  CudaStatus launch(const Plan& plan, const DeviceBatch& batch, CUstream_st* stream) const;

  // --- matrices in host memory ---

  using Outcome = CudaOutcome;
  // As SvdEngine::execute(): blocks, asleep, until the values are written. A batch larger than a slot goes through the
  // lane's slots one after the other, so that upload, computation and download of successive pieces overlap. The device
  // memory of slots grows for a group of matrices that is larger. It also grows for large matrices, of which a piece has
  // one for each multiprocessor. Segments in pinned memory are read and written in place, others are copied once through
  // the lane's pinned memory.
  Outcome execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                  const std::atomic<bool>* cancel = nullptr);

  // Since open(): bytes of operands and of results that crossed the bus.
  uint64_t bytes_uploaded() const;
  uint64_t bytes_downloaded() const;
  // Bytes of device memory that the lanes have now.
  uint64_t bytes_allocated() const;

 private:
  struct Impl;
  explicit CudaEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Host memory that the copy engines reach themselves.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // data() is null where there is no CUDA or no memory.
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CUDA_ENGINE_H_
