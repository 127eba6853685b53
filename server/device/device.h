// A device: what computes batches. One lane runs one batch at a time; a device with several lanes overlaps them.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/planner.h"
#include "engine/result.h"
#include "engine/svd_engine.h"

namespace svdserve::server {

struct DeviceInfo {
  std::string name;             // unique on this server, such as "host:0"
  std::string backend;          // "host"
  std::string instruction_set;  // of the kernels, such as "avx512"
  int threads = 1;
  int lanes = 1;
};

// What became of a batch on a device.
struct DeviceOutcome {
  absl::Status status;       // not OK: the batch failed and nothing of it is to be used
  bool device_lost = false;  // with a status that is not OK: the device is of no use any more
  bool completed = false;    // false with an OK status: it was cancelled
  ConvergenceReport report;
};

// Thread safety: Execute() may run for different lanes at once, never twice at once for the same one.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Computes on the calling thread's time, and blocks until the outputs of `segments` are written; see
  // SvdEngine::execute() for what they must be. `cancel` is never null.
  virtual DeviceOutcome Execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                const std::atomic<bool>* cancel) = 0;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_H_
