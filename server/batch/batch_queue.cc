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
  const Outputs& o = plan.outputs;
  return absl::HashOf(plan.problem.rows, plan.problem.cols, static_cast<int>(plan.problem.dtype),
                      static_cast<int>(plan.problem.order), static_cast<int>(plan.method), plan.tolerance,
                      plan.max_sweeps, o.values, o.left_columns, o.right_columns, o.group,
                      absl::MakeSpan(o.snr.data(), static_cast<size_t>(o.snr_count)));
}

int64_t BatchQueue::PartsOf(int64_t count, const Plan& plan) const {
  const int64_t group = plan.outputs.group, one = static_cast<int64_t>(matrix_bytes(plan.problem));
  const int64_t most = std::min(limits_.max_bytes / one, limits_.max_matrices) / group;
  return ceil_div(count / group, std::max<int64_t>(most, 1));
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

void BatchQueue::Add(const std::shared_ptr<Job>& job, absl::Span<const int64_t> shares, absl::Time now,
                     CutEvents* cuts) {
  const Plan& plan = job->work.plan;
  const int64_t count = job->work.request.count;
  const int64_t group = plan.outputs.group;
  KeyQueue* const key = &*FindOrMake(plan);
  const bool too_large = PartsOf(count, plan) > 1;
  const bool split = too_large || shares.size() > 1;
  // Cut before something younger goes past it: invariant 2.
  if (key->open != nullptr && (split || !Fits(*key->open, operand_bytes(*job), count))) {
    Cut(key, CutReason::kFull, now, cuts);
  }
  int64_t first = 0;
  for (const int64_t share : shares) {
    const int64_t parts = PartsOf(share, plan), groups = share / group;
    for (int64_t i = 0; i < parts; ++i) {
      if (key->open == nullptr) {
        key->open = std::make_unique<Batch>();
        key->open->plan = plan;
        key->open->opened = now;
        open_by_age_.insert({now, key});
      }
      const int64_t part = (groups / parts + (i < groups % parts ? 1 : 0)) * group;
      Append(key->open.get(), job, first, part);
      first += part;
      const bool full = too_large || key->open->bytes >= limits_.max_bytes ||
                        key->open->matrices >= limits_.max_matrices || key->open->slices.size() >= kMaxSlots;
      if (full || split) Cut(key, full ? CutReason::kFull : CutReason::kLaneFree, now, cuts);
    }
  }
  job->unfinished = static_cast<int>(job->parts.size());
}

void BatchQueue::Return(std::unique_ptr<Batch> batch) {
  const Turns::iterator key = FindOrMake(batch->plan);
  batch->state = Batch::State::kWaiting;
  key->waiting.push_front(std::move(batch));
  ++waiting_;
  turns_.splice(turns_.begin(), turns_, key);
}

BatchQueue::Line::iterator BatchQueue::FindWaiting(KeyQueue* key, const Batch* batch) {
  return std::find_if(key->waiting.begin(), key->waiting.end(),
                      [batch](const std::unique_ptr<Batch>& b) { return b.get() == batch; });
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
    key->waiting.erase(FindWaiting(&*key, batch));
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

std::unique_ptr<Batch> BatchQueue::Take(Batch* batch, absl::Time now, CutEvents* cuts) {
  const Turns::iterator key = keys_.find(batch->plan)->second;
  if (batch->state == Batch::State::kOpen) Cut(&*key, CutReason::kLaneFree, now, cuts);
  const auto place = FindWaiting(&*key, batch);
  std::unique_ptr<Batch> taken = std::move(*place);
  key->waiting.erase(place);
  --waiting_;
  taken->state = Batch::State::kRunning;
  turns_.splice(turns_.end(), turns_, key);
  EraseIfEmpty(key);
  return taken;
}

int64_t BatchQueue::Waiting(const Plan& plan) const {
  const auto found = keys_.find(plan);
  if (found == keys_.end()) return 0;
  const KeyQueue& key = *found->second;
  int64_t matrices = key.open != nullptr ? key.open->matrices : 0;
  for (const auto& batch : key.waiting) matrices += batch->matrices;
  return matrices;
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
