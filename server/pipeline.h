// The server's core behind one door: validate -> admit -> batch -> device, and the answer by callback.
#ifndef SVDSERVE_SERVER_PIPELINE_H_
#define SVDSERVE_SERVER_PIPELINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/admission.h"
#include "server/base/clock.h"
#include "server/device/cost/capacity.h"
#include "server/device/device.h"
#include "server/metrics/recorder.h"
#include "server/on_device_lost.h"
#include "server/request.h"

namespace svdserve::server {

class DeviceMonitor;

struct PipelineOptions {
  int64_t max_matrices = 16777216;                           // of one request
  int64_t max_message_bytes = int64_t{64} << 20;             // of one reply
  int64_t max_inflight_bytes = int64_t{1} << 30;             // operands and values of all requests in memory
  int64_t max_inflight_requests = 4096;                      // in memory
  int64_t max_waiting_requests = 4096;                       // for memory
  int peer_percent = 100;                                    // of all three, for one peer
  absl::Duration max_queue_delay = absl::Microseconds(500);  // by which requests of one batch may have come apart
  absl::Duration queue_timeout = absl::Seconds(30);          // without a device, after which a request is given up
  int64_t max_batch_bytes = int64_t{8} << 20;                // operands of a batch; a larger request is split
  int64_t max_batch_matrices = 1048576;
  int64_t min_split_bytes = int64_t{1} << 20;             // of a part, where a request is spread over idle devices
  absl::Duration max_batch_work = absl::Milliseconds(4);  // predicted time of a batch; a larger request is split
  absl::Duration inline_work = absl::Microseconds(20);    // predicted work up to here may run in submit(); 0: none
  absl::Duration calibration = absl::ZeroDuration();    // for measuring all devices at start; 0: they are not measured
  absl::Duration watchdog_timeout = absl::Seconds(10);  // without an answer, before a GPU is taken to hang
  OnDeviceLost on_device_lost = OnDeviceLost::kUnready;
};

struct PipelineStats {
  int healthy_devices = 0;
  int devices = 0;
  Standing standing;  // by the health of the devices
  bool draining = false;
  int64_t inflight_requests = 0;  // in the ledger: admitted, and their memory not yet free
  int64_t inflight_bytes = 0;
  int64_t waiting_requests = 0;  // for memory: their messages are not received yet
  int64_t queued_requests = 0;   // no device has taken them
  absl::Duration oldest_queued;  // age of the oldest of them; zero when there is none

  // True where new work is welcome: what readiness means.
  bool ready() const { return standing.ready && !draining; }
};

// Thread-safe, all of it.
class Pipeline {
 public:
  // `clock` and `recorder` outlive the pipeline. At least one device.
  Pipeline(const PipelineOptions& options, std::vector<std::unique_ptr<Device>> devices, Clock* clock,
           Recorder* recorder);
  // Cancels what is left, answers it, and returns when no thread of the core touches any request: never, while a device
  // holds work (DeviceState::outstanding_batches). Every RequestMemory must be gone before: they hold reservations of
  // this pipeline.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Claims memory for a request before its message is received. The reservation goes to RequestMemory::hold(), and
  // submit() makes it one of the request's exact bytes. Refusals say when to come back. See AdmissionWaiter.
  Admission enter(const Ask& ask, AdmissionWaiter* waiter, Reservation* reservation, Error* error);
  // Takes a claim out of the queue. False: it is not there, since its waiter was told or will be in a moment.
  bool leave(AdmissionWaiter* waiter);
  // Whether more than half of the memory for requests is taken.
  bool is_half_full() const;

  // Takes a request, whose memory may hold a reservation of enter(); see DoneCallback for when and where `done` is
  // called. Refusals are answered before Submit returns; so is small work on an idle server, which is computed
  // on the calling thread.
  RequestHandle submit(Request request, DoneCallback done);

  // The same of a request of several batches, each with a shape of its own, which share memory, deadline and arrival.
  // They are validated and admitted together, computed each for itself, among equal batches of other requests, and
  // answered together. The first that fails ends all.
  RequestHandle submit_groups(std::vector<Request> groups, GroupsCallback done);

  // Answers the request with CANCELLED, unless it was answered before. A request that waits leaves the queue and frees
  // its memory at once; one on a device does so when the device lets go of it.
  void cancel(const RequestHandle& handle);

  // Plans for a load of requests like this one, whose operands are not there. Fails as submit() would for its sizes
  // and options, and where no device is healthy.
  Error plan_capacity(Request request, const Demand& demand, CapacityPlan* plan) const;

  // From now on submit() refuses with DRAINING.
  void start_drain();

  // start_drain(), then blocks until every accepted request is answered and off the devices. Requests unanswered
  // after `timeout` end with UNAVAILABLE, reason DRAINING. Devices that do not let go of them soon are waited for no
  // more. Returns whether nothing had to be given up. Not to be called from a DoneCallback.
  bool drain(absl::Duration timeout);

  PipelineStats stats() const;
  std::vector<DeviceState> devices() const;
  const PipelineOptions& options() const;
  // For who computes on the devices beside this pipeline. Lives as long.
  DeviceMonitor* device_monitor();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_PIPELINE_H_
