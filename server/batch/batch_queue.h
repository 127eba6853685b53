// The jobs that wait for a lane, and whose turn it is. A flow is the line of jobs that one peer has under one plan, its
// key. Turns go by device time used: over peers first, then over the flows of a peer (turns.h). A batch is put
// together when a lane takes it. It begins with the flow whose turn it is; other peers' flows of the same key join.
// Plain data under its owner's lock; it knows neither threads, lanes nor timers.
//
// Invariants:
//   1. Jobs in one batch have equal plans: everything that the arithmetic depends on.
//   2. A flow is first in, first out.
//   3. A batch of several matrices is predicted to take max_work or, where one group takes longer than half of that,
//   twice as long as a group; and it has max_bytes and max_matrices, at most. In the latter case, and where a lane
//   computes more at once, it may have kLongBytes times max_bytes.
//   4. Each peer and each flow is charged for its matrices in a batch: the predicted time when it is taken, corrected
//   to the measured time when it is settled, and kLeastCharge at least. A peer gets part of a batch when it has used
//   least of all that a free lane suits, or joins such a peer having used at most max_work more. So while a peer waits
//   for a lane that suits it, no other gets ahead of it by more than max_work and one batch: nobody starves.
//   5. Peers, flows and keys exist while something of theirs waits or runs, and then until the others have caught up
//   with what they have used: kMostRestingPeers, and kMostRestingFlows of each peer, at most.
//   6. A batch without live slices does not wait.
//   7. A job is split between groups of its matrices alone, where its plan has groups of more than one.
#ifndef SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_
#define SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/planner.h"
#include "server/batch/batch.h"
#include "server/batch/turns.h"
#include "server/device/device_pool.h"
#include "server/metrics/recorder.h"
#include "server/peer.h"

namespace svdserve::server {

struct BatchLimits {
  int64_t max_bytes = int64_t{8} << 20;  // of operands; a request beyond it is split
  int64_t max_matrices = 1048576;
  int64_t min_split_bytes = int64_t{1} << 20;          // of a part that is split off only to use one more device
  absl::Duration max_delay = absl::Microseconds(500);  // by which requests of one batch may have come apart
  absl::Duration max_work = absl::Milliseconds(4);     // predicted; beyond it a batch is split
};

// A batch of matrices, or groups, that take longer than half of max_work each may have so many times max_bytes.
inline constexpr int64_t kLongBytes = 16;
BatchBounds bounds_of(const BatchLimits& limits, const Plan& plan);
// Work that took no time at all would never cost a turn.
inline constexpr absl::Duration kLeastCharge = absl::Microseconds(1);
inline constexpr size_t kMostRestingPeers = 256, kMostRestingFlows = 32;

// A batch was cut: what the recorder is to be told, once the lock is released.
struct CutEvent {
  CutReason reason;
  int64_t requests;
  int64_t matrices;
  int64_t bytes;
  absl::Duration assembly;
};
using CutEvents = absl::InlinedVector<CutEvent, 1>;

// A plan, and the flows that wait under it.
struct Key {
  Plan plan;
  int64_t piece = 0;         // matrices of a batch at most, while a flow waits
  int flows = 0;             // that exist
  std::list<Flow*> waiting;  // in the order in which they began to wait
};

// All that one peer has waiting and running.
struct PeerQueue : public Turns::Member {
  Peer name;
  Turns turns;         // of its flows
  int64_t active = 0;  // flows that wait or run
  absl::flat_hash_map<const Key*, std::unique_ptr<Flow>> flows;
};

// The jobs that one peer has waiting under one plan.
struct Flow : public Turns::Member {
  PeerQueue* peer;
  Key* key;
  bool active = false;  // something of it waits or runs
  std::list<std::shared_ptr<Job>> line;
  std::list<Flow*>::iterator place;  // in key->waiting, while the line is not empty
  int64_t matrices = 0;              // that wait in the line
  int64_t slices = 0;                // of it in batches
};

class BatchQueue {
 public:
  // The number of matrices that a batch may have, as DevicePool::matrices_within() says.
  using PieceOf = std::function<int64_t(const Plan& plan, const BatchBounds& bounds)>;

  BatchQueue(const BatchLimits& limits, PieceOf piece_of) : limits_(limits), piece_of_(std::move(piece_of)) {}

  // Adds a job to the line of its peer and plan. `shares`: the sizes of the parts that go to different devices. Each is
  // > 0 and a multiple of the plan's group, and they add up to its count; one: it is not divided.
  void add(const std::shared_ptr<Job>& job, absl::Span<const int64_t> shares, absl::Time now);

  // Takes back a batch that a device failed, before everything else. It has live slices and was settled.
  void put_back(std::unique_ptr<Batch> batch);

  // The rest of an unanswered job leaves the line. The returned reference may be the last one: drop it without
  // holding a lock. Null: nothing was left.
  std::shared_ptr<Job> withdraw(Job* job);
  // Takes a part out of a batch that came back; the reference as above.
  std::shared_ptr<Job> remove(const Part& part);

  bool empty() const { return returned_.empty() && peer_turns_.empty(); }

  // A batch that could be taken next.
  struct Offer {
    const Plan* plan;
    int64_t matrices;             // that the batch will have, or nearly so
    absl::Span<const int> tried;  // devices that failed it
    Batch* returned;              // null: it is new
    Flow* flow;                   // of a new one
    int64_t most;                 // matrices of a new one
  };
  // Calls visit(offer) until it returns false. It visits batches that came back, then the first batch of each flow, in
  // turns over peers, then further batches of the flows.
  template <class Visit>
  void for_each_offer(absl::Time now, Visit visit) const;
  // Takes the batch of an offer made at `now`, since when nothing has changed, and charges its flows with `predicted`.
  std::unique_ptr<Batch> take(const Offer& offer, absl::Duration predicted, absl::Time now, CutEvents* cuts);
  // A batch has run, however it ended, and took so much of its device's time. Once for each take().
  void settle(Batch* batch, absl::Duration took);
  // Takes the slice out of a batch that runs no more, and returns its job. A batch that goes has its slices dropped
  // before.
  std::shared_ptr<Job> drop(Batch* batch, size_t slot);

  // Matrices that wait in a flow.
  int64_t waiting(const Peer& peer, const Plan& plan) const;

  // Calls visit(job) for every job that waits, some more than once.
  template <class Visit>
  void for_each_job(Visit visit) const;
  // Calls visit(batch) for the batches that came back.
  template <class Visit>
  void for_each_returned(Visit visit) const {
    for (const auto& batch : returned_) visit(batch.get());
  }

  size_t peers() const { return peers_.size(); }
  size_t keys() const { return keys_.size(); }

 private:
  struct PlanHash {
    size_t operator()(const Plan& plan) const;
  };
  struct Taking {
    Job* job;
    int64_t count;
  };
  // The parts of a batch that could be made.
  struct Gathered {
    absl::InlinedVector<Taking, 8> parts;
    int64_t matrices = 0;
    CutReason reason = CutReason::kLaneFree;
  };

  Flow* find_or_make(const Peer& peer, const Plan& plan);
  // To be called when a flow has lost a job or a slice: it rests if that was the last.
  void rest_if_done(Flow* flow);
  // Erases what need not be remembered.
  void forget_flows(PeerQueue* peer);
  void forget_peers();
  void erase(Flow* flow);
  void refresh_piece(Key* key);
  // The line of the flow is no longer, or not yet, empty.
  void begin_to_wait(Flow* flow);
  void end_to_wait(Flow* flow);

  Gathered gather(const Flow& first, int64_t most, absl::Time now) const;
  // Adds jobs of the flow's line that came until `latest`. False: the batch is complete.
  bool gather_from(const Flow& flow, int64_t most, absl::Time latest, Gathered* gathered) const;
  std::unique_ptr<Batch> assemble(const Flow& first, int64_t most, absl::Time now, CutEvents* cuts);
  // The job's next matrices go to the batch.
  void move(Job* job, int64_t count, Batch* batch);
  void charge(const Batch& batch, absl::Duration time);
  // The matrices of a flow's n-th batch from now, of n > 0 by and large. 0: it has none.
  int64_t nth_piece(const Flow& flow, int64_t n, absl::Time now) const;
  static Flow* nth_flow(const PeerQueue& peer, size_t n);

  const BatchLimits limits_;
  const PieceOf piece_of_;
  absl::flat_hash_map<Peer, std::unique_ptr<PeerQueue>> peers_;
  absl::flat_hash_map<Plan, std::unique_ptr<Key>, PlanHash> keys_;
  Turns peer_turns_;
  std::list<std::unique_ptr<Batch>> returned_;  // the front is offered first
};

template <class Visit>
void BatchQueue::for_each_offer(absl::Time now, Visit visit) const {
  for (const auto& batch : returned_) {
    if (!visit(Offer{&batch->plan, batch->matrices, batch->tried, batch.get(), nullptr, 0})) return;
  }
  bool goes_on = true;
  bool deeper = true;  // a flow has so many batches
  for (int64_t piece = 0; deeper; ++piece) {
    deeper = false;
    bool more = true;  // a peer has so many flows
    for (size_t nth = 0; more; ++nth) {
      more = false;
      peer_turns_.for_each([&](Turns::Member* member) {
        Flow* const flow = nth_flow(*static_cast<PeerQueue*>(member), nth);
        if (flow == nullptr) return true;
        more = true;
        const int64_t matrices = nth_piece(*flow, piece, now);
        if (matrices == 0) return true;
        deeper = true;
        const int64_t most = piece == 0 ? flow->key->piece : matrices;
        return goes_on = visit(Offer{&flow->key->plan, matrices, {}, nullptr, flow, most});
      });
      if (!goes_on) return;
    }
  }
}

template <class Visit>
void BatchQueue::for_each_job(Visit visit) const {
  for (const auto& batch : returned_) {
    for (const Slice& slice : batch->slices) {
      if (slice.job != nullptr) visit(slice.job.get());
    }
  }
  for (const auto& [key, value] : keys_) {
    for (const Flow* flow : value->waiting) {
      for (const auto& job : flow->line) visit(job.get());
    }
  }
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_BATCH_QUEUE_H_
