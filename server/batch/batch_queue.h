// What waits for a lane: per key at most one open batch and a line of cut ones, and the keys in turn. Plain data under
// its owner's lock; it knows the rules of cutting, but neither threads, lanes nor timers.
//
// Invariants:
//   1. Jobs in one batch have equal plans: everything that the arithmetic depends on.
//   2. Within a key, the open batch is younger than every cut one, so serving the cut ones first starves nobody.
//   3. Keys are offered lanes in turn, one batch a turn: a key waits at most for one batch of each other key per batch
//   of its own.
//   4. A batch without live slices, and a key without batches, does not exist.
//   5. A job is split between groups of its matrices alone, where its plan has groups of more than one.
#ifndef SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_
#define SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/planner.h"
#include "server/batch/batch.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

struct BatchLimits {
  int64_t max_bytes = int64_t{8} << 20;  // of operands; a request beyond it is split
  int64_t max_matrices = 1048576;
  int64_t min_split_bytes = int64_t{1} << 20;          // of a part that is split off only to use one more device
  absl::Duration max_delay = absl::Microseconds(500);  // age at which an open batch is cut
  int max_waiting = 16;                                // cut batches, beyond which age cuts no more
};

// A batch was cut: what the recorder is to be told, once the lock is released.
struct CutEvent {
  CutReason reason;
  int64_t requests;
  int64_t matrices;
  int64_t bytes;
  absl::Duration assembly;
};
using CutEvents = absl::InlinedVector<CutEvent, 2>;

class BatchQueue {
 public:
  explicit BatchQueue(const BatchLimits& limits) : limits_(limits) {}

  // Adds a job: to the open batch of its key, or split into batches of its own where it exceeds a limit or is to be
  // divided among devices. `shares`: the sizes of its parts for them, each > 0 and a multiple of the plan's group,
  // which add up to its count; one: it is not divided. Fills job->parts and job->unfinished.
  void Add(const std::shared_ptr<Job>& job, absl::Span<const int64_t> shares, absl::Time now, CutEvents* cuts);

  // Takes back a batch that a device failed, to the front of its key and of all turns. It has live slices.
  void Return(std::unique_ptr<Batch> batch);

  // Takes a part of an unanswered job out of its open or waiting batch. The returned reference may be the last one:
  // drop it without holding a lock.
  std::shared_ptr<Job> Remove(const Part& part);

  bool empty() const { return turns_.empty(); }
  // Calls visit(batch) for the batches in the order in which they are to be served, until it returns false.
  template <class Visit>
  void ForEachInTurn(Visit visit) const;
  // Takes a batch out, which is cut if it was open; its key has had its turn.
  std::unique_ptr<Batch> Take(Batch* batch, absl::Time now, CutEvents* cuts);
  // Matrices that wait under the plan.
  int64_t Waiting(const Plan& plan) const;

  // Cuts what is too old, while few enough batches wait.
  void CutOverdue(absl::Time now, CutEvents* cuts);
  // When CutOverdue() has something to do, if nothing else happens. InfiniteFuture: never.
  absl::Time next_cut() const;
  // Cuts every open batch.
  void CutAll(CutReason reason, absl::Time now, CutEvents* cuts);

  // Calls visit(job) for the job of every live slice.
  template <class Visit>
  void ForEachJob(Visit visit) const;

 private:
  using Line = std::deque<std::unique_ptr<Batch>>;
  struct KeyQueue {
    Plan plan;
    std::unique_ptr<Batch> open;
    Line waiting;
  };
  using Turns = std::list<KeyQueue>;
  struct PlanHash {
    size_t operator()(const Plan& plan) const;
  };

  // Into how many batches `count` matrices are to be split for the limits: at most so many as they have groups.
  int64_t PartsOf(int64_t count, const Plan& plan) const;
  bool Fits(const Batch& batch, int64_t bytes, int64_t matrices) const;
  Turns::iterator FindOrMake(const Plan& plan);
  void Append(Batch* batch, const std::shared_ptr<Job>& job, int64_t first, int64_t count);
  void Cut(KeyQueue* key, CutReason reason, absl::Time now, CutEvents* cuts);
  static Line::iterator FindWaiting(KeyQueue* key, const Batch* batch);
  void EraseIfEmpty(Turns::iterator key);

  const BatchLimits limits_;
  Turns turns_;  // the front is served next
  absl::flat_hash_map<Plan, Turns::iterator, PlanHash> keys_;
  absl::btree_set<std::pair<absl::Time, KeyQueue*>> open_by_age_;
  int waiting_ = 0;  // cut batches of all keys
};

template <class Visit>
void BatchQueue::ForEachInTurn(Visit visit) const {
  bool deeper = true;  // a key has a batch at this depth of its line
  for (size_t depth = 0; deeper; ++depth) {
    deeper = false;
    for (const KeyQueue& key : turns_) {
      Batch* const batch = depth < key.waiting.size()    ? key.waiting[depth].get()
                           : depth == key.waiting.size() ? key.open.get()
                                                         : nullptr;
      if (batch == nullptr) continue;
      deeper = true;
      if (!visit(batch)) return;
    }
  }
}

template <class Visit>
void BatchQueue::ForEachJob(Visit visit) const {
  const auto visit_batch = [&](const Batch& batch) {
    for (const Slice& slice : batch.slices) {
      if (slice.job != nullptr) visit(slice.job.get());
    }
  };
  for (const KeyQueue& key : turns_) {
    for (const auto& batch : key.waiting) visit_batch(*batch);
    if (key.open != nullptr) visit_batch(*key.open);
  }
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_
