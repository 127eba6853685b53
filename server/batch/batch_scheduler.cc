#include "server/batch/batch_scheduler.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

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
  return {StatusCode::kInternal,
          Reason::kDeviceFault,
          absl::StrCat("no device computed the request: ", status.message()),
          "",
          {}};
}

Error hung_error(const std::string& device) {
  return {StatusCode::kUnavailable, Reason::kDeviceFault,
          absl::StrCat("device ", device, " did not respond and was taken out of service"), "", absl::Seconds(1)};
}

// Joins the faults of one batch on several devices.
absl::Status join(const absl::Status& before, const absl::Status& now) {
  if (before.ok()) return now;
  return absl::Status(now.code(), absl::StrCat(before.message(), "; ", now.message()));
}

Error no_device_error() {
  return {StatusCode::kUnavailable, Reason::kDeviceFault, "no healthy device is left", "", absl::Seconds(1)};
}

// Stop retrying after this many faults on devices that serve on: by then the batch itself is the likelier cause.
// Devices that were lost over it do not count: GPUs of one process die together.
constexpr int kMaxFaults = 3;
// How many waiting batches are offered a free lane before it stays free: each look costs time under the lock.
constexpr int kLookAhead = 16;

// After a drain that ran out of time: how long a device may take to obey the cancel flag.
constexpr absl::Duration kLetGo = absl::Seconds(5);

// More matrices than this take longer than anything may on the calling thread: not worth a prediction.
constexpr int64_t kMostInline = 4096;

int64_t ceil_div(int64_t a, size_t b) {
  const int64_t divisor = static_cast<int64_t>(b);
  return a / divisor + (a % divisor != 0 ? 1 : 0);
}

// Appends the matrices of one slice that are not OK, numbered as in their request.
void collect_exceptions(const MatrixStatus* statuses, int64_t first, int64_t count, std::vector<MatrixException>* out) {
  for (int64_t i = 0; i < count; ++i) {
    if (statuses[i] != MatrixStatus::kOk) out->push_back({first + i, statuses[i]});
  }
}

HostSegment segment_of(const AdmittedRequest& work, int64_t first, int64_t count, MatrixStatus* statuses) {
  const size_t skipped = static_cast<size_t>(first);
  HostSegment segment{static_cast<const std::byte*>(work.request.payload) + skipped * stored_bytes(work.plan.problem),
                      count, planes_from(work.plan, work.planes, first), statuses};
  if (work.plan.starting_vectors) {
    const auto* const starts = static_cast<const std::byte*>(work.request.starting_vectors);
    segment.starting_vectors = starts + skipped * starting_bytes(work.plan);
  }
  return segment;
}

// The ids of the first few calls with work in the batch, each once: "a,b and 3 more".
std::string calls_of(const Batch& batch) {
  constexpr size_t kMost = 16;
  std::vector<absl::string_view> ids;
  for (const Slice& slice : batch.slices) {
    if (slice.job == nullptr) continue;
    const std::string& id = slice.job->work.request.memory->call_id;
    if (!id.empty() && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  const size_t shown = std::min(ids.size(), kMost);
  std::string text = absl::StrJoin(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(shown), ",");
  if (ids.size() > shown) absl::StrAppend(&text, " and ", ids.size() - shown, " more");
  return text;
}

}  // namespace

// The outcome of a batch on a lane.
struct BatchScheduler::PartResult {
  absl::Status status;
  absl::Duration took;
  absl::Duration device_time;
  std::vector<std::vector<MatrixException>> exceptions;  // of each slice; empty: there are none at all
};

BatchScheduler::BatchScheduler(const BatchOptions& options, DevicePool* pool, Clock* clock, Recorder* recorder)
    : options_(options),
      pool_(pool),
      clock_(clock),
      recorder_(recorder),
      queue_(options.limits,
             [pool](const Plan& plan, const BatchBounds& bounds) { return pool->matrices_within(plan, bounds); }),
      healthy_(pool->healthy()),
      alarm_(clock->make_alarm([this] { on_alarm(); })) {}

BatchScheduler::~BatchScheduler() {
  Effects effects;
  {
    MutexLock lock(&mu_);
    give_up_all(draining_error(), &effects);
  }
  apply(&effects);
  MutexLock lock(&mu_);
  while (!is_idle() || abandoned_ > 0) idle_.wait(&mu_);
}

// --- in ------------------------------------------------------------------------------------------

RequestHandle BatchScheduler::submit(AdmittedRequest request, DoneCallback done) {
  std::optional<Fault> fault;
  if (run_inline(request, &done, &fault)) return {};
  const std::vector<int64_t> shares = shares_of(request);
  const auto job = std::make_shared<Job>();
  job->work = std::move(request);
  job->done = std::move(done);
  Effects effects;
  {
    MutexLock lock(&mu_);
    const absl::Time now = clock_->now();
    job->waits_since = job->work.admitted;
    queued_.insert({job->waits_since, job.get()});
    const absl::Time deadline = job->work.request.deadline;
    if (deadline != absl::InfiniteFuture()) deadlines_.insert({deadline, job.get()});
    if (fault.has_value()) {
      failed(batch_of(job), *std::move(fault), &effects);
    } else if (queue_.empty()) {
      queue_.add(job, shares, now);
    } else {  // with others waiting, free devices have their work already
      queue_.add(job, {job->work.request.count}, now);
    }
    pump(&effects);
  }
  apply(&effects);
  return {{job}};
}

std::vector<int64_t> BatchScheduler::shares_of(const AdmittedRequest& request) const {
  const int64_t count = request.request.count;
  const int64_t group = request.plan.outputs.group;
  int64_t least = ceil_div(options_.limits.min_split_bytes, operand_bytes(request.plan));
  least = ceil_div(least, static_cast<size_t>(group)) * group;
  if (count < 2 * least) return {count};
  return pool_->shares(request.plan, count, least);
}

bool BatchScheduler::run_inline(const AdmittedRequest& request, DoneCallback* done, std::optional<Fault>* fault) {
  const int64_t count = request.request.count;
  if (options_.inline_work <= absl::ZeroDuration() || count > kMostInline) return false;
  std::optional<Lane> lane;
  {
    MutexLock lock(&mu_);
    lane = pool_->place_beside(request.plan, count);  // which keeps nobody waiting who was here before
    if (!lane.has_value() && queue_.empty()) lane = pool_->place_short(request.plan, count, options_.inline_work);
    if (!lane.has_value()) return false;
    ++busy_;
  }
  absl::InlinedVector<MatrixStatus, 256> statuses(static_cast<size_t>(count));
  const HostSegment segment = segment_of(request, 0, count, statuses.data());
  const std::atomic<bool> never{false};
  const DevicePool::Executed executed = pool_->execute(*lane, request.plan, {&segment, 1}, &never, nullptr,
                                                       [&] { return request.request.memory->call_id; });
  Effects effects;
  {
    MutexLock lock(&mu_);
    pool_->release(*lane);
    pump(&effects);
  }
  apply(&effects);
  if (!executed.outcome.status.ok()) {
    *fault = {lane->device, executed.outcome.status};
    MutexLock lock(&mu_);
    leave_busy(1);
    return false;
  }

  const absl::Duration queued = executed.started - request.admitted;
  recorder_->batch_cut(CutReason::kLaneFree, 1, count, static_cast<int64_t>(request.request.operand_bytes()));
  recorder_->phase_took(Phase::kBatchAssembly, absl::ZeroDuration());
  recorder_->phase_took(Phase::kQueue, queued);
  Answer answer;
  answer.method = method_on(pool_->info(lane->device), request.plan);
  answer.devices = pool_->info(lane->device).name;
  answer.timing = {queued, executed.took, executed.started + executed.took - request.request.arrival};
  if (executed.outcome.report.ok != count) collect_exceptions(statuses.data(), 0, count, &answer.exceptions);
  (*done)(std::move(answer));
  MutexLock lock(&mu_);
  leave_busy(1);
  return true;
}

// --- to the lanes and back -----------------------------------------------------------------------

void BatchScheduler::pump(Effects* effects) {
  const int healthy = pool_->healthy();
  if (healthy != healthy_ || healthy == 0) end_stranded(effects);
  healthy_ = healthy;
  while (start_one(effects)) {
  }
  set_alarm();
}

bool BatchScheduler::start_one(Effects* effects) {
  look_again_ = absl::InfiniteFuture();
  if (queue_.empty()) return false;
  DevicePool::Placement placement(pool_);
  const absl::Time now = clock_->now();
  BatchQueue::Offer chosen{};
  std::optional<Lane> lane;
  int looked = 0;
  if (placement.lane_free()) {
    queue_.for_each_offer(now, [&](const BatchQueue::Offer& offer) {
      // Those that came back may have nowhere to go but to one busy device: they must not hide what is behind them.
      if (offer.tried.empty() && ++looked > kLookAhead) return false;
      chosen = offer;
      lane = placement.place(*offer.plan, offer.matrices, offer.tried);
      return !lane.has_value();
    });
  }
  look_again_ = placement.look_again();
  if (lane.has_value()) start(queue_.take(chosen, lane->predicted, now, &effects->cuts), *lane, now);
  return lane.has_value();
}

void BatchScheduler::end_stranded(Effects* effects) {
  std::vector<std::pair<std::shared_ptr<Job>, Error>> stranded;  // first: end() changes the queue
  queue_.for_each_returned([&](Batch* batch) {
    if (pool_->healthy_besides(batch->tried)) return;
    for (const Slice& slice : batch->slices) {
      if (slice.job != nullptr) stranded.emplace_back(slice.job, fault_error(batch->fault));
    }
  });
  for (auto& [job, error] : stranded) {
    if (!job->answered) end(job.get(), std::move(error), effects);
    effects->released.push_back(std::move(job));
  }
  if (pool_->healthy() == 0) give_up_queued(no_device_error(), effects);
}

void BatchScheduler::start(std::unique_ptr<Batch> batch, const Lane& lane, absl::Time now) {
  for (const Slice& slice : batch->slices) {
    Job* const job = slice.job.get();
    if (job == nullptr || !job->queued) continue;
    job->queued = false;
    if (job->taken == absl::InfinitePast()) job->taken = now;
    queued_.erase({job->waits_since, job});
  }
  running_.insert(batch.get());
  ++busy_;
  batch->runner = this;
  pool_->run(lane, batch.release());  // which comes back by run_batch()
}

void BatchScheduler::run_batch(std::unique_ptr<Batch> batch, const Lane& lane) {
  PartResult result = compute(batch.get(), lane);
  Effects effects;
  bool abandoned = false;
  {
    MutexLock lock(&mu_);
    running_.erase(batch.get());
    queue_.settle(batch.get(), result.device_time);
    abandoned = batch->abandoned;
    if (abandoned) {
      release(batch.get(), &effects);
    } else if (result.status.ok()) {
      finish(batch.get(), lane, std::move(result), &effects);
    } else {
      failed(std::move(batch), {lane.device, std::move(result.status)}, &effects);
    }
  }
  // Before the lane is released: answering is this thread's work, and the next batch would wait for it unseen.
  apply(&effects);
  Effects next;
  {
    MutexLock lock(&mu_);
    pool_->release(lane);
    pump(&next);
  }
  apply(&next);
  MutexLock lock(&mu_);  // the last that this thread does here: the destructor waits for it
  abandoned_ -= abandoned ? 1 : 0;
  leave_busy(abandoned ? 0 : 1);
}

BatchScheduler::PartResult BatchScheduler::compute(Batch* running, const Lane& lane) {
  const Batch& batch = *running;
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
    const DevicePool::Executed executed = pool_->execute(
        lane, batch.plan, segments, &batch.cancel, [&] { on_hung(running, lane); }, [&] { return calls_of(batch); });
    result.status = executed.outcome.status;
    result.took = executed.took;
    result.device_time = executed.device_time;
    if (result.status.ok() && !executed.outcome.completed) {
      result.status = absl::CancelledError("no request waits for this batch");  // and nobody hears it
    }
    for (const Slice& slice : batch.slices) {  // a split request is recorded once, with its first part
      if (slice.job == nullptr || slice.first != 0 || !batch.tried.empty()) continue;
      recorder_->phase_took(Phase::kQueue, executed.started - slice.job->work.admitted);
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

void BatchScheduler::finish(Batch* batch, const Lane& lane, PartResult result, Effects* effects) {
  for (size_t i = 0; i < batch->slices.size(); ++i) {
    const int64_t count = batch->slices[i].count;
    effects->released.push_back(leave(batch, i));
    Job* const job = effects->released.back().get();
    if (job == nullptr || job->answered) continue;
    job->compute = std::max(job->compute, result.took);
    if (std::find(job->devices.begin(), job->devices.end(), lane.device) == job->devices.end()) {
      job->devices.push_back(lane.device);
    }
    if (!result.exceptions.empty()) {
      std::vector<MatrixException>& mine = result.exceptions[i];
      job->exceptions.insert(job->exceptions.end(), mine.begin(), mine.end());
    }
    job->unfinished -= count;
    if (job->unfinished == 0) end(job, Error{}, effects);
  }
}

std::shared_ptr<Job> BatchScheduler::leave(Batch* batch, size_t slot) {
  std::shared_ptr<Job> job = queue_.drop(batch, slot);
  if (job == nullptr) return nullptr;
  const auto is_it = [batch](const Part& part) { return part.batch == batch; };
  job->parts.erase(std::find_if(job->parts.begin(), job->parts.end(), is_it));
  return job;
}

// --- faults --------------------------------------------------------------------------------------

// The batch of a request that was computed, in vain, without ever having been in the queue.
std::unique_ptr<Batch> BatchScheduler::batch_of(const std::shared_ptr<Job>& job) {
  auto batch = std::make_unique<Batch>();
  batch->plan = job->work.plan;
  batch->slices.push_back({job, 0, job->work.request.count, nullptr});
  batch->bytes = static_cast<int64_t>(job->work.request.operand_bytes());
  batch->matrices = job->work.request.count;
  batch->live = 1;
  job->parts.push_back({batch.get(), 0});
  job->unfinished = batch->matrices;
  return batch;
}

bool BatchScheduler::can_retry(const Batch& batch) const {
  const auto serves_on = [this](int device) { return pool_->state(device).healthy; };
  const auto faults = std::count_if(batch.tried.begin(), batch.tried.end(), serves_on);
  return batch.live > 0 && faults < kMaxFaults && pool_->healthy_besides(batch.tried);
}

void BatchScheduler::on_hung(Batch* batch, const Lane& lane) {
  Effects effects;
  {
    MutexLock lock(&mu_);
    abandon(batch, hung_error(pool_->info(lane.device).name), &effects);
    pump(&effects);  // the device is out, so its waiting work goes elsewhere
  }
  apply(&effects);
}

void BatchScheduler::abandon(Batch* batch, const Error& error, Effects* effects) {
  if (std::exchange(batch->abandoned, true)) return;
  for (const Slice& slice : batch->slices) {
    if (slice.job != nullptr && !slice.job->answered) end(slice.job.get(), error, effects);
  }
  ++abandoned_;
  leave_busy(1);
}

void BatchScheduler::release(Batch* batch, Effects* effects) {
  for (size_t i = 0; i < batch->slices.size(); ++i) effects->released.push_back(leave(batch, i));
}

void BatchScheduler::failed(std::unique_ptr<Batch> batch, Fault fault, Effects* effects) {
  batch->tried.push_back(fault.device);
  batch->fault = join(batch->fault, fault.status);
  const bool retry = can_retry(*batch);
  const absl::Time now = clock_->now();
  for (size_t i = 0; i < batch->slices.size(); ++i) {
    Job* const job = batch->slices[i].job.get();
    if (job == nullptr) continue;
    if (retry && !job->answered) {
      if (job->queued) continue;
      job->queued = true;
      job->waits_since = now;
      queued_.insert({now, job});
      continue;
    }
    effects->released.push_back(leave(batch.get(), i));
    if (!job->answered) end(job, fault_error(batch->fault), effects);
  }
  if (!retry) return;
  recorder_->batch_retried();
  queue_.put_back(std::move(batch));
}

// --- out -----------------------------------------------------------------------------------------

void BatchScheduler::end(Job* job, Error error, Effects* effects) {
  job->answered = true;
  if (job->queued) queued_.erase({job->waits_since, job});
  deadlines_.erase({job->work.request.deadline, job});
  decltype(job->parts) running;
  for (const Part& part : job->parts) {
    if (part.batch->running) {
      running.push_back(part);
      if (--part.batch->live == 0) part.batch->cancel.store(true, std::memory_order_relaxed);
    } else {
      effects->released.push_back(queue_.remove(part));
    }
  }
  job->parts = std::move(running);
  effects->released.push_back(queue_.withdraw(job));
  struct Answer answer;
  answer.error = std::move(error);
  if (answer.error.ok()) {
    std::sort(job->devices.begin(), job->devices.end());
    for (const int device : job->devices) {
      answer.method = method_on(pool_->info(device), job->work.plan);
      absl::StrAppend(&answer.devices, answer.devices.empty() ? "" : ",", pool_->info(device).name);
    }
    answer.timing = {job->taken - job->work.admitted, job->compute, clock_->now() - job->work.request.arrival};
    answer.exceptions = std::move(job->exceptions);
    const auto by_index = [](const MatrixException& a, const MatrixException& b) { return a.index < b.index; };
    if (!std::is_sorted(answer.exceptions.begin(), answer.exceptions.end(), by_index)) {  // it was split
      std::sort(answer.exceptions.begin(), answer.exceptions.end(), by_index);
    }
  }
  ++busy_;  // until apply() has called back
  effects->answers.emplace_back(std::move(job->done), std::move(answer));
}

void BatchScheduler::apply(Effects* effects) {
  for (const CutEvent& cut : effects->cuts) {
    recorder_->batch_cut(cut.reason, cut.requests, cut.matrices, cut.bytes);
    recorder_->phase_took(Phase::kBatchAssembly, cut.assembly);
  }
  for (auto& [done, answer] : effects->answers) done(std::move(answer));
  const int64_t answered = static_cast<int64_t>(effects->answers.size());
  effects->answers.clear();
  effects->released.clear();
  if (answered == 0) return;
  MutexLock lock(&mu_);
  leave_busy(answered);
}

void BatchScheduler::leave_busy(int64_t n) {
  busy_ -= n;
  if (is_idle()) idle_.signal_all();
}

void BatchScheduler::cancel(const std::weak_ptr<void>& handle) {
  const auto job = std::static_pointer_cast<Job>(handle.lock());
  if (job == nullptr) return;
  Effects effects;
  {
    MutexLock lock(&mu_);
    if (!job->answered) end(job.get(), cancelled_error(), &effects);
  }
  apply(&effects);
}

void BatchScheduler::give_up_queued(const Error& error, Effects* effects) {
  absl::flat_hash_set<Job*> jobs;  // first: end() changes the queue
  queue_.for_each_job([&jobs](Job* job) { jobs.insert(job); });
  for (Job* const job : jobs) end(job, error, effects);
}

void BatchScheduler::give_up_all(const Error& error, Effects* effects) {
  give_up_queued(error, effects);
  for (Batch* const batch : running_) {
    for (const Slice& slice : batch->slices) {
      if (slice.job != nullptr && !slice.job->answered) end(slice.job.get(), error, effects);
    }
  }
}

// --- time ----------------------------------------------------------------------------------------

void BatchScheduler::set_alarm() {
  absl::Time next = std::min({drain_deadline_, let_go_deadline_, look_again_});
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  if (!queued_.empty()) next = std::min(next, queued_.begin()->first + options_.queue_timeout);
  if (next >= alarm_at_)
    return;  // it rings too early, finds nothing due, and is set anew: cheaper than each time exactly
  alarm_at_ = next;
  alarm_->set(next);
}

void BatchScheduler::on_alarm() {
  Effects effects;
  {
    MutexLock lock(&mu_);
    alarm_at_ = absl::InfiniteFuture();
    expire_due(clock_->now(), &effects);
    pump(&effects);
  }
  apply(&effects);
}

void BatchScheduler::expire_due(absl::Time now, Effects* effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    end(deadlines_.begin()->second, deadline_error(), effects);
  }
  while (!queued_.empty() && queued_.begin()->first + options_.queue_timeout <= now) {
    end(queued_.begin()->second, queue_timeout_error(options_.queue_timeout), effects);
  }
  if (drain_deadline_ <= now) {
    drain_deadline_ = absl::InfiniteFuture();
    const size_t before = effects->answers.size();
    give_up_all(draining_error(), effects);
    gave_up_ = gave_up_ || effects->answers.size() > before;
  }
  if (let_go_deadline_ <= now) {
    let_go_deadline_ = absl::InfiniteFuture();
    for (Batch* const batch : running_) abandon(batch, draining_error(), effects);
  }
}

bool BatchScheduler::drain(absl::Duration timeout) {
  MutexLock lock(&mu_);
  drain_deadline_ = std::min(drain_deadline_, clock_->now() + timeout);
  let_go_deadline_ = drain_deadline_ + std::min(timeout, kLetGo);
  set_alarm();
  while (!is_idle()) idle_.wait(&mu_);
  drain_deadline_ = let_go_deadline_ = absl::InfiniteFuture();
  return !gave_up_;
}

absl::Duration BatchScheduler::earliest_done(const Peer& peer, const Plan& plan, int64_t matrices) const {
  const bool divisible = matrices * static_cast<int64_t>(operand_bytes(plan)) >= 2 * options_.limits.min_split_bytes;
  MutexLock lock(&mu_);
  return pool_->earliest_done(plan, matrices, queue_.waiting(peer, plan), divisible);
}

BatchScheduler::Waiting BatchScheduler::waiting() const {
  MutexLock lock(&mu_);
  if (queued_.empty()) return {0, absl::ZeroDuration()};
  return {static_cast<int64_t>(queued_.size()), clock_->now() - queued_.begin()->first};
}

}  // namespace svdserve::server
