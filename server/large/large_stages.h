// The limits, and the stages that a job goes through: the pipeline of large matrices shares them with its jobs.
#ifndef SVDSERVE_SERVER_LARGE_LARGE_STAGES_H_
#define SVDSERVE_SERVER_LARGE_LARGE_STAGES_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

class DeviceMonitor;
class LargeRunner;
class LargeAdmission;
class LargeJob;
class CheckpointStore;

struct LargeLimits {
  int64_t max_bytes = int64_t{1} << 30;    // operands, results and working memory of all matrices, so of one as well
  int64_t max_requests = 16;               // accepted and not yet gone
  int peer_percent = 100;                  // of both, for one peer
  int64_t chunk_bytes = int64_t{1} << 20;  // of a chunk, either way
  absl::Duration idle_timeout = absl::Seconds(60);  // in which a client has to move what TransferPace says
};

// The objects that every job is given. All of them outlive the jobs.
struct LargeStages {
  const LargeLimits* options = nullptr;
  LargeAdmission* admission = nullptr;
  LargeRunner* runner = nullptr;
  Clock* clock = nullptr;
  Recorder* recorder = nullptr;
  DeviceMonitor* monitor = nullptr;        // null: nothing is watched
  CheckpointStore* checkpoints = nullptr;  // null: no matrix survives the server
  std::function<void(LargeJob*)> forget;   // the call has ended; may be called under the job's lock
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_STAGES_H_
