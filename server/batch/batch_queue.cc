#include "server/batch/batch_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/hash/hash.h"

namespace svdserve::server {
namespace {

// A batch is full with so many slots, used or left: jobs that come and are cancelled while every lane is busy must not
// make it grow for ever.
constexpr size_t kMaxSlots = 16384;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

int64_t operand_bytes(const Job& job) { return static_cast<int64_t>(job.work.request.payload_bytes); }

CutEvent event_of(const Batch& batch, CutReason reason, absl::Time now) {
  return {reason, batch.live, batch.matrices, batch.bytes, now - batch.opened};
}

}  // namespace

size_t BatchQueue::PlanHash::operator()(const Plan& plan) const {
  return absl::HashOf(plan.problem.rows, plan.problem.cols, static_cast<int>(plan.problem.dtype),
                      static_cast<int>(plan.problem.order), static_cast<int>(plan.method), plan.tolerance,
                      plan.max_sweeps);
}

int BatchQueue::PartsOf(const Job& job, int idle_devices) const {
  const int64_t by_limits =
      std::max(ceil_div(operand_bytes(job), limits_.max_bytes), ceil_div(job.work.request.count, limits_.max_matrices));
  const int64_t by_devices = std::min<int64_t>(idle_devices, operand_bytes(job) / limits_.min_split_bytes);
  const int64_t parts = std::min(std::max(by_limits, by_devices), job.work.request.count);
  return static_cast<int>(std::clamp<int64_t>(parts, 1, std::numeric_limits<int>::max()));
}

bool BatchQueue::Fits(const Batch& batch, int64_t bytes, int64_t matrices) const {
  return batch.bytes + bytes <= limits_.max_bytes && batch.matrices + matrices <= limits_.max_matrices;
}

BatchQueue::Turns::iterator BatchQueue::FindOrMake(const Plan& plan) {
  const auto [it, is_new] = keys_.try_emplace(plan);
  if (is_new) {
    turns_.push_back(KeyQueue{plan, nullptr, {}});
    it->second = std::prev(turns_.end());
  }
  return it->second;
}

void BatchQueue::Append(Batch* batch, const std::shared_ptr<Job>& job, int64_t first, int64_t count) {
  job->parts.push_back({batch, batch->slices.size()});
  batch->slices.push_back({job, first, count});
  batch->bytes += count * static_cast<int64_t>(matrix_bytes(batch->plan.problem));
  batch->matrices += count;
  ++batch->live;
}

void BatchQueue::Cut(KeyQueue* key, CutReason reason, absl::Time now, CutEvents* cuts) {
  cuts->push_back(event_of(*key->open, reason, now));
  open_by_age_.erase({key->open->opened, key});
  key->open->state = Batch::State::kWaiting;
  key->waiting.push_back(std::move(key->open));
  ++waiting_;
}

void BatchQueue::Add(const std::shared_ptr<Job>& job, int idle_devices, absl::Time now, CutEvents* cuts) {
  const Plan& plan = job->work.plan;
  const int64_t count = job->work.request.count;
  KeyQueue* const key = &*FindOrMake(plan);
  const int parts = PartsOf(*job, idle_devices);
  const bool too_large = operand_bytes(*job) > limits_.max_bytes || count > limits_.max_matrices;
  // Cut before something younger goes past it: invariant 2.
  if (key->open != nullptr && (parts > 1 || !Fits(*key->open, operand_bytes(*job), count))) {
    Cut(key, CutReason::kFull, now, cuts);
  }
  job->unfinished = parts;
  for (int i = 0; i < parts; ++i) {
    if (key->open == nullptr) {
      key->open = std::make_unique<Batch>();
      key->open->plan = plan;
      key->open->opened = now;
      open_by_age_.insert({now, key});
    }
    const int64_t first = count / parts * i + std::min<int64_t>(i, count % parts);
    Append(key->open.get(), job, first, count / parts + (i < count % parts ? 1 : 0));
    const bool full = too_large || key->open->bytes >= limits_.max_bytes ||
                      key->open->matrices >= limits_.max_matrices || key->open->slices.size() >= kMaxSlots;
    if (full || parts > 1) Cut(key, full ? CutReason::kFull : CutReason::kLaneFree, now, cuts);
  }
}

std::shared_ptr<Job> BatchQueue::Remove(const Part& part) {
  Batch* const batch = part.batch;
  Slice& slice = batch->slices[part.slot];
  std::shared_ptr<Job> job = std::move(slice.job);
  batch->bytes -= slice.count * static_cast<int64_t>(matrix_bytes(batch->plan.problem));
  batch->matrices -= slice.count;
  if (--batch->live > 0) return job;
  const Turns::iterator key = keys_.find(batch->plan)->second;
  if (batch->state == Batch::State::kOpen) {
    open_by_age_.erase({batch->opened, &*key});
    key->open.reset();
  } else {
    const auto is_it = [batch](const std::unique_ptr<Batch>& b) { return b.get() == batch; };
    key->waiting.erase(std::find_if(key->waiting.begin(), key->waiting.end(), is_it));
    --waiting_;
  }
  EraseIfEmpty(key);
  return job;
}

void BatchQueue::EraseIfEmpty(Turns::iterator key) {
  if (key->open != nullptr || !key->waiting.empty()) return;
  keys_.erase(key->plan);
  turns_.erase(key);
}

const Batch& BatchQueue::Next() const {
  const KeyQueue& key = turns_.front();
  return key.waiting.empty() ? *key.open : *key.waiting.front();
}

std::unique_ptr<Batch> BatchQueue::Take(absl::Time now, CutEvents* cuts) {
  const Turns::iterator key = turns_.begin();
  if (key->waiting.empty()) Cut(&*key, CutReason::kLaneFree, now, cuts);
  std::unique_ptr<Batch> batch = std::move(key->waiting.front());
  key->waiting.pop_front();
  --waiting_;
  batch->state = Batch::State::kRunning;
  turns_.splice(turns_.end(), turns_, key);
  EraseIfEmpty(key);
  return batch;
}

void BatchQueue::CutOverdue(absl::Time now, CutEvents* cuts) {
  while (next_cut() <= now) Cut(open_by_age_.begin()->second, CutReason::kAge, now, cuts);
}

absl::Time BatchQueue::next_cut() const {
  if (open_by_age_.empty() || waiting_ >= limits_.max_waiting) return absl::InfiniteFuture();
  return open_by_age_.begin()->first + limits_.max_delay;
}

void BatchQueue::CutAll(CutReason reason, absl::Time now, CutEvents* cuts) {
  while (!open_by_age_.empty()) Cut(open_by_age_.begin()->second, reason, now, cuts);
}

}  // namespace svdserve::server
