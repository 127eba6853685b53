// A lane of one GPU: slots of pinned and device memory with a stream each, allocated once. A batch goes through them
// piece by piece: while one slot computes, the next uploads and the one before downloads.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_CUDA_LANE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_CUDA_LANE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/backends/cuda_door/plugin_abi.h"
#include "engine/cuda_outcome.h"
#include "engine/planner.h"

namespace svdserve::cuda {

// Calls the plugin for one device and turns what it returns into a CudaStatus.
class DeviceApi {
 public:
  DeviceApi(const SvdserveCudaApi* api, int device) : api_(api), device_(device) {}

  const SvdserveCudaApi* operator->() const { return api_; }
  int device() const { return device_; }
  // `what` completes "while ...".
  CudaStatus status(int error, const char* what) const;

 private:
  const SvdserveCudaApi* api_;
  int device_;
};

struct Traffic {
  std::atomic<uint64_t> uploaded{0}, downloaded{0};
  std::atomic<uint64_t> allocated{0};  // bytes of device memory, now
};

// Thread-compatible.
class CudaLane {
 public:
  CudaLane(DeviceApi api, uint64_t slot_bytes, Traffic* traffic);
  // Frees everything, unless the context died.
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  // Once, before execute().
  CudaStatus allocate();
  CudaOutcome execute(const Plan& plan, absl::Span<const HostSegment> segments, const std::atomic<bool>* cancel);

 private:
  // Consecutive matrices of one segment.
  struct Run {
    const HostSegment* segment;
    int64_t first;
    int64_t count;
    bool pinned, start_pinned;  // the matrices, and their starting vectors: uploaded from where they are
  };
  // The contents of a slot.
  struct Piece {
    std::vector<Run> runs;
    int64_t count = 0;
    bool results_in_place = false;  // one run, whose results are pinned: downloaded to where they belong
  };
  // Bytes of a slot's buffers.
  struct SlotSize {
    uint64_t in, out, workspace;
    bool holds(const SlotSize& size) const { return size.in <= in && size.out <= out && size.workspace <= workspace; }
  };
  struct Slot {
    SlotSize size{};
    CUstream_st* stream = nullptr;
    CUevent_st* event = nullptr;
    void* pinned_in = nullptr;
    void* pinned_out = nullptr;
    void* device_in = nullptr;
    void* device_out = nullptr;  // exception counts, planes, statuses
    void* workspace = nullptr;
    SlotSize on_device{};  // what device_in, device_out and workspace have
    Piece piece;           // empty: the slot is free
  };
  static constexpr int kSlots = 3;
  static constexpr uint64_t kCountBytes = 8 * sizeof(uint64_t);  // kMatrixStatuses, and aligned planes after them

  SlotSize size_of(const Plan& plan, int64_t count) const;
  CudaStatus grow(Slot* slot, const SlotSize& size);
  int64_t matrices_per_piece(const Plan& plan) const;
  Run make_run(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const;
  static PlanePointers planes_of(const Run& run, const Plan& plan);
  bool planes_are_pinned(const Run& run, const Plan& plan) const;
  CudaStatus upload(Slot* slot, const Plan& plan);
  CudaStatus start(Slot* slot, const Plan& plan);
  CudaStatus finish(Slot* slot, const Plan& plan, ConvergenceReport* report);
  CudaStatus fetch_statuses(Slot* slot, uint64_t result_bytes);
  void abandon();
  bool context_is_dead();

  const DeviceApi api_;
  Traffic* const traffic_;
  const SlotSize size_;  // of every slot at the start
  Slot slots_[kSlots];
  bool dead_ = false;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_CUDA_LANE_H_
