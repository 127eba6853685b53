// A device: what computes batches. One lane runs one batch at a time; a device with several lanes overlaps them. Lanes
// are numbered from 0, relief lanes after them, side lanes last.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/planner.h"
#include "engine/result.h"
#include "engine/svd_engine.h"

namespace svdserve::server {

// Which back end of the engine a device runs.
enum class DeviceKind : uint8_t { kHost, kCuda };
constexpr const char* name(DeviceKind kind) { return kind == DeviceKind::kHost ? "host" : "cuda"; }

struct DeviceInfo {
  std::string name;  // unique on this server, such as "host:0" or "cuda:0"
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;              // among those of its kind
  std::string model;            // such as "NVIDIA H200"; empty on the host
  std::string uuid;             // as the driver's tools print it, such as "GPU-5dc8..."; empty on the host
  int64_t memory_bytes = 0;     // of the device's own memory; 0 on the host
  std::string instruction_set;  // of the kernels, such as "avx512" or "sm_90"
  int threads = 1;              // of the host that compute; 0 where the device does
  int lanes = 1;
  int relief_lanes = 0;  // beside them: for short work while long work holds a lane (device_load.h)
  int side_lanes = 0;    // beside them, without threads: for work that is done sooner than a thread is woken
  // Matrices that a lane computes in the time of one, if each takes long: its part of the device's cores.
  int at_once = 1;
};

// The method by which the device computes the plan's batches.
inline Method method_on(const DeviceInfo& device, const Plan& plan) {
  return device.kind == DeviceKind::kHost ? plan.host_method : plan.method;
}

// Bytes that a device has moved since it was made, and those that it holds now. All are 0 on the host, which reads and
// writes in place.
struct DeviceCounters {
  int64_t uploaded_bytes = 0;    // only grows
  int64_t downloaded_bytes = 0;  // only grows
  int64_t pool_bytes = 0;        // of the device's own memory, allocated by its lanes
};

// The outcome of a batch on a device.
struct DeviceOutcome {
  // Not OK: the batch failed and nothing of it is to be used; the device's own words for why. RESOURCE_EXHAUSTED: it
  // had no memory for this batch, which says nothing about the next one.
  absl::Status status;
  bool device_lost = false;  // with a status that is not OK: the device is of no use any more
  bool completed = false;    // false with an OK status: it was cancelled
  ConvergenceReport report;
};

// Thread safety: execute() may run for different lanes at once, never twice at once for the same one, and on any
// thread. That is the lane's own, or one that has little enough to do to compute it itself. The rest is thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Computes on the calling thread's time, and blocks until the outputs of `segments` are written; see
  // SvdEngine::execute() for what they must be. `cancel` is never null: once it is true the call returns soon.
  // When it returns, however it ends, nothing reads or writes the segments any more. Their memory may go, or another
  // device may be computing the same batch. A lost device fails at once.
  virtual DeviceOutcome execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                const std::atomic<bool>* cancel) = 0;

  virtual DeviceCounters counters() const { return {}; }
};

// The state of one of the server's devices at a moment.
struct DeviceState {
  DeviceInfo info;
  DeviceCounters counters;
  bool healthy = true;
  int64_t outstanding_batches = 0;  // lanes and side lanes that hold one
  absl::Duration busy;              // time in which at least one lane computed
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_H_
