#include "server/pipeline.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "server/admit/deadline.h"
#include "server/admit/ledger.h"
#include "server/admitted_request.h"
#include "server/batch/batch_scheduler.h"
#include "server/device/device_pool.h"
#include "server/respond/group_join.h"
#include "server/validate/validate.h"

namespace svdserve::server {
namespace {

BatchOptions batch_options(const PipelineOptions& o) {
  return {{o.max_batch_bytes, o.max_batch_matrices, o.min_split_bytes, o.max_queue_delay, o.max_batch_work},
          o.queue_timeout,
          o.inline_work};
}

// The bytes that the ledger counts for a batch: operands and results, and two numbers for each matrix. They are its
// status while it is computed, and its place in the list of exceptions. Exceptions are known only when it is too late
// to refuse.
int64_t bytes_in_memory(const AdmittedRequest& batch) {
  const int64_t count = batch.request.count;
  return static_cast<int64_t>(batch.request.operand_bytes()) + static_cast<int64_t>(result_bytes(batch.plan, count)) +
         count * static_cast<int64_t>(sizeof(MatrixStatus) + sizeof(MatrixException));
}

// Bytes of `count` things of `one` bytes, or none where they are too many to count, which validate() rejects.
size_t bytes_of_all(int64_t count, int64_t one) {
  int64_t all = 0;
  return count < 0 || __builtin_mul_overflow(count, one, &all) ? 0 : static_cast<size_t>(all);
}

// Gives the results of the batches, which share one memory, their places in it.
Error allocate_results(absl::Span<AdmittedRequest> batches) {
  try {
    absl::InlinedVector<ResultPart, 1> parts;
    for (const AdmittedRequest& batch : batches) parts.push_back({batch.plan, batch.request.count});
    char* at = static_cast<char*>(batches.front().request.memory->allocate_results(parts));
    for (size_t i = 0; i < batches.size(); ++i) {
      batches[i].planes = planes_in(batches[i].plan, at, parts[i].count);
      at += result_bytes(parts[i]);
    }
  } catch (const std::bad_alloc&) {
    return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes, "out of memory for the results", "",
            absl::Seconds(1)};
  }
  return {};
}

Error late_error() {
  return {absl::StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "the deadline had passed on arrival", "", {}};
}

void refuse(Error error, DoneCallback* done) {
  Answer answer;
  answer.error = std::move(error);
  (*done)(std::move(answer));
}

void refuse(Error error, GroupsCallback* done) {
  GroupsAnswer answer;
  answer.error = std::move(error);
  (*done)(std::move(answer));
}

}  // namespace

struct Pipeline::Impl {
  Impl(const PipelineOptions& o, std::vector<std::unique_ptr<Device>> devices, Clock* clock_arg, Recorder* recorder_arg)
      : options(o),
        clock(clock_arg),
        recorder(recorder_arg),
        ledger({.max_bytes = o.max_inflight_bytes,
                .max_requests = o.max_inflight_requests,
                .max_waiting = o.max_waiting_requests,
                .peer_percent = o.peer_percent,
                .max_wait = o.queue_timeout},
               clock_arg),
        pool(std::move(devices), clock_arg, recorder_arg, o.watchdog_timeout),
        scheduler(batch_options(o), &pool, clock_arg, recorder_arg) {
    if (o.calibration > absl::ZeroDuration()) pool.calibrate(o.calibration);
  }

  // Counts a call of submit() between its admission and its handing over, so that drain() overlooks none.
  class Submitting {
   public:
    explicit Submitting(std::atomic<int>* calls) : calls_(calls) { calls_->fetch_add(1); }
    ~Submitting() {
      if (calls_->fetch_sub(1) == 1) calls_->notify_all();
    }

   private:
    std::atomic<int>* const calls_;
  };

  // Admits the batches of one request, which have their plans, and gives their results places.
  Error admit(absl::Span<AdmittedRequest> batches);
  // Hands an admitted batch over.
  RequestHandle compute(AdmittedRequest batch, DoneCallback done);
  ValidationLimits limits() const { return {options.max_matrices, options.max_message_bytes}; }

  const PipelineOptions options;
  Clock* const clock;
  Recorder* const recorder;
  Ledger ledger;
  DevicePool pool;
  BatchScheduler scheduler;
  std::atomic<int> submitting{0};
};

Error Pipeline::Impl::admit(absl::Span<AdmittedRequest> batches) {
  int64_t bytes = 0;
  for (const AdmittedRequest& batch : batches) {
    const Request& request = batch.request;
    bytes += bytes_in_memory(batch);
    if (request.deadline == absl::InfiniteFuture() || request.count == 0) continue;
    const absl::Duration earliest = scheduler.earliest_done(request.peer, batch.plan, request.count);
    if (Error error = check_deadline(batch.admitted, request.deadline, earliest); !error.ok()) return error;
  }
  const Request& first = batches.front().request;
  if (first.memory->reservation()->grantor() != nullptr) {
    if (Error error = ledger.resize(first.memory->reservation(), bytes); !error.ok()) return error;
  } else {
    Reservation reservation;
    if (Error error = ledger.admit(first.peer, bytes, &reservation); !error.ok()) return error;
    first.memory->hold(std::move(reservation));
  }
  if (Error error = allocate_results(batches); !error.ok()) return error;
  recorder->admitted(bytes);
  return {};
}

RequestHandle Pipeline::Impl::compute(AdmittedRequest batch, DoneCallback done) {
  if (batch.request.count > 0) return scheduler.submit(std::move(batch), std::move(done));
  Answer answer;  // nothing to compute, so no device is asked
  answer.method = batch.plan.method;
  answer.timing.total = clock->now() - batch.request.arrival;
  done(std::move(answer));
  return {};
}

Pipeline::Pipeline(const PipelineOptions& options, std::vector<std::unique_ptr<Device>> devices, Clock* clock,
                   Recorder* recorder)
    : impl_(std::make_unique<Impl>(options, std::move(devices), clock, recorder)) {}

Pipeline::~Pipeline() = default;

Admission Pipeline::enter(const Ask& ask, AdmissionWaiter* waiter, Reservation* reservation, Error* error) {
  return impl_->ledger.enter(ask, waiter, reservation, error);
}

bool Pipeline::leave(AdmissionWaiter* waiter) { return impl_->ledger.leave(waiter); }

bool Pipeline::is_half_full() const { return impl_->ledger.is_half_full(); }

RequestHandle Pipeline::submit(Request request, DoneCallback done) {
  const absl::Time now = impl_->clock->now();
  if (request.arrival == absl::InfinitePast()) request.arrival = now;
  Validated validated;
  if (Error error = validate(request, impl_->limits(), &validated); !error.ok()) {
    refuse(std::move(error), &done);
    return {};
  }
  if (request.deadline <= now) {
    refuse(late_error(), &done);
    return {};
  }
  AdmittedRequest admitted{validated.plan, std::move(request), {}, now};
  const Impl::Submitting submitting(&impl_->submitting);
  if (Error error = impl_->admit({&admitted, 1}); !error.ok()) {
    impl_->recorder->refused(error.reason);
    refuse(std::move(error), &done);
    return {};
  }
  return impl_->compute(std::move(admitted), std::move(done));
}

RequestHandle Pipeline::submit_groups(std::vector<Request> groups, GroupsCallback done) {
  const absl::Time now = impl_->clock->now();
  std::vector<Validated> validated;
  if (Error error = validate_groups(groups, impl_->limits(), &validated); !error.ok()) {
    refuse(std::move(error), &done);
    return {};
  }
  if (groups.front().deadline <= now) {
    refuse(late_error(), &done);
    return {};
  }
  const absl::Time arrival = groups.front().arrival == absl::InfinitePast() ? now : groups.front().arrival;
  std::vector<AdmittedRequest> admitted;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].arrival = arrival;
    admitted.push_back({validated[i].plan, std::move(groups[i]), {}, now});
  }
  const Impl::Submitting submitting(&impl_->submitting);
  if (Error error = impl_->admit(absl::MakeSpan(admitted)); !error.ok()) {
    impl_->recorder->refused(error.reason);
    refuse(std::move(error), &done);
    return {};
  }
  const auto join = std::make_shared<GroupJoin>(
      admitted.size(), std::move(done), [this](const RequestHandle& handle) { cancel(handle); },
      [clock = impl_->clock, arrival] { return clock->now() - arrival; });
  for (size_t i = 0; i < admitted.size(); ++i) {
    join->attach(impl_->compute(std::move(admitted[i]), [join, i](Answer a) { join->on_answer(i, std::move(a)); }));
  }
  return join->handle();
}

void Pipeline::cancel(const RequestHandle& handle) {
  for (const std::weak_ptr<void>& job : handle.jobs) impl_->scheduler.cancel(job);
}

Error Pipeline::plan_capacity(Request request, const Demand& demand, CapacityPlan* plan) const {
  const PipelineOptions& o = impl_->options;
  if (const PlanOrError planned = make_plan(request.problem, *request.options); planned.plan) {
    request.payload_bytes = bytes_of_all(request.count, static_cast<int64_t>(stored_bytes(request.problem)));
    const bool starts = planned.plan->starting_vectors;
    const auto of_start = starts ? static_cast<int64_t>(starting_bytes(*planned.plan)) : 0;
    request.starting_vectors_bytes = bytes_of_all(request.count, of_start);
  }
  Validated validated;
  if (Error error = validate(request, impl_->limits(), &validated); !error.ok()) return error;
  if (request.count == 0) {
    return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, "must be at least 1", "matrices.count", {}};
  }
  const Plan& of = validated.plan;
  const BatchBounds bounds = bounds_of(batch_options(o).limits, of);
  std::vector<DeviceCost> costs = impl_->pool.costs(of, request.count, bounds);
  if (costs.empty()) {
    return {absl::StatusCode::kUnavailable, Reason::kDeviceFault, "no device is healthy", "", absl::Seconds(1)};
  }
  const AdmittedRequest admitted{of, std::move(request), {}, {}};
  const auto operands = static_cast<int64_t>(admitted.request.operand_bytes());
  const RequestSize size{admitted.request.count, operands, validated.result_bytes, bytes_in_memory(admitted)};
  *plan = server::plan_capacity(std::move(costs), size, demand, {o.max_message_bytes, o.max_batch_bytes});
  return {};
}

void Pipeline::start_drain() { impl_->ledger.start_drain(); }

bool Pipeline::drain(absl::Duration timeout) {
  start_drain();  // who comes from now on is refused; wait for who was admitted just before
  for (int calls = impl_->submitting.load(); calls != 0; calls = impl_->submitting.load()) {
    impl_->submitting.wait(calls);
  }
  return impl_->scheduler.drain(timeout);
}

PipelineStats Pipeline::stats() const {
  const Ledger::Usage usage = impl_->ledger.usage();
  const BatchScheduler::Waiting waiting = impl_->scheduler.waiting();
  PipelineStats stats;
  stats.healthy_devices = impl_->pool.healthy();
  stats.devices = impl_->pool.size();
  stats.standing = standing_of(impl_->pool.census(), impl_->options.on_device_lost);
  stats.draining = usage.draining;
  stats.inflight_requests = usage.requests;
  stats.inflight_bytes = usage.bytes;
  stats.waiting_requests = usage.waiting;
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

DeviceMonitor* Pipeline::device_monitor() { return &impl_->pool; }

}  // namespace svdserve::server
