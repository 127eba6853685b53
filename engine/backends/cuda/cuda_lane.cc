#include "engine/backends/cuda/cuda_lane.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace svdserve::cuda {
namespace {

// A run below this is copied: to ask whether it is pinned costs as much.
constexpr uint64_t kLeastInPlaceBytes = 256 * 1024;

const std::byte* matrices_of(const HostSegment& s, int64_t first, const Problem& p) {
  return static_cast<const std::byte*>(s.matrices) + static_cast<size_t>(first) * matrix_bytes(p);
}
std::byte* values_of(const HostSegment& s, int64_t first, const Problem& p) {
  return static_cast<std::byte*>(s.values) + static_cast<size_t>(first) * result_bytes(p);
}

}  // namespace

CudaStatus DeviceApi::status(int error, const char* what) const {
  if (error == 0) return {};
  return {error, std::string(api_->error_name(error)) + ": " + api_->error_text(error) + ", while " + what, false};
}

SvdserveCudaPlan plain_plan(const Plan& plan) {
  return {plan.problem.rows,
          plan.problem.cols,
          static_cast<int32_t>(plan.problem.dtype),
          static_cast<int32_t>(plan.problem.order),
          static_cast<int32_t>(plan.method),
          plan.max_sweeps,
          plan.tolerance};
}

// The workspace lets every method but BISECTION of the smallest matrices fill a slot.
CudaLane::CudaLane(DeviceApi api, uint64_t slot_bytes, Traffic* traffic)
    : api_(api), slot_bytes_(slot_bytes), workspace_bytes_(2 * slot_bytes), traffic_(traffic) {}

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
  // No value is larger than its matrix' element, and a status is a byte for at least four of a matrix.
  const uint64_t out_bytes = kCountBytes + slot_bytes_ + slot_bytes_ / 4 + 256;
  const int d = api_.device();
  for (Slot& slot : slots_) {
    const std::pair<int, const char*> steps[] = {
        {api_->create_stream(d, &slot.stream), "creating a stream"},
        {api_->create_event(d, &slot.event), "creating an event"},
        {api_->allocate_pinned(slot_bytes_, &slot.pinned_in), "allocating pinned memory"},
        {api_->allocate_pinned(out_bytes, &slot.pinned_out), "allocating pinned memory"},
        {api_->allocate(d, slot_bytes_, &slot.device_in), "allocating device memory"},
        {api_->allocate(d, out_bytes, &slot.device_out), "allocating device memory"},
        {api_->allocate(d, workspace_bytes_, &slot.workspace), "allocating device memory"},
    };
    for (const auto& [error, what] : steps) {
      if (error != 0) return api_.status(error, what);
    }
  }
  return {};
}

int64_t CudaLane::matrices_per_piece(const Plan& plan, const SvdserveCudaPlan& plain) const {
  int64_t count = std::max<int64_t>(1, static_cast<int64_t>(slot_bytes_ / matrix_bytes(plan.problem)));
  while (count > 1 && api_->workspace_bytes(&plain, count) > workspace_bytes_) count = count * 3 / 4;
  return count;
}

// --- one piece ---------------------------------------------------------------------------------------

CudaLane::Run CudaLane::make_run(const HostSegment& segment, int64_t first, int64_t count,
                                 const Problem& problem) const {
  const void* const matrices = matrices_of(segment, first, problem);
  const bool large = static_cast<uint64_t>(count) * matrix_bytes(problem) >= kLeastInPlaceBytes;
  return {&segment, first, count, large && api_->is_pinned(matrices) != 0};
}

// Pinned runs from where they are; the others are gathered in the slot's pinned memory first, neighbours together.
CudaStatus CudaLane::upload(Slot* slot, const Problem& problem) {
  std::byte* const staging = static_cast<std::byte*>(slot->pinned_in);
  std::byte* const device = static_cast<std::byte*>(slot->device_in);
  size_t done = 0, gathered = 0;  // bytes: enqueued, and those that lie in the slot behind them
  const auto enqueue = [&](const void* from, size_t bytes) {
    const int e = bytes == 0 ? 0 : api_->copy_to_device(api_.device(), device + done, from, bytes, slot->stream);
    done += bytes;
    return e;
  };
  for (const Run& run : slot->piece.runs) {
    const std::byte* const from = matrices_of(*run.segment, run.first, problem);
    const size_t bytes = static_cast<size_t>(run.count) * matrix_bytes(problem);
    if (!run.pinned) {
      std::memcpy(staging + done + gathered, from, bytes);
      gathered += bytes;
      continue;
    }
    int e = enqueue(staging + done, std::exchange(gathered, 0));
    if (e == 0) e = enqueue(from, bytes);
    if (e != 0) return api_.status(e, "uploading matrices");
  }
  const int e = enqueue(staging + done, gathered);
  traffic_->uploaded.fetch_add(done, std::memory_order_relaxed);
  return api_.status(e, "uploading matrices");
}

CudaStatus CudaLane::start(Slot* slot, const Plan& plan, const SvdserveCudaPlan& plain) {
  const int d = api_.device();
  const Piece& piece = slot->piece;
  const uint64_t values_bytes = static_cast<uint64_t>(piece.count) * result_bytes(plan.problem);
  if (CudaStatus status = upload(slot, plan.problem); !status.ok()) return status;
  std::byte* const out = static_cast<std::byte*>(slot->device_out);
  if (int e = api_->clear(d, out, kCountBytes, slot->stream); e != 0) return api_.status(e, "clearing counts");
  const SvdserveCudaBatch batch{slot->device_in,
                                piece.count,
                                out + kCountBytes,
                                reinterpret_cast<uint8_t*>(out + kCountBytes + values_bytes),
                                reinterpret_cast<uint64_t*>(out),
                                slot->workspace};
  if (int e = api_->launch(d, &plain, &batch, slot->stream); e != 0) return api_.status(e, "launching kernels");
  int e = 0;
  if (piece.values_in_place) {
    const Run& only = piece.runs.front();
    e = api_->copy_to_host(d, slot->pinned_out, out, kCountBytes, slot->stream);
    void* const to = values_of(*only.segment, only.first, plan.problem);
    if (e == 0) e = api_->copy_to_host(d, to, out + kCountBytes, values_bytes, slot->stream);
  } else {
    e = api_->copy_to_host(d, slot->pinned_out, out, kCountBytes + values_bytes, slot->stream);
  }
  if (e != 0) return api_.status(e, "downloading values");
  traffic_->downloaded.fetch_add(kCountBytes + values_bytes, std::memory_order_relaxed);
  return api_.status(api_->record(d, slot->event, slot->stream), "recording an event");
}

// The statuses, which are of interest only where they are not all OK.
CudaStatus CudaLane::fetch_statuses(Slot* slot, uint64_t values_bytes) {
  const int d = api_.device();
  const uint64_t at = kCountBytes + values_bytes, bytes = static_cast<uint64_t>(slot->piece.count);
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
  const uint64_t values_bytes = static_cast<uint64_t>(piece.count) * result_bytes(plan.problem);
  const std::byte* const out = static_cast<const std::byte*>(slot->pinned_out);
  uint64_t exceptions[4];
  std::memcpy(exceptions, out, sizeof(exceptions));
  const bool all_ok = exceptions[1] + exceptions[2] + exceptions[3] == 0;
  if (!all_ok) {
    slot->piece.count = piece.count;
    // After an error the slot is not free: abandon() waits for what was enqueued.
    if (CudaStatus status = fetch_statuses(slot, values_bytes); !status.ok()) return status;
    slot->piece = Piece{};
  }
  int64_t done = 0;
  for (const Run& run : piece.runs) {
    const size_t bytes = static_cast<size_t>(run.count) * result_bytes(plan.problem);
    const size_t at = static_cast<size_t>(done) * result_bytes(plan.problem);
    if (!piece.values_in_place) {
      std::memcpy(values_of(*run.segment, run.first, plan.problem), out + kCountBytes + at, bytes);
    }
    if (run.segment->statuses != nullptr) {
      MatrixStatus* const to = run.segment->statuses + run.first;
      if (all_ok) {
        std::fill_n(to, run.count, MatrixStatus::kOk);
      } else {
        std::memcpy(to, out + kCountBytes + values_bytes + done, static_cast<size_t>(run.count));
      }
    }
    done += run.count;
  }
  report->non_finite += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNonFinite)]);
  report->not_converged += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNotConverged)]);
  report->out_of_range += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kOutOfRange)]);
  report->ok += piece.count - static_cast<int64_t>(exceptions[1] + exceptions[2] + exceptions[3]);
  return {};
}

// --- a batch -----------------------------------------------------------------------------------------

CudaEngine::Outcome CudaLane::execute(const Plan& plan, absl::Span<const HostSegment> segments,
                                      const std::atomic<bool>* cancel) {
  CudaEngine::Outcome outcome;
  const SvdserveCudaPlan plain = plain_plan(plan);
  const int64_t most = matrices_per_piece(plan, plain);
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
      piece.runs.push_back(make_run(segments[s], first, take, plan.problem));
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
      const Run& only = piece.runs.front();
      piece.values_in_place = api_->is_pinned(values_of(*only.segment, only.first, plan.problem)) != 0;
    }
    slot.piece = std::move(piece);
    if (CudaStatus status = start(&slot, plan, plain); !status.ok()) return fail(status);
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
