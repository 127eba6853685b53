#include "engine/backends/cuda_door/cuda_lane.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

namespace svdserve::cuda {
namespace {

// A run below this is copied: to ask whether it is pinned costs as much.
constexpr uint64_t kLeastInPlaceBytes = 256 * 1024;
// The workspace to which a slot may grow for matrices side by side, and for vectors by bidiagonalization. It is enough for
// the operands that fit a slot. Both take nearly as long for fewer matrices.
constexpr uint64_t kLargeWorkspace = uint64_t{256} << 20;

// Operands of a batch, in a segment.
struct Operands {
  const void* HostSegment::*data;
  size_t bytes;  // a matrix
  const std::byte* of(const HostSegment& s, int64_t first) const {
    return static_cast<const std::byte*>(s.*data) + static_cast<size_t>(first) * bytes;
  }
};
Operands matrices_of(const Plan& plan) { return {&HostSegment::matrices, stored_bytes(plan.problem)}; }
Operands starting_vectors_of(const Plan& plan) { return {&HostSegment::starting_vectors, starting_bytes(plan)}; }

// Planes lie one after the other in a slot, each aligned, so that kernels may store whole elements.
constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

// In a slot starting vectors follow the matrices, aligned where there are any.
uint64_t starting_vectors_at(const Plan& plan, int64_t count) {
  const uint64_t bytes = static_cast<uint64_t>(count) * stored_bytes(plan.problem);
  return plan.starting_vectors ? aligned(bytes) : bytes;
}
uint64_t operand_bytes_in_slot(const Plan& plan, int64_t count) {
  return starting_vectors_at(plan, count) + static_cast<uint64_t>(count) * starting_bytes(plan);
}

uint64_t result_bytes_in_slot(const Plan& plan, int64_t count) {
  uint64_t bytes = 0;
  for (int i = 0; i < kPlanes; ++i) bytes += aligned(plane_bytes(plan, static_cast<Plane>(i), count));
  return bytes;
}

// Calls f(plane, bytes, offset in the slot's results) for the planes of `count` matrices.
template <class F>
void for_each_plane(const Plan& plan, int64_t count, F f) {
  uint64_t at = 0;
  for (int i = 0; i < kPlanes; ++i) {
    const uint64_t bytes = plane_bytes(plan, static_cast<Plane>(i), count);
    if (bytes > 0) f(static_cast<Plane>(i), bytes, at);
    at += aligned(bytes);
  }
}

// Operands of all runs to the slot's byte `at`. Pinned runs from where they are; the others are gathered in the slot's
// pinned memory first, neighbours together. copy(from, to, bytes) enqueues a copy from host memory.
template <class Runs, class IsPinned, class Copy>
int upload_operands(const Runs& runs, const Operands& operands, IsPinned is_pinned, std::byte* staging, size_t at,
                    Copy copy) {
  size_t done = at, gathered = 0;  // bytes: enqueued, and those that lie in the slot behind them
  const auto enqueue = [&](const void* from, size_t bytes) {
    const int e = bytes == 0 ? 0 : copy(from, done, bytes);
    done += bytes;
    return e;
  };
  for (const auto& run : runs) {
    const std::byte* const from = operands.of(*run.segment, run.first);
    const size_t bytes = static_cast<size_t>(run.count) * operands.bytes;
    if (!is_pinned(run)) {
      std::memcpy(staging + done + gathered, from, bytes);
      gathered += bytes;
      continue;
    }
    int e = enqueue(staging + done, std::exchange(gathered, 0));
    if (e == 0) e = enqueue(from, bytes);
    if (e != 0) return e;
  }
  return enqueue(staging + done, gathered);
}

}  // namespace

CudaStatus DeviceApi::status(int error, const char* what) const {
  if (error == 0) return {};
  return {error, std::string(api_->error_name(error)) + ": " + api_->error_text(error) + ", while " + what, false};
}

// Results may be a quarter larger than operands (values, a status a matrix); what gives more of them fills a slot with
// fewer matrices. The workspace lets every method but BISECTION of the smallest matrices fill a slot.
CudaLane::CudaLane(DeviceApi api, uint64_t slot_bytes, Traffic* traffic)
    : api_(api),
      traffic_(traffic),
      size_{slot_bytes, kCountBytes + slot_bytes + slot_bytes / 4 + 256, 2 * slot_bytes} {}

CudaLane::~CudaLane() {
  if (dead_) return;
  for (Slot& slot : slots_) {
    if (slot.event != nullptr) api_->destroy_event(api_.device(), slot.event);
    if (slot.stream != nullptr) api_->destroy_stream(api_.device(), slot.stream);
    for (void* const memory : {slot.device_in, slot.device_out, slot.workspace}) {
      if (memory != nullptr) api_->release(api_.device(), memory);
    }
    for (void* const memory : {slot.pinned_in, slot.pinned_out}) {
      if (memory != nullptr) api_->release_pinned(memory);
    }
  }
}

CudaStatus CudaLane::allocate() {
  const int d = api_.device();
  for (Slot& slot : slots_) {
    if (int e = api_->create_stream(d, &slot.stream); e != 0) return api_.status(e, "creating a stream");
    if (int e = api_->create_event(d, &slot.event); e != 0) return api_.status(e, "creating an event");
    if (CudaStatus status = grow(&slot, size_); !status.ok()) return status;
  }
  return {};
}

// Makes the buffers of a free slot at least so large. After an error the slot has the smaller ones, or none.
CudaStatus CudaLane::grow(Slot* slot, const SlotSize& size) {
  const int d = api_.device();
  const auto device_memory = [&](void** memory, uint64_t* has, uint64_t bytes) {
    if (*memory != nullptr) api_->release(d, std::exchange(*memory, nullptr));
    traffic_->allocated.fetch_sub(std::exchange(*has, 0), std::memory_order_relaxed);
    const int error = api_->allocate(d, bytes, memory);
    if (error == 0) traffic_->allocated.fetch_add(*has = bytes, std::memory_order_relaxed);
    return api_.status(error, "allocating device memory");
  };
  const auto pinned_memory = [&](void** memory, uint64_t bytes) {
    if (*memory != nullptr) api_->release_pinned(std::exchange(*memory, nullptr));
    return api_.status(api_->allocate_pinned(bytes, memory), "allocating pinned memory");
  };
  CudaStatus status;
  if (size.in > slot->size.in) {
    slot->size.in = 0;
    if (status = pinned_memory(&slot->pinned_in, size.in); !status.ok()) return status;
    if (status = device_memory(&slot->device_in, &slot->on_device.in, size.in); !status.ok()) return status;
    slot->size.in = size.in;
  }
  if (size.out > slot->size.out) {
    slot->size.out = 0;
    if (status = pinned_memory(&slot->pinned_out, size.out); !status.ok()) return status;
    if (status = device_memory(&slot->device_out, &slot->on_device.out, size.out); !status.ok()) return status;
    slot->size.out = size.out;
  }
  if (size.workspace > slot->size.workspace) {
    slot->size.workspace = 0;
    if (status = device_memory(&slot->workspace, &slot->on_device.workspace, size.workspace); !status.ok()) {
      return status;
    }
    slot->size.workspace = size.workspace;
  }
  return {};
}

CudaLane::SlotSize CudaLane::size_of(const Plan& plan, int64_t count) const {
  const uint64_t matrices = static_cast<uint64_t>(count);
  return {operand_bytes_in_slot(plan, count), kCountBytes + result_bytes_in_slot(plan, count) + matrices,
          api_->workspace_bytes(&plan, count)};
}

// Whole groups, and one at least, for which a slot may have to grow.
int64_t CudaLane::matrices_per_piece(const Plan& plan) const {
  const int64_t group = plan.outputs.group;
  int64_t groups = static_cast<int64_t>(size_.in / (operand_bytes(plan) * static_cast<uint64_t>(group)));
  SlotSize most = size_;
  if (is_side_by_side(plan) || is_by_rows(plan)) most.workspace = std::max(most.workspace, kLargeWorkspace);
  while (groups > 1 && !most.holds(size_of(plan, groups * group))) groups = groups * 7 / 8;
  return std::max<int64_t>(groups, 1) * group;
}

// --- one piece ---------------------------------------------------------------------------------------

CudaLane::Run CudaLane::make_run(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const {
  const auto is_pinned = [&](const Operands& operands) {
    const bool large = static_cast<uint64_t>(count) * operands.bytes >= kLeastInPlaceBytes;
    return large && api_->is_pinned(operands.of(segment, first)) != 0;
  };
  return {&segment, first, count, is_pinned(matrices_of(plan)),
          plan.starting_vectors && is_pinned(starting_vectors_of(plan))};
}

PlanePointers CudaLane::planes_of(const Run& run, const Plan& plan) {
  return planes_from(plan, run.segment->planes, run.first);
}

bool CudaLane::planes_are_pinned(const Run& run, const Plan& plan) const {
  bool all = true;
  const PlanePointers planes = planes_of(run, plan);
  for (void* const plane : planes.at) all = all && (plane == nullptr || api_->is_pinned(plane) != 0);
  return all;
}

CudaStatus CudaLane::upload(Slot* slot, const Plan& plan) {
  std::byte* const staging = static_cast<std::byte*>(slot->pinned_in);
  std::byte* const device = static_cast<std::byte*>(slot->device_in);
  const Piece& piece = slot->piece;
  const auto copy = [&](const void* from, size_t to, size_t bytes) {
    return api_->copy_to_device(api_.device(), device + to, from, bytes, slot->stream);
  };
  int e = upload_operands(
      piece.runs, matrices_of(plan), [](const Run& run) { return run.pinned; }, staging, 0, copy);
  if (e == 0 && plan.starting_vectors) {
    e = upload_operands(
        piece.runs, starting_vectors_of(plan), [](const Run& run) { return run.start_pinned; }, staging,
        starting_vectors_at(plan, piece.count), copy);
  }
  traffic_->uploaded.fetch_add(static_cast<uint64_t>(piece.count) * operand_bytes(plan), std::memory_order_relaxed);
  return api_.status(e, "uploading matrices");
}

CudaStatus CudaLane::start(Slot* slot, const Plan& plan) {
  const int d = api_.device();
  const Piece& piece = slot->piece;
  const uint64_t results = result_bytes_in_slot(plan, piece.count);
  if (const SlotSize size = size_of(plan, piece.count); !size_.holds(size)) {
    if (CudaStatus status = grow(slot, size); !status.ok()) return status;
  }
  if (CudaStatus status = upload(slot, plan); !status.ok()) return status;
  std::byte* const out = static_cast<std::byte*>(slot->device_out);
  if (int e = api_->clear(d, out, kCountBytes, slot->stream); e != 0) return api_.status(e, "clearing counts");
  DeviceBatch batch{slot->device_in,
                    piece.count,
                    {},
                    reinterpret_cast<uint8_t*>(out + kCountBytes + results),
                    reinterpret_cast<uint64_t*>(out),
                    slot->workspace,
                    static_cast<std::byte*>(slot->device_in) + starting_vectors_at(plan, piece.count)};
  for_each_plane(plan, piece.count,
                 [&](Plane plane, uint64_t, uint64_t at) { batch.planes[plane] = out + kCountBytes + at; });
  if (int e = api_->launch(d, &plan, &batch, slot->stream); e != 0) return api_.status(e, "launching kernels");
  int e = 0;
  if (piece.results_in_place) {
    e = api_->copy_to_host(d, slot->pinned_out, out, kCountBytes, slot->stream);
    const PlanePointers to = planes_of(piece.runs.front(), plan);
    for_each_plane(plan, piece.count, [&](Plane plane, uint64_t bytes, uint64_t at) {
      if (e == 0 && to[plane] != nullptr) {
        e = api_->copy_to_host(d, to[plane], out + kCountBytes + at, bytes, slot->stream);
      }
    });
  } else {
    e = api_->copy_to_host(d, slot->pinned_out, out, kCountBytes + results, slot->stream);
  }
  if (e != 0) return api_.status(e, "downloading results");
  traffic_->downloaded.fetch_add(kCountBytes + results, std::memory_order_relaxed);
  return api_.status(api_->record(d, slot->event, slot->stream), "recording an event");
}

// The statuses, which are of interest only where they are not all OK.
CudaStatus CudaLane::fetch_statuses(Slot* slot, uint64_t result_bytes) {
  const int d = api_.device();
  const uint64_t at = kCountBytes + result_bytes, bytes = static_cast<uint64_t>(slot->piece.count);
  int e = api_->copy_to_host(d, static_cast<std::byte*>(slot->pinned_out) + at,
                             static_cast<std::byte*>(slot->device_out) + at, bytes, slot->stream);
  if (e == 0) e = api_->record(d, slot->event, slot->stream);
  if (e == 0) e = api_->wait(d, slot->event);
  traffic_->downloaded.fetch_add(bytes, std::memory_order_relaxed);
  return api_.status(e, "downloading statuses");
}

// Waits for the slot's piece and hands it out; the slot is free afterwards.
CudaStatus CudaLane::finish(Slot* slot, const Plan& plan, ConvergenceReport* report) {
  if (int e = api_->wait(api_.device(), slot->event); e != 0) return api_.status(e, "computing");
  const Piece piece = std::exchange(slot->piece, Piece{});
  const uint64_t results = result_bytes_in_slot(plan, piece.count);
  const std::byte* const out = static_cast<const std::byte*>(slot->pinned_out);
  uint64_t exceptions[kMatrixStatuses];
  std::memcpy(exceptions, out, sizeof(exceptions));
  const uint64_t not_ok = std::accumulate(exceptions + 1, exceptions + kMatrixStatuses, uint64_t{0});
  const bool all_ok = not_ok == 0;
  if (!all_ok) {
    slot->piece.count = piece.count;
    // After an error the slot is not free: abandon() waits for what was enqueued.
    if (CudaStatus status = fetch_statuses(slot, results); !status.ok()) return status;
    slot->piece = Piece{};
  }
  int64_t done = 0;
  for (const Run& run : piece.runs) {
    if (!piece.results_in_place) {
      const PlanePointers to = planes_of(run, plan);
      for_each_plane(plan, piece.count, [&](Plane plane, uint64_t, uint64_t at) {
        const std::byte* const from = out + kCountBytes + at + plane_bytes(plan, plane, done);
        if (to[plane] != nullptr) std::memcpy(to[plane], from, plane_bytes(plan, plane, run.count));
      });
    }
    if (run.segment->statuses != nullptr) {
      MatrixStatus* const to = run.segment->statuses + run.first;
      if (all_ok) {
        std::fill_n(to, run.count, MatrixStatus::kOk);
      } else {
        std::memcpy(to, out + kCountBytes + results + done, static_cast<size_t>(run.count));
      }
    }
    done += run.count;
  }
  report->non_finite += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNonFinite)]);
  report->not_converged += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNotConverged)]);
  report->out_of_range += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kOutOfRange)]);
  report->by_qr += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kByQr)]);
  report->near_defective += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNearDefective)]);
  report->ok += piece.count - static_cast<int64_t>(not_ok);
  return {};
}

// --- a batch -----------------------------------------------------------------------------------------

CudaOutcome CudaLane::execute(const Plan& plan, absl::Span<const HostSegment> segments,
                              const std::atomic<bool>* cancel) {
  CudaOutcome outcome;
  const int64_t most = matrices_per_piece(plan);
  const auto fail = [&](CudaStatus status) {
    abandon();
    status.sticky = context_is_dead();
    outcome.status = std::move(status);
    return outcome;
  };
  int next = 0;  // slot
  size_t s = 0;
  int64_t first = 0;  // of segment s
  while (s < segments.size()) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      abandon();
      return outcome;  // not completed
    }
    Piece piece;
    for (; s < segments.size() && piece.count < most; first = 0, ++s) {
      const int64_t left = segments[s].count - first;
      if (left == 0) continue;
      const int64_t take = std::min(left, most - piece.count);
      piece.runs.push_back(make_run(segments[s], first, take, plan));
      piece.count += take;
      if (take < left) {
        first += take;
        break;
      }
    }
    if (piece.count == 0) break;
    Slot& slot = slots_[next];
    if (slot.piece.count > 0) {
      if (CudaStatus status = finish(&slot, plan, &outcome.execution.report); !status.ok()) return fail(status);
    }
    if (piece.runs.size() == 1 && piece.runs.front().pinned) {
      piece.results_in_place = planes_are_pinned(piece.runs.front(), plan);
    }
    slot.piece = std::move(piece);
    if (CudaStatus status = start(&slot, plan); !status.ok()) return fail(status);
    next = (next + 1) % kSlots;
  }
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[(next + i) % kSlots];
    if (slot.piece.count == 0) continue;
    if (CudaStatus status = finish(&slot, plan, &outcome.execution.report); !status.ok()) return fail(status);
  }
  outcome.execution.completed = true;
  return outcome;
}

// Waits until the device touches no slot any more: the segments are the caller's again when execute() returns.
void CudaLane::abandon() {
  for (Slot& slot : slots_) {
    if (slot.piece.count == 0) continue;
    // The event may not have been recorded: what was enqueued comes before this record.
    if (api_->record(api_.device(), slot.event, slot.stream) == 0) api_->wait(api_.device(), slot.event);
    slot.piece = Piece{};
  }
}

// After an error: a dead context fails every call.
bool CudaLane::context_is_dead() {
  Slot& slot = slots_[0];
  int e = api_->clear(api_.device(), slot.device_out, kCountBytes, slot.stream);
  if (e == 0) e = api_->record(api_.device(), slot.event, slot.stream);
  if (e == 0) e = api_->wait(api_.device(), slot.event);
  dead_ = e != 0;
  return dead_;
}

}  // namespace svdserve::cuda
