#include "server/pipeline.h"

#include <atomic>
#include <new>
#include <utility>

#include "server/admit/deadline.h"
#include "server/admit/ledger.h"
#include "server/admitted_request.h"
#include "server/batch/batch_scheduler.h"
#include "server/device/device_pool.h"
#include "server/validate/validate.h"

namespace svdserve::server {
namespace {

BatchOptions batch_options(const PipelineOptions& o) {
  return {{o.max_batch_bytes, o.max_batch_matrices, o.min_split_bytes, o.max_queue_delay, o.max_waiting_batches},
          o.queue_timeout,
          o.inline_work};
}

// What the ledger counts for a request: operands, values, the status of each matrix while it is computed, and its place
// in the list of exceptions: whether there will be one is known when it is too late to refuse.
int64_t bytes_in_memory(const Request& request, const Validated& validated) {
  return static_cast<int64_t>(request.payload_bytes) + validated.result_bytes +
         request.count * static_cast<int64_t>(sizeof(MatrixStatus) + sizeof(MatrixException));
}

void refuse(Error error, DoneCallback* done) {
  Answer answer;
  answer.error = std::move(error);
  (*done)(std::move(answer));
}

}  // namespace

struct Pipeline::Impl {
  Impl(const PipelineOptions& o, std::vector<std::unique_ptr<Device>> devices, Clock* clock_arg, Recorder* recorder_arg)
      : options(o),
        clock(clock_arg),
        recorder(recorder_arg),
        ledger({o.max_inflight_bytes, o.max_inflight_requests}, clock_arg),
        pool(std::move(devices), clock_arg, recorder_arg),
        scheduler(batch_options(o), &pool, clock_arg, recorder_arg) {
    if (o.calibration > absl::ZeroDuration()) pool.Calibrate(o.calibration);
  }

  // Counts a call of Submit() between its admission and its handing over, so that Drain() overlooks none.
  class Submitting {
   public:
    explicit Submitting(std::atomic<int>* calls) : calls_(calls) { calls_->fetch_add(1); }
    ~Submitting() {
      if (calls_->fetch_sub(1) == 1) calls_->notify_all();
    }

   private:
    std::atomic<int>* const calls_;
  };

  // Admits the request and gives its values a place, in `admitted`.
  Error Admit(const Validated& validated, AdmittedRequest* admitted);

  const PipelineOptions options;
  Clock* const clock;
  Recorder* const recorder;
  Ledger ledger;
  DevicePool pool;
  BatchScheduler scheduler;
  std::atomic<int> submitting{0};
};

Error Pipeline::Impl::Admit(const Validated& validated, AdmittedRequest* admitted) {
  Request& request = admitted->request;
  if (request.deadline != absl::InfiniteFuture() && request.count > 0) {
    const absl::Duration earliest = scheduler.EarliestDone(validated.plan, request.count);
    if (Error error = CheckDeadline(admitted->admitted, request.deadline, earliest); !error.ok()) return error;
  }
  const int64_t bytes = bytes_in_memory(request, validated);
  Reservation reservation;
  if (Error error = ledger.Admit(bytes, &reservation); !error.ok()) return error;
  request.memory->Hold(std::move(reservation));
  try {
    if (validated.result_bytes > 0) {
      void* const results = request.memory->AllocateResults(static_cast<size_t>(validated.result_bytes));
      admitted->planes = planes_in(validated.plan, results, request.count);
    }
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes, "out of memory for the results", "",
            absl::Seconds(1)};
  }
  admitted->plan = validated.plan;
  recorder->Admitted(bytes);
  return {};
}

Pipeline::Pipeline(const PipelineOptions& options, std::vector<std::unique_ptr<Device>> devices, Clock* clock,
                   Recorder* recorder)
    : impl_(std::make_unique<Impl>(options, std::move(devices), clock, recorder)) {}

Pipeline::~Pipeline() = default;

RequestHandle Pipeline::Submit(Request request, DoneCallback done) {
  const absl::Time now = impl_->clock->Now();
  if (request.arrival == absl::InfinitePast()) request.arrival = now;
  Validated validated;
  const ValidationLimits limits{impl_->options.max_matrices, impl_->options.max_message_bytes};
  if (Error error = Validate(request, limits, &validated); !error.ok()) {
    refuse(std::move(error), &done);
    return {};
  }
  if (request.deadline <= now) {
    refuse(
        {absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "the deadline had passed on arrival", "", {}},
        &done);
    return {};
  }
  AdmittedRequest admitted;
  admitted.request = std::move(request);
  admitted.admitted = now;
  const Impl::Submitting submitting(&impl_->submitting);
  if (Error error = impl_->Admit(validated, &admitted); !error.ok()) {
    impl_->recorder->Refused(error.reason);
    refuse(std::move(error), &done);
    return {};
  }
  if (admitted.request.count == 0) {  // nothing to compute, so no device is asked
    Answer answer;
    answer.method = validated.plan.method;
    answer.timing.total = impl_->clock->Now() - admitted.request.arrival;
    done(std::move(answer));
    return {};
  }
  return impl_->scheduler.Submit(std::move(admitted), std::move(done));
}

void Pipeline::Cancel(const RequestHandle& handle) { impl_->scheduler.Cancel(handle); }

void Pipeline::StartDrain() { impl_->ledger.StartDrain(); }

bool Pipeline::Drain(absl::Duration timeout) {
  StartDrain();  // who comes from now on is refused; wait for who was admitted just before
  for (int calls = impl_->submitting.load(); calls != 0; calls = impl_->submitting.load()) {
    impl_->submitting.wait(calls);
  }
  return impl_->scheduler.Drain(timeout);
}

PipelineStats Pipeline::stats() const {
  const Ledger::Usage usage = impl_->ledger.usage();
  const BatchScheduler::Waiting waiting = impl_->scheduler.waiting();
  PipelineStats stats;
  stats.healthy_devices = impl_->pool.healthy();
  stats.devices = impl_->pool.size();
  stats.draining = usage.draining;
  stats.inflight_requests = usage.requests;
  stats.inflight_bytes = usage.bytes;
  stats.queued_requests = waiting.requests;
  stats.oldest_queued = waiting.oldest;
  return stats;
}

std::vector<DeviceState> Pipeline::devices() const {
  std::vector<DeviceState> states;
  for (int d = 0; d < impl_->pool.size(); ++d) states.push_back(impl_->pool.state(d));
  return states;
}

const PipelineOptions& Pipeline::options() const { return impl_->options; }

}  // namespace svdserve::server
