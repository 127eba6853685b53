#include "engine/backends/cuda_door/cuda_lane.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

namespace svdserve::cuda {
namespace {

// A run below this is copied: to ask whether it is pinned costs as much.
constexpr uint64_t kLeastInPlaceBytes = 256 * 1024;
// A dead context cannot be waited for, and a copy that was under way may still write to results in place. Those of all
// slots take milliseconds.
constexpr std::chrono::milliseconds kLastCopies(100);
// Bytes of operands, results and workspace to which a slot may grow for matrices side by side and by rows. Few of them take
// nearly as long as one on each multiprocessor.
constexpr uint64_t kLargeOperands = uint64_t{128} << 20, kLargeResults = uint64_t{288} << 20;
constexpr uint64_t kLargeWorkspace = uint64_t{1} << 30;

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

}  // namespace

CudaStatus DeviceApi::status(int error, const char* what) const {
  if (error == 0) return {};
  return {error, std::string(api_->error_name(error)) + ": " + api_->error_text(error) + ", while " + what, false};
}

// Results may be a quarter larger than operands (values, a status a matrix); what gives more of them fills a slot with
// fewer matrices. The workspace lets every method but BISECTION of the smallest matrices fill a slot.
CudaLane::CudaLane(DeviceApi api, uint64_t slot_bytes, int multiprocessors, Traffic* traffic)
    : api_(api),
      traffic_(traffic),
      size_{slot_bytes, kCountBytes + slot_bytes + slot_bytes / 4 + 256, 2 * slot_bytes},
      multiprocessors_(multiprocessors) {}

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
    for (const auto& [memory, bytes] : {std::pair(&slot.pinned_in, size_.in), {&slot.pinned_out, size_.out}}) {
      if (int e = api_->allocate_pinned(bytes, memory); e != 0) return api_.status(e, "allocating pinned memory");
    }
    if (CudaStatus status = grow(&slot, size_, true); !status.ok()) return status;
  }
  return {};
}

// Whether the lanes have room for a slot of this size. Several that ask at once may pass it by what one of them takes.
bool CudaLane::may_grow(const Slot& slot, const SlotSize& size) const {
  const auto more = [](uint64_t wanted, uint64_t has) { return wanted > has ? wanted - has : 0; };
  const SlotSize& has = slot.on_device;
  const uint64_t bytes = more(size.in, has.in) + more(size.out, has.out) + more(size.workspace, has.workspace);
  return bytes == 0 || traffic_->allocated.load(std::memory_order_relaxed) + bytes <= traffic_->room;
}

// Makes the device memory of a free slot at least so large. Without `beyond` it is an error to pass the lanes' room. After
// an error the slot has less, or none.
CudaStatus CudaLane::grow(Slot* slot, const SlotSize& size, bool beyond) {
  constexpr int kOutOfMemory = 2;  // cudaErrorMemoryAllocation
  if (!beyond && !may_grow(*slot, size)) return {kOutOfMemory, "the lanes have their share of device memory", false};
  const int d = api_.device();
  const auto grown = [&](void** memory, uint64_t* has, uint64_t bytes) -> CudaStatus {
    if (bytes <= *has) return {};
    if (*memory != nullptr) api_->release(d, std::exchange(*memory, nullptr));
    traffic_->allocated.fetch_sub(std::exchange(*has, 0), std::memory_order_relaxed);
    const int error = api_->allocate(d, bytes, memory);
    if (error == 0) traffic_->allocated.fetch_add(*has = bytes, std::memory_order_relaxed);
    return api_.status(error, "allocating device memory");
  };
  SlotSize* const has = &slot->on_device;
  CudaStatus status = grown(&slot->device_in, &has->in, size.in);
  if (status.ok()) status = grown(&slot->device_out, &has->out, size.out);
  if (status.ok()) status = grown(&slot->workspace, &has->workspace, size.workspace);
  return status;
}

CudaLane::SlotSize CudaLane::size_of(const Plan& plan, int64_t count) const {
  const uint64_t matrices = static_cast<uint64_t>(count);
  return {operand_bytes_in_slot(plan, count), kCountBytes + result_bytes_in_slot(plan, count) + matrices,
          api_->workspace_bytes(&plan, count)};
}

// Whole groups, and one at least, for which a slot may have to grow. All slots have room for such pieces at once, unless
// other plans have left them larger buffers.
int64_t CudaLane::matrices_per_piece(const Plan& plan) const {
  const int64_t group = plan.outputs.group;
  int64_t groups = static_cast<int64_t>(size_.in / (operand_bytes(plan) * static_cast<uint64_t>(group)));
  SlotSize most = size_;
  if (is_side_by_side(plan) || is_by_rows(plan)) {
    groups = std::max(groups, (multiprocessors_ + group - 1) / group);
    most = {std::max(most.in, kLargeOperands), std::max(most.out, kLargeResults),
            std::max(most.workspace, kLargeWorkspace)};
  }
  const auto fits = [&](const SlotSize& size) {
    return size_.holds(size) || (most.holds(size) && size.total() <= traffic_->room_of_slot);
  };
  while (groups > 1 && !fits(size_of(plan, groups * group))) groups = groups * 7 / 8;
  return std::max<int64_t>(groups, 1) * group;
}

// --- one piece ---------------------------------------------------------------------------------------

CudaLane::Run CudaLane::make_run(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const {
  const auto is_pinned = [&](const Operands& operands) {
    const bool large = static_cast<uint64_t>(count) * operands.bytes >= kLeastInPlaceBytes;
    return large && api_->is_pinned(operands.of(segment, first)) != 0;
  };
  return {&segment,
          first,
          count,
          is_pinned(matrices_of(plan)),
          plan.starting_vectors && is_pinned(starting_vectors_of(plan)),
          are_results_pinned(segment, first, count, plan)};
}

PlanePointers CudaLane::planes_of(const Run& run, const Plan& plan) {
  return planes_from(plan, run.segment->planes, run.first);
}

// Calls f(memory, bytes, offset in the slot's results) for the planes of every run that wants them.
template <class F>
void CudaLane::for_each_plane_of_runs(const Piece& piece, const Plan& plan, F f) {
  int64_t done = 0;
  for (const Run& run : piece.runs) {
    const PlanePointers to = planes_of(run, plan);
    for_each_plane(plan, piece.count, [&](Plane plane, uint64_t, uint64_t at) {
      if (to[plane] != nullptr) f(to[plane], plane_bytes(plan, plane, run.count), at + plane_bytes(plan, plane, done));
    });
    done += run.count;
  }
}

bool CudaLane::are_results_pinned(const HostSegment& segment, int64_t first, int64_t count, const Plan& plan) const {
  const uint64_t operand = static_cast<uint64_t>(count) * matrices_of(plan).bytes;
  if (std::max(operand, uint64_t{result_bytes(plan, count)}) < kLeastInPlaceBytes) return false;
  const PlanePointers planes = planes_from(plan, segment.planes, first);
  return std::all_of(std::begin(planes.at), std::end(planes.at),
                     [&](void* plane) { return plane == nullptr || api_->is_pinned(plane) != 0; });
}

// Up to `most` matrices from `place` on, which moves behind them.
CudaLane::Piece CudaLane::next_piece(const Plan& plan, absl::Span<const HostSegment> segments, int64_t most,
                                     Place* place) const {
  Piece piece;
  while (place->segment < segments.size() && piece.count < most) {
    const HostSegment& segment = segments[place->segment];
    const int64_t take = std::min(segment.count - place->matrix, most - piece.count);
    if (take > 0) piece.runs.push_back(make_run(segment, place->matrix, take, plan));
    piece.count += take;
    place->matrix += take;
    if (place->matrix == segment.count) *place = {place->segment + 1, 0};
  }
  if (std::all_of(piece.runs.begin(), piece.runs.end(), [](const Run& run) { return run.results_pinned; })) {
    piece.results = Results::kInPlace;
  } else if (size_of(plan, piece.count).out > size_.out) {
    piece.results = Results::kOnDevice;
  }
  return piece;
}

// Copies to the slot's operands, one behind the other. Pinned bytes go from where they are. Others are gathered in the
// slot's pinned memory, neighbours together. It waits for them where that has no more room.
class CudaLane::Upload {
 public:
  Upload(const CudaLane& lane, Slot* slot) : api_(lane.api_), room_(lane.size_.in), slot_(*slot) {}

  // The next bytes go to byte `at`, which is not before the last ones.
  int move_to(uint64_t at) {
    const int e = flush();
    to_ = at;
    return e;
  }
  int pinned(const std::byte* from, uint64_t bytes) {
    const int e = flush();
    return e == 0 ? enqueue(from, bytes) : e;
  }
  int other(const std::byte* from, uint64_t bytes) {
    while (bytes > 0) {
      if (gathered_ == room_) {
        if (const int e = start_again(); e != 0) return e;
      }
      const uint64_t part = std::min(bytes, room_ - gathered_);
      std::memcpy(gathered() + gathered_, from, part);
      gathered_ += part;
      from += part;
      bytes -= part;
    }
    return 0;
  }
  // Enqueues what was gathered.
  int flush() {
    const uint64_t first = std::exchange(enqueued_, gathered_);
    return gathered_ == first ? 0 : enqueue(gathered() + first, gathered_ - first);
  }

 private:
  std::byte* gathered() const { return static_cast<std::byte*>(slot_.pinned_in); }
  int enqueue(const void* from, uint64_t bytes) {
    std::byte* const to = static_cast<std::byte*>(slot_.device_in) + std::exchange(to_, to_ + bytes);
    return api_->copy_to_device(api_.device(), to, from, bytes, slot_.stream);
  }
  int start_again() {
    int e = flush();
    if (e == 0) e = api_->record(api_.device(), slot_.event, slot_.stream);
    if (e == 0) e = api_->wait(api_.device(), slot_.event);
    gathered_ = enqueued_ = 0;
    return e;
  }

  const DeviceApi api_;
  const uint64_t room_;
  const Slot& slot_;
  uint64_t to_ = 0;                       // in device_in
  uint64_t gathered_ = 0, enqueued_ = 0;  // of pinned_in
};

CudaStatus CudaLane::upload(Slot* slot, const Plan& plan) {
  const Piece& piece = slot->piece;
  Upload upload(*this, slot);
  int e = 0;
  const auto add = [&](const Operands& operands, bool Run::*pinned) {
    for (const Run& run : piece.runs) {
      const std::byte* const from = operands.of(*run.segment, run.first);
      const uint64_t bytes = static_cast<uint64_t>(run.count) * operands.bytes;
      if (e == 0) e = run.*pinned ? upload.pinned(from, bytes) : upload.other(from, bytes);
    }
  };
  add(matrices_of(plan), &Run::pinned);
  if (plan.starting_vectors) {
    if (e == 0) e = upload.move_to(starting_vectors_at(plan, piece.count));
    add(starting_vectors_of(plan), &Run::start_pinned);
  }
  if (e == 0) e = upload.flush();
  traffic_->uploaded.fetch_add(static_cast<uint64_t>(piece.count) * operand_bytes(plan), std::memory_order_relaxed);
  return api_.status(e, "uploading matrices");
}

CudaStatus CudaLane::start(Slot* slot, const Plan& plan) {
  const int d = api_.device();
  const Piece& piece = slot->piece;
  const uint64_t results = result_bytes_in_slot(plan, piece.count);
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
  if (CudaStatus status = download(slot, plan); !status.ok()) return status;
  return api_.status(api_->record(d, slot->event, slot->stream), "recording an event");
}

// Enqueues the copies of counts, and of results that are not to stay on the device.
CudaStatus CudaLane::download(Slot* slot, const Plan& plan) {
  const int d = api_.device();
  const Piece& piece = slot->piece;
  const std::byte* const out = static_cast<const std::byte*>(slot->device_out);
  const uint64_t results = piece.results == Results::kOnDevice ? 0 : result_bytes_in_slot(plan, piece.count);
  const bool in_place = piece.results == Results::kInPlace;
  int e = api_->copy_to_host(d, slot->pinned_out, out, kCountBytes + (in_place ? 0 : results), slot->stream);
  if (in_place) {
    for_each_plane_of_runs(piece, plan, [&](void* to, uint64_t bytes, uint64_t at) {
      if (e == 0) e = api_->copy_to_host(d, to, out + kCountBytes + at, bytes, slot->stream);
    });
  }
  traffic_->downloaded.fetch_add(kCountBytes + results, std::memory_order_relaxed);
  return api_.status(e, "downloading results");
}

// Bytes of device_out to memory that is not pinned, through pinned memory.
CudaStatus CudaLane::fetch(Slot* slot, uint64_t from, void* to, uint64_t bytes) {
  const int d = api_.device();
  for (uint64_t done = 0, part = 0; done < bytes; done += part) {
    part = std::min(bytes - done, size_.out);
    int e = api_->copy_to_host(d, slot->pinned_out, static_cast<std::byte*>(slot->device_out) + from + done, part,
                               slot->stream);
    if (e == 0) e = api_->record(d, slot->event, slot->stream);
    if (e == 0) e = api_->wait(d, slot->event);
    if (e != 0) return api_.status(e, "downloading results");
    std::memcpy(static_cast<std::byte*>(to) + done, slot->pinned_out, part);
  }
  traffic_->downloaded.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

// The results of a computed piece to its runs.
CudaStatus CudaLane::hand_out(Slot* slot, const Plan& plan) {
  const Piece& piece = slot->piece;
  if (piece.results == Results::kInPlace) return {};
  const bool on_device = piece.results == Results::kOnDevice;
  const std::byte* const out = static_cast<const std::byte*>(slot->pinned_out);
  CudaStatus status;
  for_each_plane_of_runs(piece, plan, [&](void* to, uint64_t bytes, uint64_t at) {
    if (!status.ok()) return;
    if (on_device) {
      status = fetch(slot, kCountBytes + at, to, bytes);
    } else {
      std::memcpy(to, out + kCountBytes + at, bytes);
    }
  });
  return status;
}

// Waits for the slot's piece and hands it out; the slot is free afterwards. After an error it is not: abandon() waits for
// what was enqueued.
CudaStatus CudaLane::finish(Slot* slot, const Plan& plan, ConvergenceReport* report) {
  if (int e = api_->wait(api_.device(), slot->event); e != 0) return api_.status(e, "computing");
  uint64_t exceptions[kMatrixStatuses];
  std::memcpy(exceptions, slot->pinned_out, sizeof(exceptions));
  if (CudaStatus status = hand_out(slot, plan); !status.ok()) return status;
  const int64_t count = slot->piece.count;
  const uint64_t not_ok = std::accumulate(exceptions + 1, exceptions + kMatrixStatuses, uint64_t{0});
  std::vector<MatrixStatus> statuses(not_ok == 0 ? 0 : static_cast<size_t>(count));  // of no interest where all are OK
  if (not_ok != 0) {
    const uint64_t at = kCountBytes + result_bytes_in_slot(plan, count);
    if (CudaStatus status = fetch(slot, at, statuses.data(), statuses.size()); !status.ok()) return status;
  }
  const Piece piece = std::exchange(slot->piece, Piece{});
  const MatrixStatus* next = statuses.data();
  for (const Run& run : piece.runs) {
    MatrixStatus* const to = run.segment->statuses;
    if (to != nullptr && not_ok == 0) std::fill_n(to + run.first, run.count, MatrixStatus::kOk);
    if (to != nullptr && not_ok != 0) std::copy_n(next, run.count, to + run.first);
    next += not_ok == 0 ? 0 : run.count;
  }
  report->non_finite += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNonFinite)]);
  report->not_converged += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNotConverged)]);
  report->out_of_range += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kOutOfRange)]);
  report->by_qr += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kByQr)]);
  report->near_defective += static_cast<int64_t>(exceptions[static_cast<int>(MatrixStatus::kNearDefective)]);
  report->ok += count - static_cast<int64_t>(not_ok);
  return {};
}

// --- a batch -----------------------------------------------------------------------------------------

CudaOutcome CudaLane::execute(const Plan& plan, absl::Span<const HostSegment> segments,
                              const std::atomic<bool>* cancel) {
  CudaOutcome outcome;
  const int64_t group = plan.outputs.group;
  int64_t most = matrices_per_piece(plan);
  const auto fail = [&](CudaStatus status) {
    const bool in_place = has_results_in_place();
    abandon();
    status.sticky = context_is_dead();
    if (status.sticky && in_place) std::this_thread::sleep_for(kLastCopies);
    outcome.status = std::move(status);
    return outcome;
  };
  int next = 0;  // slot
  Place place;
  while (true) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      abandon();
      return outcome;  // not completed
    }
    const Place first = place;
    Piece piece = next_piece(plan, segments, most, &place);
    if (piece.count == 0) break;
    Slot& slot = slots_[next];
    if (slot.piece.count > 0) {
      if (CudaStatus status = finish(&slot, plan, &outcome.execution.report); !status.ok()) return fail(status);
    }
    const bool is_least = piece.count == group;
    if (CudaStatus status = grow(&slot, size_of(plan, piece.count), is_least); !status.ok()) {
      if (!status.out_of_memory() || is_least) return fail(status);
      most = std::max<int64_t>(piece.count / group / 2, 1) * group;  // others have the memory
      place = first;
      continue;
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

bool CudaLane::has_results_in_place() const {
  return std::any_of(std::begin(slots_), std::end(slots_),
                     [](const Slot& slot) { return slot.piece.count > 0 && slot.piece.results == Results::kInPlace; });
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
