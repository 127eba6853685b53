#include "server/batch/batch_scheduler.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/device/cost_estimate.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;

Error deadline_error() {
  return {StatusCode::kDeadlineExceeded, Reason::kDeadlineExceeded, "the request's deadline has passed", "", {}};
}

Error cancelled_error() { return {StatusCode::kCancelled, Reason::kCancelled, "cancelled by the caller", "", {}}; }

Error draining_error() {
  return {StatusCode::kUnavailable, Reason::kDraining, "the server shut down before the request was done", "",
          absl::Seconds(1)};
}

Error queue_timeout_error(absl::Duration timeout) {
  return {StatusCode::kResourceExhausted, Reason::kQueueTimeout,
          absl::StrCat("no device was free for ", absl::FormatDuration(timeout)), "",
          std::clamp(timeout, absl::Milliseconds(100), absl::Seconds(10))};
}

Error fault_error(const absl::Status& status) {
  return {StatusCode::kInternal, Reason::kDeviceFault, std::string(status.message()), "", {}};
}

Error no_device_error() {
  return {StatusCode::kUnavailable, Reason::kDeviceFault, "no healthy device is left", "", absl::Seconds(1)};
}

// Appends the matrices of one slice that are not OK, numbered as in their request.
void collect_exceptions(const MatrixStatus* statuses, int64_t first, int64_t count, std::vector<MatrixException>* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (statuses[i] != MatrixStatus::kOk) out->push_back({first + i, statuses[i]});
  }
}

HostSegment segment_of(const AdmittedRequest& work, int64_t first, int64_t count, MatrixStatus* statuses) {
  const size_t skipped = static_cast<size_t>(first);
  return {static_cast<const std::byte*>(work.request.payload) + skipped * matrix_bytes(work.plan.problem), count,
          static_cast<std::byte*>(work.values) + skipped * result_bytes(work.plan.problem), statuses};
}

}  // namespace

// What a lane made of a batch.
struct BatchScheduler::PartResult {
  absl::Status status;
  absl::Duration took;
  std::vector<std::vector<MatrixException>> exceptions;  // of each slice; empty: there are none at all
};

BatchScheduler::BatchScheduler(const BatchOptions& options, DevicePool* pool, Clock* clock, Recorder* recorder)
    : options_(options),
      pool_(pool),
      clock_(clock),
      recorder_(recorder),
      queue_(options.limits),
      alarm_(clock->MakeAlarm([this] { OnAlarm(); })) {}

BatchScheduler::~BatchScheduler() {
  Effects effects;
  {
    MutexLock lock(&mu_);
    GiveUpAll(draining_error(), &effects);
  }
  Apply(&effects);
  MutexLock lock(&mu_);
  while (!IsIdle()) idle_.Wait(&mu_);
}

// --- in ------------------------------------------------------------------------------------------

RequestHandle BatchScheduler::Submit(AdmittedRequest request, DoneCallback done) {
  if (RunInline(request, &done)) return {};
  const int64_t bytes = static_cast<int64_t>(request.request.payload_bytes);
  const int idle_devices = bytes >= 2 * options_.limits.min_split_bytes ? pool_->idle() : 1;
  const auto job = std::make_shared<Job>();
  job->work = std::move(request);
  job->done = std::move(done);
  Effects effects;
  {
    MutexLock lock(&mu_);
    const absl::Time now = clock_->Now();
    // With others waiting the idle devices have their work already.
    queue_.Add(job, queue_.empty() ? idle_devices : 1, now, &effects.cuts);
    queued_.insert({job->work.admitted, job.get()});
    const absl::Time deadline = job->work.request.deadline;
    if (deadline != absl::InfiniteFuture()) deadlines_.insert({deadline, job.get()});
    if (draining_) queue_.CutAll(CutReason::kDrain, now, &effects.cuts);
    Pump(&effects);
  }
  Apply(&effects);
  return {job};
}

bool BatchScheduler::RunInline(const AdmittedRequest& request, DoneCallback* done) {
  const int64_t count = request.request.count;
  const absl::Duration work = estimate_compute(request.plan, count);
  if (work > options_.inline_work) return false;
  std::optional<Lane> lane;
  {
    MutexLock lock(&mu_);
    if (!queue_.empty()) return false;  // others were here before
    lane = pool_->Acquire(work);
    if (!lane.has_value()) return false;
    ++busy_;
  }
  absl::InlinedVector<MatrixStatus, 256> statuses(static_cast<size_t>(count));
  const HostSegment segment = segment_of(request, 0, count, statuses.data());
  const std::atomic<bool> never{false};
  const DevicePool::Executed executed = pool_->Execute(*lane, request.plan, {&segment, 1}, &never);
  Effects effects;
  {
    MutexLock lock(&mu_);
    pool_->Release(*lane);
    Pump(&effects);
  }
  Apply(&effects);

  const absl::Duration queued = executed.started - request.admitted;
  recorder_->BatchCut(CutReason::kLaneFree, 1, count, static_cast<int64_t>(request.request.payload_bytes));
  recorder_->PhaseTook(Phase::kBatchAssembly, absl::ZeroDuration());
  recorder_->PhaseTook(Phase::kQueue, queued);
  Answer answer;
  if (executed.outcome.status.ok()) {
    answer.method = request.plan.method;
    answer.devices = pool_->info(lane->device).name;
    answer.timing = {queued, executed.took, executed.started + executed.took - request.request.arrival};
    if (executed.outcome.report.ok != count) collect_exceptions(statuses.data(), 0, count, &answer.exceptions);
  } else {
    answer.error = fault_error(executed.outcome.status);
  }
  (*done)(std::move(answer));
  MutexLock lock(&mu_);
  LeaveBusy(1);
  return true;
}

// --- to the lanes and back -----------------------------------------------------------------------

void BatchScheduler::Pump(Effects* effects) {
  while (!queue_.empty()) {
    if (pool_->healthy() == 0) {
      GiveUpQueued(no_device_error(), effects);
      break;
    }
    const Batch& next = queue_.Next();
    const std::optional<Lane> lane = pool_->Acquire(estimate_compute(next.plan, next.matrices));
    if (!lane.has_value()) break;
    Start(*lane, effects);
  }
  if (!queue_.empty()) queue_.CutOverdue(clock_->Now(), &effects->cuts);
  SetAlarm();
}

void BatchScheduler::Start(const Lane& lane, Effects* effects) {
  const absl::Time now = clock_->Now();
  std::unique_ptr<Batch> batch = queue_.Take(now, &effects->cuts);
  for (const Slice& slice : batch->slices) {
    Job* const job = slice.job.get();
    if (job == nullptr || !job->queued) continue;
    job->queued = false;
    job->taken = now;
    queued_.erase({job->work.admitted, job});
  }
  running_.insert(batch.get());
  ++busy_;
  batch->runner = this;
  pool_->Run(lane, batch.release());  // which comes back by RunBatch()
}

void BatchScheduler::RunBatch(std::unique_ptr<Batch> batch, const Lane& lane) {
  PartResult result = Compute(*batch, lane);
  Effects effects;
  {
    MutexLock lock(&mu_);
    Finish(batch.get(), lane, std::move(result), &effects);
  }
  // Before the lane is released: answering is this thread's work, and the next batch would wait for it unseen.
  Apply(&effects);
  Effects next;
  {
    MutexLock lock(&mu_);
    pool_->Release(lane);
    Pump(&next);
  }
  Apply(&next);
  MutexLock lock(&mu_);
  LeaveBusy(1);  // the last that this thread does here: the destructor waits for it
}

BatchScheduler::PartResult BatchScheduler::Compute(const Batch& batch, const Lane& lane) {
  PartResult result;
  try {
    const std::unique_ptr<MatrixStatus[]> statuses(new MatrixStatus[static_cast<size_t>(batch.matrices)]);
    std::vector<HostSegment> segments;
    segments.reserve(batch.slices.size());
    MatrixStatus* next = statuses.get();
    for (const Slice& slice : batch.slices) {
      if (slice.job == nullptr) continue;
      segments.push_back(segment_of(slice.job->work, slice.first, slice.count, next));
      next += slice.count;
    }
    const DevicePool::Executed executed = pool_->Execute(lane, batch.plan, segments, &batch.cancel);
    result.status = executed.outcome.status;
    result.took = executed.took;
    if (result.status.ok() && !executed.outcome.completed) {
      result.status = absl::InternalError("the device gave the batch up");  // nobody hears it, where all have cancelled
    }
    for (const Slice& slice : batch.slices) {  // a split request is recorded once, with its first part
      if (slice.job == nullptr || slice.first != 0) continue;
      recorder_->PhaseTook(Phase::kQueue, executed.started - slice.job->work.admitted);
    }
    if (!result.status.ok() || executed.outcome.report.ok == batch.matrices) return result;
    result.exceptions.resize(batch.slices.size());
    next = statuses.get();
    for (size_t i = 0; i < batch.slices.size(); ++i) {
      const Slice& slice = batch.slices[i];
      if (slice.job == nullptr) continue;
      collect_exceptions(next, slice.first, slice.count, &result.exceptions[i]);
      next += slice.count;
    }
  } catch (const std::bad_alloc&) {
    result.status = absl::InternalError("out of memory for the bookkeeping of a batch");
  }
  return result;
}

void BatchScheduler::Finish(Batch* batch, const Lane& lane, PartResult result, Effects* effects) {
  running_.erase(batch);
  for (size_t i = 0; i < batch->slices.size(); ++i) {
    if (batch->slices[i].job == nullptr) continue;
    effects->released.push_back(std::move(batch->slices[i].job));
    Job* const job = effects->released.back().get();
    for (Part& part : job->parts) {
      if (part.batch == batch) part.batch = nullptr;
    }
    if (job->answered) continue;
    if (!result.status.ok()) {
      End(job, fault_error(result.status), effects);
      continue;
    }
    job->compute = std::max(job->compute, result.took);
    job->devices.push_back(lane.device);
    if (!result.exceptions.empty()) {
      std::vector<MatrixException>& mine = result.exceptions[i];
      job->exceptions.insert(job->exceptions.end(), mine.begin(), mine.end());
    }
    if (--job->unfinished == 0) End(job, Error{}, effects);
  }
}

// --- out -----------------------------------------------------------------------------------------

void BatchScheduler::End(Job* job, Error error, Effects* effects) {
  job->answered = true;
  if (job->queued) queued_.erase({job->work.admitted, job});
  deadlines_.erase({job->work.request.deadline, job});
  for (Part& part : job->parts) {
    if (part.batch == nullptr) continue;
    if (part.batch->state == Batch::State::kRunning) {
      if (--part.batch->live == 0) part.batch->cancel.store(true, std::memory_order_relaxed);
    } else {
      effects->released.push_back(queue_.Remove(part));
      part.batch = nullptr;
    }
  }
  struct Answer answer;
  answer.error = std::move(error);
  if (answer.error.ok()) {
    answer.method = job->work.plan.method;
    std::sort(job->devices.begin(), job->devices.end());
    job->devices.erase(std::unique(job->devices.begin(), job->devices.end()), job->devices.end());
    for (const int device : job->devices) {
      absl::StrAppend(&answer.devices, answer.devices.empty() ? "" : ",", pool_->info(device).name);
    }
    answer.timing = {job->taken - job->work.admitted, job->compute, clock_->Now() - job->work.request.arrival};
    answer.exceptions = std::move(job->exceptions);
    if (job->parts.size() > 1) {
      std::sort(answer.exceptions.begin(), answer.exceptions.end(),
                [](const MatrixException& a, const MatrixException& b) { return a.index < b.index; });
    }
  }
  ++busy_;  // until Apply() has called back
  effects->answers.emplace_back(std::move(job->done), std::move(answer));
}

void BatchScheduler::Apply(Effects* effects) {
  for (const CutEvent& cut : effects->cuts) {
    recorder_->BatchCut(cut.reason, cut.requests, cut.matrices, cut.bytes);
    recorder_->PhaseTook(Phase::kBatchAssembly, cut.assembly);
  }
  for (auto& [done, answer] : effects->answers) done(std::move(answer));
  const int64_t answered = static_cast<int64_t>(effects->answers.size());
  effects->answers.clear();
  effects->released.clear();
  if (answered == 0) return;
  MutexLock lock(&mu_);
  LeaveBusy(answered);
}

void BatchScheduler::LeaveBusy(int64_t n) {
  busy_ -= n;
  if (IsIdle()) idle_.SignalAll();
}

void BatchScheduler::Cancel(const RequestHandle& handle) {
  const auto job = std::static_pointer_cast<Job>(handle.job.lock());
  if (job == nullptr) return;
  Effects effects;
  {
    MutexLock lock(&mu_);
    if (!job->answered) End(job.get(), cancelled_error(), &effects);
  }
  Apply(&effects);
}

void BatchScheduler::GiveUpQueued(const Error& error, Effects* effects) {
  absl::flat_hash_set<Job*> jobs;  // first: End() changes the queue
  queue_.ForEachJob([&jobs](Job* job) { jobs.insert(job); });
  for (Job* const job : jobs) End(job, error, effects);
}

void BatchScheduler::GiveUpAll(const Error& error, Effects* effects) {
  GiveUpQueued(error, effects);
  for (Batch* const batch : running_) {
    for (const Slice& slice : batch->slices) {
      if (slice.job != nullptr && !slice.job->answered) End(slice.job.get(), error, effects);
    }
  }
}

// --- time ----------------------------------------------------------------------------------------

void BatchScheduler::SetAlarm() {
  absl::Time next = std::min(drain_deadline_, queue_.next_cut());
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (!queued_.empty()) next = std::min(next, queued_.begin()->first + options_.queue_timeout);
  if (next >= alarm_at_)
    return;  // it rings too early, finds nothing due, and is set anew: cheaper than each time exactly
  alarm_at_ = next;
  alarm_->Set(next);
}

void BatchScheduler::OnAlarm() {
  Effects effects;
  {
    MutexLock lock(&mu_);
    alarm_at_ = absl::InfiniteFuture();
    ExpireDue(clock_->Now(), &effects);
    Pump(&effects);
  }
  Apply(&effects);
}

void BatchScheduler::ExpireDue(absl::Time now, Effects* effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    End(deadlines_.begin()->second, deadline_error(), effects);
  }
  while (!queued_.empty() && queued_.begin()->first + options_.queue_timeout <= now) {
    End(queued_.begin()->second, queue_timeout_error(options_.queue_timeout), effects);
  }
  if (drain_deadline_ <= now) {
    drain_deadline_ = absl::InfiniteFuture();
    const size_t before = effects->answers.size();
    GiveUpAll(draining_error(), effects);
    gave_up_ = gave_up_ || effects->answers.size() > before;
  }
}

bool BatchScheduler::Drain(absl::Duration timeout) {
  Effects effects;
  {
    MutexLock lock(&mu_);
    const absl::Time now = clock_->Now();
    draining_ = true;
    drain_deadline_ = std::min(drain_deadline_, now + timeout);
    queue_.CutAll(CutReason::kDrain, now, &effects.cuts);
    Pump(&effects);
  }
  Apply(&effects);
  MutexLock lock(&mu_);
  while (!IsIdle()) idle_.Wait(&mu_);
  drain_deadline_ = absl::InfiniteFuture();
  return !gave_up_;
}

BatchScheduler::Waiting BatchScheduler::waiting() const {
  MutexLock lock(&mu_);
  if (queued_.empty()) return {0, absl::ZeroDuration()};
  return {static_cast<int64_t>(queued_.size()), clock_->Now() - queued_.begin()->first};
}

}  // namespace svdserve::server
