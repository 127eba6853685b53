// A CUDA back end without CUDA: a plugin whose device memory is the host's, with two devices, a choice of schedules and
// faults on order. So everything on this side of the plugin's table is tested without a GPU.
//
// A process uses it by SVDSERVE_CUDA_PLUGIN, with the folder of fake_cuda_driver, an empty libcuda.so.1, in
// LD_LIBRARY_PATH. Environment variables set its behaviour, too:
//   SVDSERVE_FAKE_CUDA_DEVICES   how many there are; "error": the driver cannot count them
//   SVDSERVE_FAKE_CUDA_VERSION   the one version of the table that it has
//   SVDSERVE_FAKE_CUDA_RESIZED   a struct that is 8 bytes larger in its table, by its name in plugin_abi.h; "version":
//                                the table's version is not the one that was asked for; "release": its first digit
//                                is 9
//   SVDSERVE_FAKE_CUDA_LARGE     set: the devices take large matrices. One fails them, several together do not, but
//                                compute nothing of them
//   SVDSERVE_FAKE_CUDA_FAULT     CALL:N:KIND, such as launch:3:sticky; kinds: memory ordinary sticky hang
//   SVDSERVE_FAKE_CUDA_FAULT_FILE  a file that is read at each call, for faults of a process that runs: when its text
//                                changes to a CALL:N:KIND, the n-th such call from then on fails; a hang ends when it
//                                changes again
#ifndef SVDSERVE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
#define SVDSERVE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "engine/backends/cuda_door/plugin_abi.h"
#include "engine/result.h"

namespace svdserve::fake_cuda {

enum class Call : uint8_t {
  kAllocate,
  kAllocatePinned,
  kCreateStream,
  kCreateEvent,
  kCopyToDevice,
  kCopyToHost,
  kClear,
  kLaunch,
  kRecord,
  kWait,
};
inline constexpr int kCalls = 10;
constexpr const char* name(Call call) {
  constexpr const char* kNames[kCalls] = {
      "allocate",     "allocate_pinned", "create_stream", "create_event", "copy_to_device",
      "copy_to_host", "clear",           "launch",        "record",       "wait"};
  return kNames[static_cast<int>(call)];
}

enum class Fault : uint8_t {
  kOutOfMemory,  // this call fails
  kOrdinary,     // this call fails
  kSticky,       // this call fails, and so does every other from then on
  kHang,         // this call goes on until the hang is ended, and then succeeds
};
inline constexpr uint64_t kMemoryBytes = uint64_t{16} << 30;
// The memory of a large matrix, whatever its size.
inline constexpr uint64_t kLargeDeviceBytes = 1000, kLargeHostBytes = 10, kLargeStateBytes = 100;

inline constexpr int kOutOfMemoryError = 2, kOrdinaryError = 304, kStickyError = 700;

// When what a stream is given happens: both are what a device may do.
enum class Schedule : uint8_t {
  kEager,  // at once
  kLazy,   // when an event behind it is waited for, and not earlier
};

struct Observed {
  int device_blocks, pinned_blocks, streams, events;  // alive
  int64_t launches;
  int streams_at_work;       // of now: that have something to do
  int most_streams_at_work;  // at once, since reset()
  int64_t illegal;           // accesses outside of what was allocated, or misaligned
  int64_t after_death;       // calls that free or destroy, after a sticky fault
  int hanging;               // calls that hang now
  int64_t large_matrices;    // decompositions on one device, since reset()
};

// A test's control of the plugin that it has loaded. Thread-safe, but for reset().
class Control {
 public:
  // As new. Frees what is left, so nobody may use the plugin meanwhile.
  virtual void reset() = 0;
  virtual void set_schedule(Schedule schedule) = 0;
  // Sets the bytes of workspace that the fake asks for; they decide how many matrices a piece has.
  virtual void set_workspace_per_matrix(uint64_t bytes) = 0;
  // Devices that are opened from now on say this of themselves. After reset() they have one multiprocessor.
  virtual void set_device(int multiprocessors, uint64_t memory_bytes = kMemoryBytes) = 0;
  // The n-th call from now fails, n >= 1.
  virtual void plan_fault(Call call, int n, Fault fault) = 0;
  // Lets the call that hangs go on.
  virtual void end_hang() = 0;
  // Called at the end of every launch with its number, from 1.
  virtual void on_launch(std::function<void(int64_t)> callback) = 0;
  virtual Observed observed() const = 0;
  // How many copies had their host side in these bytes.
  virtual int copies_of(const void* memory, size_t bytes) const = 0;

 protected:
  ~Control() = default;
};

// The plugin's second symbol.
using ControlEntry = Control* (*)();
inline constexpr char kControlEntryName[] = "svdserve_fake_cuda_control";

// --- what it computes ------------------------------------------------------------------------------------------------

// A matrix whose first byte is kMarked + s gets status s > 0.
inline constexpr uint8_t kMarked = 0xF0;

inline MatrixStatus status_of(const void* matrix) {
  const uint8_t first = *static_cast<const uint8_t*>(matrix);
  return first > kMarked && first <= kMarked + 3 ? static_cast<MatrixStatus>(first - kMarked) : MatrixStatus::kOk;
}

// `bytes` of a matrix's part of a plane, which depend on every byte of the matrix.
inline void compute(const void* matrix, size_t matrix_bytes, const void* start, size_t start_bytes, void* part,
                    size_t bytes, Plane plane = Plane::kValues) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&](const void* operand, size_t size) {
    const auto* const from = static_cast<const uint8_t*>(operand);
    for (size_t i = 0; i < size; ++i) hash = (hash ^ from[i]) * 1099511628211u;
  };
  add(matrix, matrix_bytes);
  add(start, start_bytes);
  add(&plane, sizeof(plane));
  auto* const to = static_cast<uint8_t*>(part);
  for (size_t i = 0; i < bytes; ++i) {
    hash = hash * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<uint8_t>(hash >> 56);
  }
}

}  // namespace svdserve::fake_cuda
#endif  // SVDSERVE_TESTS_SUPPORT_FAKE_CUDA_FAKE_CUDA_H_
