// A lane of one GPU: slots of pinned and device memory with a stream each. A batch goes through them piece by piece: while
// one slot computes, the next uploads and the one before downloads. Device memory grows for large matrices, so that a
// piece has one for each multiprocessor. Pinned memory does not: what is larger passes it in parts.
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

// All lanes of a device have one.
struct Traffic {
  std::atomic<uint64_t> uploaded{0}, downloaded{0};
  std::atomic<uint64_t> allocated{0};  // bytes of device memory, now
  // Bytes to which slots grow, together and each, but for a group that needs more: the rest is for large matrices.
  uint64_t room = 0, room_of_slot = 0;
};

// Thread-compatible.
class CudaLane {
 public:
  static constexpr int kSlots = 3;

  // multiprocessors: of the GPU.
  CudaLane(DeviceApi api, uint64_t slot_bytes, int multiprocessors, Traffic* traffic);
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
    bool results_pinned;        // downloaded to where they belong
  };
  // Where the results of a piece are once it is computed.
  enum class Results : uint8_t {
    kInPlace,   // where they belong, which is pinned in every run
    kPinned,    // in the slot's pinned memory
    kOnDevice,  // which are more than that has room for
  };
  // The contents of a slot.
  struct Piece {
    std::vector<Run> runs;
    int64_t count = 0;
    Results results = Results::kPinned;
  };
  // The next matrix of a batch.
  struct Place {
    size_t segment = 0;
    int64_t matrix = 0;  // of the segment
  };
  // Bytes of a slot's buffers.
  struct SlotSize {
    uint64_t in, out, workspace;
    bool holds(const SlotSize& size) const { return size.in <= in && size.out <= out && size.workspace <= workspace; }
    uint64_t total() const { return in + out + workspace; }
  };
  struct Slot {
    CUstream_st* stream = nullptr;
    CUevent_st* event = nullptr;
    void* pinned_in = nullptr;   // size_.in
    void* pinned_out = nullptr;  // size_.out
    void* device_in = nullptr;
    void* device_out = nullptr;  // exception counts, planes, statuses
    void* workspace = nullptr;
    SlotSize on_device{};  // what device_in, device_out and workspace have
    Piece piece;           // empty: the slot is free
  };
  class Upload;
  static constexpr uint64_t kCountBytes = 8 * sizeof(uint64_t);  // kMatrixStatuses, and aligned planes after them

  SlotSize size_of(const Plan& plan, int64_t count) const;
  bool may_grow(const Slot& slot, const SlotSize& size) const;
  CudaStatus grow(Slot* slot, const SlotSize& size, bool beyond);
  int64_t matrices_per_piece(const Plan& plan) const;
  Piece next_piece(const Plan& plan, absl::Span<const HostSegment> segments, int64_t most, Place* place) const;
  Run make_run(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const;
  static PlanePointers planes_of(const Run& run, const Plan& plan);
  bool are_results_pinned(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const;
  CudaStatus upload(Slot* slot, const Plan& plan);
  CudaStatus start(Slot* slot, const Plan& plan);
  CudaStatus download(Slot* slot, const Plan& plan);
  CudaStatus finish(Slot* slot, const Plan& plan, ConvergenceReport* report);
  template <class F>
  static void for_each_plane_of_runs(const Piece& piece, const Plan& plan, F f);
  CudaStatus hand_out(Slot* slot, const Plan& plan);
  CudaStatus fetch(Slot* slot, uint64_t from, void* to, uint64_t bytes);
  void abandon();
  bool has_results_in_place() const;
  bool context_is_dead();

  const DeviceApi api_;
  Traffic* const traffic_;
  const SlotSize size_;  // of every slot at the start, and of its pinned memory
  const int multiprocessors_;
  Slot slots_[kSlots];
  bool dead_ = false;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DOOR_CUDA_LANE_H_
