#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/large_engine.h"
#include "engine/problem.h"
#include "tests/support/fake_cuda/fake_cuda.h"

// The types that the table speaks of.
struct CUstream_st {
  std::deque<std::function<void()>> work;
  uint64_t enqueued = 0, done = 0;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: never recorded
  uint64_t after = 0;             // has passed when the stream has done so much
};

namespace svdserve::fake_cuda {
namespace {

constexpr uint64_t kDeviceAlignment = 256;

const char* setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Empty where there is no such file.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Fake final : public Control {
 public:
  Fake() { reset(); }

  // --- for tests ---

  void reset() override {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, bytes] : device_) std::free(memory);
    for (const auto& [memory, bytes] : pinned_) std::free(memory);
    device_.clear();
    pinned_.clear();
    streams_.clear();
    events_.clear();
    copies_.clear();
    schedule_ = Schedule::kEager;
    workspace_per_matrix_ = 64;
    device_says_ = {1, kMemoryBytes};
    std::fill(std::begin(calls_), std::end(calls_), 0);
    fault_at_ = 0;
    dead_ = false;
    on_launch_ = nullptr;
    launches_ = illegal_ = after_death_ = large_matrices_ = 0;
    most_at_work_ = 0;
    hanging_ = 0;
    hang_ended_ = false;
    fault_file_ = setting("SVDSERVE_FAKE_CUDA_FAULT_FILE");
    file_text_.clear();
    read_fault(setting("SVDSERVE_FAKE_CUDA_FAULT"));
  }
  void set_schedule(Schedule schedule) override {
    const std::lock_guard lock(mutex_);
    schedule_ = schedule;
  }
  void set_workspace_per_matrix(uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    workspace_per_matrix_ = bytes;
  }
  void set_device(int multiprocessors, uint64_t memory_bytes) override {
    const std::lock_guard lock(mutex_);
    device_says_ = {multiprocessors, memory_bytes};
  }
  std::pair<int, uint64_t> device_says() const {
    const std::lock_guard lock(mutex_);
    return device_says_;
  }
  void plan_fault(Call call, int n, Fault fault) override {
    const std::lock_guard lock(mutex_);
    fault_call_ = call;
    fault_at_ = calls_[static_cast<int>(call)] + n;
    fault_ = fault;
  }
  void end_hang() override {
    const std::lock_guard lock(mutex_);
    hang_ended_ = true;
  }
  void on_launch(std::function<void(int64_t)> callback) override {
    const std::lock_guard lock(mutex_);
    on_launch_ = std::move(callback);
  }
  Observed observed() const override {
    const std::lock_guard lock(mutex_);
    return {size_of(device_), size_of(pinned_), size_of(streams_), size_of(events_), launches_,      at_work(),
            most_at_work_,    illegal_,         after_death_,      hanging_,         large_matrices_};
  }
  int copies_of(const void* memory, size_t bytes) const override {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const char*>(memory);
    return static_cast<int>(
        std::count_if(copies_.begin(), copies_.end(), [&](const char* p) { return p >= first && p < first + bytes; }));
  }

  // --- for the table ---

  void count_large_matrix() {
    const std::lock_guard lock(mutex_);
    ++large_matrices_;
  }

  uint64_t workspace_bytes(int64_t count) const {
    const std::lock_guard lock(mutex_);
    return static_cast<uint64_t>(count) * workspace_per_matrix_;
  }

  int launch(const Plan& plan, const DeviceBatch& b, CUstream_st* stream) {
    std::function<void(int64_t)> callback;
    int64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      if (const int error = enter(Call::kLaunch, &lock); error != 0) return error;
      const Problem p = plan.problem;
      const auto count = static_cast<uint64_t>(b.count);
      const uint64_t start = starting_bytes(plan);
      std::array<uint64_t, kPlanes> parts{};  // bytes of a matrix
      bool legal = true;
      for (size_t i = 0; i < kPlanes; ++i) {
        parts[i] = plane_bytes(plan, static_cast<Plane>(i), 1);
        legal = legal && (parts[i] == 0 || in_device(b.planes.at[i], count * parts[i]));
      }
      legal = legal && b.count > 0 && in_device(b.matrices, count * stored_bytes(p)) &&
              (start == 0 || in_device(b.starting_vectors, count * start)) &&
              (start == 0 || aligned(b.starting_vectors, 2 * value_bytes(p.dtype))) &&
              (b.statuses == nullptr || in_device(b.statuses, count)) &&
              in_device(b.exception_counts, kMatrixStatuses * sizeof(uint64_t)) &&
              in_device(b.workspace, count * workspace_per_matrix_) &&
              aligned(b.matrices, stored_bytes(p) / static_cast<size_t>(p.rows * p.cols)) &&
              aligned(b.planes[Plane::kValues], value_bytes(p.dtype)) && aligned(b.exception_counts, 8) &&
              aligned(b.workspace, kDeviceAlignment);
      if (!legal) return illegal();
      enqueue(stream, [p, b, parts, start] {
        for (int64_t m = 0; m < b.count; ++m) {
          const auto* const matrix = static_cast<const char*>(b.matrices) + static_cast<size_t>(m) * stored_bytes(p);
          const auto* const from = static_cast<const char*>(b.starting_vectors) + static_cast<size_t>(m) * start;
          for (size_t i = 0; i < kPlanes; ++i) {
            if (parts[i] == 0) continue;
            compute(matrix, stored_bytes(p), from, start,
                    static_cast<char*>(b.planes.at[i]) + static_cast<size_t>(m) * parts[i], parts[i],
                    static_cast<Plane>(i));
          }
          const auto status = static_cast<uint8_t>(status_of(matrix));
          if (b.statuses != nullptr) b.statuses[m] = status;
          if (status != 0) ++b.exception_counts[status];
        }
      });
      number = ++launches_;
      callback = on_launch_;
    }
    if (callback) callback(number);
    return 0;
  }

  int allocate(Call call, uint64_t bytes, void** memory) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(call, &lock); error != 0) return error;
    const uint64_t size = (std::max<uint64_t>(bytes, 1) + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
    *memory = std::aligned_alloc(kDeviceAlignment, size);
    std::memset(*memory, 0xAB, std::min<uint64_t>(size, 4096));  // nobody counts on zeros
    (call == Call::kAllocate ? device_ : pinned_)[*memory] = bytes;
    return 0;
  }
  int release(Call call, void* memory) {
    const std::lock_guard lock(mutex_);
    if (dead_) return dies();
    auto& blocks = call == Call::kAllocate ? device_ : pinned_;
    if (blocks.erase(memory) == 0) return illegal();
    std::free(memory);
    return 0;
  }
  bool is_pinned(const void* memory) const {
    const std::lock_guard lock(mutex_);
    return in(pinned_, memory, 1);
  }

  int create_stream(CUstream_st** stream) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(Call::kCreateStream, &lock); error != 0) return error;
    *stream = streams_.emplace_back(std::make_unique<CUstream_st>()).get();
    return 0;
  }
  int create_event(CUevent_st** event) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(Call::kCreateEvent, &lock); error != 0) return error;
    *event = events_.emplace_back(std::make_unique<CUevent_st>()).get();
    return 0;
  }
  template <class Handle>
  int destroy(std::vector<std::unique_ptr<Handle>>* handles, const Handle* handle) {
    const std::lock_guard lock(mutex_);
    if (dead_) return dies();
    const auto found = std::find_if(handles->begin(), handles->end(), [&](const auto& h) { return h.get() == handle; });
    if (found == handles->end()) return illegal();
    handles->erase(found);
    return 0;
  }
  int destroy(CUstream_st* stream) { return destroy(&streams_, stream); }
  int destroy(CUevent_st* event) { return destroy(&events_, event); }

  int copy(Call call, void* to, const void* from, uint64_t bytes, CUstream_st* stream) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(call, &lock); error != 0) return error;
    const bool up = call == Call::kCopyToDevice;
    if (!in_device(up ? to : from, bytes)) return illegal();
    copies_.push_back(static_cast<const char*>(up ? from : to));
    enqueue(stream, [=] { std::memcpy(to, from, bytes); });
    return 0;
  }
  int clear(void* memory, uint64_t bytes, CUstream_st* stream) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(Call::kClear, &lock); error != 0) return error;
    if (!in_device(memory, bytes)) return illegal();
    enqueue(stream, [=] { std::memset(memory, 0, bytes); });
    return 0;
  }
  int record(CUevent_st* event, CUstream_st* stream) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(Call::kRecord, &lock); error != 0) return error;
    *event = {stream, stream->enqueued};
    return 0;
  }
  int wait(CUevent_st* event) {
    std::unique_lock lock(mutex_);
    if (const int error = enter(Call::kWait, &lock); error != 0) return error;
    if (event->stream != nullptr) run(event->stream, event->after);
    return 0;
  }

 private:
  using Blocks = std::map<void*, uint64_t>;

  template <class C>
  static int size_of(const C& c) {
    return static_cast<int>(c.size());
  }
  static bool aligned(const void* p, size_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }
  static bool in(const Blocks& blocks, const void* memory, uint64_t bytes) {
    auto after = blocks.upper_bound(const_cast<void*>(memory));
    if (after == blocks.begin()) return false;
    --after;
    const auto* const first = static_cast<const char*>(after->first);
    return static_cast<const char*>(memory) + bytes <= first + after->second;
  }
  bool in_device(const void* memory, uint64_t bytes) const { return in(device_, memory, bytes); }

  // Whether this call is to fail. Lets go of the lock while the call hangs.
  int enter(Call call, std::unique_lock<std::mutex>* lock) {
    if (dead_) return kStickyError;
    if (!fault_file_.empty()) {
      const std::string before = std::exchange(file_text_, text_of(fault_file_));
      if (before != file_text_) read_fault(file_text_);
    }
    const int64_t number = ++calls_[static_cast<int>(call)];
    if (fault_at_ == 0 || call != fault_call_ || number != fault_at_) return 0;
    fault_at_ = 0;
    switch (fault_) {
      case Fault::kOutOfMemory:
        return kOutOfMemoryError;
      case Fault::kOrdinary:
        return kOrdinaryError;
      case Fault::kHang:
        hang(lock);
        return dead_ ? kStickyError : 0;
      case Fault::kSticky:
        break;
    }
    dead_ = true;
    for (const auto& stream : streams_) stream->work.clear();
    return kStickyError;
  }
  void hang(std::unique_lock<std::mutex>* lock) {
    ++hanging_;
    hang_ended_ = false;
    const std::string text = file_text_;
    while (!hang_ended_ && (fault_file_.empty() || text_of(fault_file_) == text)) {
      lock->unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock->lock();
    }
    --hanging_;
  }
  int illegal() {
    ++illegal_;
    dead_ = true;
    return kStickyError;
  }
  int dies() {
    ++after_death_;
    return kStickyError;
  }

  int at_work() const {
    return static_cast<int>(
        std::count_if(streams_.begin(), streams_.end(), [](const auto& s) { return !s->work.empty(); }));
  }
  void enqueue(CUstream_st* stream, std::function<void()> work) {
    stream->work.push_back(std::move(work));
    ++stream->enqueued;
    most_at_work_ = std::max(most_at_work_, at_work());
    if (schedule_ == Schedule::kEager) run(stream, stream->enqueued);
  }
  static void run(CUstream_st* stream, uint64_t until) {
    for (; stream->done < until && !stream->work.empty(); ++stream->done) {
      stream->work.front()();
      stream->work.pop_front();
    }
  }

  void read_fault(const std::string& text) {
    char call[32], kind[32];
    int n = 0;
    fault_at_ = 0;
    if (std::sscanf(text.c_str(), "%31[a-z_]:%d:%31s", call, &n, kind) != 3) return;
    for (int c = 0; c < kCalls; ++c) {
      if (std::string(name(static_cast<Call>(c))) == call) fault_call_ = static_cast<Call>(c);
    }
    fault_at_ = calls_[static_cast<int>(fault_call_)] + n;
    fault_ = std::string(kind) == "memory"   ? Fault::kOutOfMemory
             : std::string(kind) == "sticky" ? Fault::kSticky
             : std::string(kind) == "hang"   ? Fault::kHang
                                             : Fault::kOrdinary;
  }

  mutable std::mutex mutex_;
  Blocks device_, pinned_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::vector<const char*> copies_;  // their host sides
  Schedule schedule_ = Schedule::kEager;
  uint64_t workspace_per_matrix_ = 0;
  std::pair<int, uint64_t> device_says_;  // multiprocessors and bytes of memory
  int64_t calls_[kCalls] = {};
  Call fault_call_ = Call::kWait;
  int64_t fault_at_ = 0;  // 0: none is planned
  Fault fault_ = Fault::kOrdinary;
  int hanging_ = 0;
  bool hang_ended_ = false;
  std::string fault_file_, file_text_;  // its name and what it said last
  bool dead_ = false;
  std::function<void(int64_t)> on_launch_;
  int64_t launches_ = 0, illegal_ = 0, after_death_ = 0, large_matrices_ = 0;
  int most_at_work_ = 0;
};

Fake& fake() {
  static Fake* const instance = new Fake;  // outlives whatever is still to be released
  return *instance;
}

// --- the table -----------------------------------------------------------------------------------------------------

int device_count(int32_t* count) {
  const std::string devices = setting("SVDSERVE_FAKE_CUDA_DEVICES");
  *count = devices.empty() ? 2 : std::atoi(devices.c_str());
  return devices == "error" ? kOrdinaryError : 0;
}
int device_info(int32_t device, SvdserveCudaDevice* info) {
  *info = SvdserveCudaDevice{};
  std::snprintf(info->name, sizeof(info->name), "Fake %d", device);
  std::snprintf(info->uuid, sizeof(info->uuid), "GPU-00000000-0000-0000-0000-%012d", device);
  info->compute_major = 9;
  std::tie(info->multiprocessors, info->memory_bytes) = fake().device_says();
  return 0;
}
const char* error_name(int error) {
  return error == kOutOfMemoryError ? "fakeErrorMemory"
         : error == kStickyError    ? "fakeErrorSticky"
                                    : "fakeErrorOrdinary";
}
const char* error_text(int error) {
  return error == kOutOfMemoryError ? "out of memory" : error == kStickyError ? "the context is dead" : "it failed";
}

// As a decomposition would go through the table: the bytes of one state become another.
void copy_state(const SvdserveCudaStates& s) {
  if (s.store == nullptr || s.due(s.store) == 0) return;
  std::string bytes(s.open(s.store, LargeState::kFactors), '.');
  const bool read = s.read(s.store, bytes.data(), bytes.size()) != 0;
  if (!read || s.begin(s.store, LargeState::kSweep, bytes.size()) == 0) return;
  s.write(s.store, bytes.data(), bytes.size());
  s.end(s.store);
}

const char* of_members(RingMembers members) { return members == RingMembers::kRanks ? "ranks" : "members"; }

constexpr SvdserveCudaApi kApi = {
    cuda::kBuild,
    device_count,
    device_info,
    error_name,
    error_text,
    [](const Plan*, int64_t count) { return fake().workspace_bytes(count); },
    [](int32_t, const Plan* plan, const DeviceBatch* batch, CUstream_st* stream) {
      return fake().launch(*plan, *batch, stream);
    },
    [](int32_t, uint64_t bytes, void** memory) { return fake().allocate(Call::kAllocate, bytes, memory); },
    [](int32_t, void* memory) { return fake().release(Call::kAllocate, memory); },
    [](uint64_t bytes, void** memory) { return fake().allocate(Call::kAllocatePinned, bytes, memory); },
    [](void* memory) { return fake().release(Call::kAllocatePinned, memory); },
    [](const void* memory) -> int32_t { return fake().is_pinned(memory); },
    [](int32_t, CUstream_st** stream) { return fake().create_stream(stream); },
    [](int32_t, CUstream_st* stream) { return fake().destroy(stream); },
    [](int32_t, CUevent_st** event) { return fake().create_event(event); },
    [](int32_t, CUevent_st* event) { return fake().destroy(event); },
    [](int32_t, void* to, const void* from, uint64_t bytes, CUstream_st* stream) {
      return fake().copy(Call::kCopyToDevice, to, from, bytes, stream);
    },
    [](int32_t, void* to, const void* from, uint64_t bytes, CUstream_st* stream) {
      return fake().copy(Call::kCopyToHost, to, from, bytes, stream);
    },
    [](int32_t, void* memory, uint64_t bytes, CUstream_st* stream) { return fake().clear(memory, bytes, stream); },
    [](int32_t, CUevent_st* event, CUstream_st* stream) { return fake().record(event, stream); },
    [](int32_t, CUevent_st* event) { return fake().wait(event); },
    []() -> const char* { return *setting("SVDSERVE_FAKE_CUDA_LARGE") ? nullptr : "the fake has no large matrices"; },
    [](const LargePlan*, uint64_t) {
      return LargeWorkspace{kLargeHostBytes, kLargeDeviceBytes};
    },
    [](const LargePlan*) { return kLargeStateBytes; },
    [](int32_t, const LargePlan*, const LargeOperands*, const SvdserveCudaLargeControl* control,
       SvdserveCudaLargeOutcome* outcome) {
      *outcome = {};
      fake().count_large_matrix();
      copy_state(control->states);
    },
    [](int32_t from, int32_t to) -> int32_t { return from / 2 == to / 2; },
    [](const LargePlan*, uint64_t) {
      return LargeWorkspace{kLargeHostBytes, 2 * kLargeDeviceBytes};
    },
    [](const int32_t*, int32_t count, int32_t members, const LargePlan*, const LargeOperands*,
       const SvdserveCudaLargeControl*, SvdserveCudaLargeOutcome* outcome) {
      *outcome = {};
      outcome->report.status = LargeStatus::kOk;
      outcome->members = count;
      std::snprintf(outcome->detail, sizeof(outcome->detail), "%s", of_members(static_cast<RingMembers>(members)));
    },
    [](const int32_t* devices, int32_t) { return devices[0] == 0 ? nullptr : "the fake's ranks begin with GPU 0"; },
    [](int32_t socket, int32_t device) {
      const std::string text = "rank of " + std::to_string(device);
      (void)!write(socket, text.data(), text.size());
      close(socket);
    },
};

// With one struct's size wrong where the environment names it.
SvdserveCudaApi table_as_set() {
  SvdserveCudaApi table = kApi;
  const std::string resized = setting("SVDSERVE_FAKE_CUDA_RESIZED");
  for (int i = 0; i < kSvdserveCudaStructs; ++i) {
    if (cuda::kCrossingStructs[i].name == resized) table.build.sizes[i] += 8;
  }
  if (resized == "version") ++table.build.version;
  if (resized == "release") table.build.release[0] = '9';
  return table;
}

}  // namespace
}  // namespace svdserve::fake_cuda

#define FAKE_CUDA_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_CUDA_EXPORT const SvdserveCudaApi* svdserve_cuda_plugin(uint32_t version) {
  const std::string only = svdserve::fake_cuda::setting("SVDSERVE_FAKE_CUDA_VERSION");
  const uint32_t known =
      only.empty() ? uint32_t{kSvdserveCudaAbiVersion} : static_cast<uint32_t>(std::atoi(only.c_str()));
  static const SvdserveCudaApi table = svdserve::fake_cuda::table_as_set();
  return version == known ? &table : nullptr;
}
FAKE_CUDA_EXPORT svdserve::fake_cuda::Control* svdserve_fake_cuda_control() { return &svdserve::fake_cuda::fake(); }
