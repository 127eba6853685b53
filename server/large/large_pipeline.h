// The door to what DecomposeLarge needs behind the wire: validate -> admit -> device, one job a call. All jobs share
// one queue (LargeRunner) and one memory limit (LargeAdmission).
#ifndef SVDSERVE_SERVER_LARGE_LARGE_PIPELINE_H_
#define SVDSERVE_SERVER_LARGE_LARGE_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/large/large_request.h"
#include "server/large/large_stages.h"
#include "server/metrics/recorder.h"
#include "server/peer.h"

namespace svdserve::server {

class DeviceMonitor;
class LargeJob;
struct LargeDevice;
class CheckpointStore;

struct LargeLoad {
  int64_t waiting = 0;  // in the queue
  int64_t running = 0;
};

struct LargeStats {
  int64_t inflight_requests = 0;  // in the ledger of large matrices
  int64_t inflight_bytes = 0;
  LargeLoad load;                                 // each matrix once
  LargeLoad gangs;                                // of these, for gangs
  int64_t held = 0;                               // idle devices that wait for others of their gang
  int64_t preparing = 0;                          // devices that are not ready for a first matrix yet
  std::map<std::string, LargeLoad> of_device;     // by its name; waiting: those that this device may take
  int64_t checkpoints = 0, checkpoint_bytes = 0;  // matrices with files, and room that is kept for these
};

// Thread-safe, all of it.
class LargePipeline {
 public:
  // How often jobs look at the clock: so often progress is sent.
  static constexpr absl::Duration kPeriod = absl::Milliseconds(250);

  // `clock` and `recorder` outlive the pipeline. At least one device.
  // `monitor`, which may be null, knows the devices' health; it outlives the pipeline, too.
  // `checkpoints`: files of matrices that survive the server, or null.
  LargePipeline(const LargeLimits& options, std::vector<LargeDevice> devices, Clock* clock, Recorder* recorder,
                DeviceMonitor* monitor = nullptr, std::unique_ptr<CheckpointStore> checkpoints = nullptr);
  // Gives up what is left, and returns when no device computes. Every LargeMemory must be gone before: they hold
  // reservations of this pipeline.
  ~LargePipeline();
  LargePipeline(const LargePipeline&) = delete;
  LargePipeline& operator=(const LargePipeline&) = delete;

  // The job of a call that is opened now by `peer`; see LargeJob for `act`. `owner`: who may resume it; empty: the peer.
  std::shared_ptr<LargeJob> begin(Peer peer, std::function<void(LargeNext)> act, std::string owner = "");

  // From now on no factor is accepted any more: it is refused with DRAINING.
  void start_drain();

  // start_drain(), then blocks until every call that was accepted has ended. Calls that last beyond `timeout` are given
  // up with UNAVAILABLE, reason DRAINING. Returns whether nothing had to be given up. Not to be called from a job.
  bool drain(absl::Duration timeout);

  LargeStats stats() const;
  // The most that one matrix may need.
  int64_t max_matrix_bytes() const;
  const LargeLimits& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_PIPELINE_H_
