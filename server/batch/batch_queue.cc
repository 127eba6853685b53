#include "server/batch/batch_queue.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace svdserve::server {
namespace {

// A request that has waited so many times max_delay tells that the device is the bottleneck. Then whatever waits may
// share its batch: no batch would start sooner for being small.
constexpr int kLongWaits = 16;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The first of the fewest parts of at most `most` matrices, all nearly equal, that `count` of them are split into.
int64_t first_part(int64_t count, int64_t most, int64_t group) {
  const int64_t groups = count / group, parts = ceil_div(groups, std::max<int64_t>(most / group, 1));
  return ceil_div(groups, parts) * group;
}

}  // namespace

BatchBounds bounds_of(const BatchLimits& limits, const Plan& plan) {
  const int64_t group = plan.outputs.group, one = static_cast<int64_t>(operand_bytes(plan));
  const auto within = [&](int64_t bytes) {
    return std::max<int64_t>(std::min(bytes / one, limits.max_matrices) / group, 1) * group;
  };
  return {limits.max_work, within(limits.max_bytes), within(kLongBytes * limits.max_bytes)};
}

size_t BatchQueue::PlanHash::operator()(const Plan& plan) const {
  const Outputs& o = plan.outputs;
  return absl::HashOf(plan.problem.rows, plan.problem.cols, static_cast<int>(plan.problem.dtype),
                      static_cast<int>(plan.problem.order), static_cast<int>(plan.problem.storage),
                      plan.problem.exponent, static_cast<int>(plan.decomposition), static_cast<int>(plan.triangle),
                      static_cast<int>(plan.method), static_cast<int>(plan.host_method), plan.tolerance,
                      plan.max_sweeps, o.values, o.left_columns, o.right_columns, o.group,
                      absl::MakeSpan(o.snr.data(), static_cast<size_t>(o.snr_count)));
}

// --- peers, keys and flows -----------------------------------------------------------------------

Flow* BatchQueue::find_or_make(const Peer& peer_name, const Plan& plan) {
  std::unique_ptr<Key>& key = keys_[plan];
  if (key == nullptr) {
    key = std::make_unique<Key>();
    key->plan = plan;
  }
  std::unique_ptr<PeerQueue>& peer = peers_[peer_name];
  if (peer == nullptr) {
    peer = std::make_unique<PeerQueue>();
    peer->name = peer_name;
  }
  std::unique_ptr<Flow>& flow = peer->flows[key.get()];
  if (flow == nullptr) {
    flow = std::make_unique<Flow>();
    flow->peer = peer.get();
    flow->key = key.get();
    ++key->flows;
  }
  if (flow->rests()) peer->turns.wake(flow.get());
  if (peer->rests()) peer_turns_.wake(peer.get());
  if (!flow->active) ++peer->active;
  flow->active = true;
  return flow.get();
}

void BatchQueue::rest_if_done(Flow* flow) {
  if (!flow->line.empty() || flow->slices > 0) return;
  PeerQueue* const peer = flow->peer;
  flow->active = false;
  peer->turns.rest(flow);
  forget_flows(peer);
  if (--peer->active > 0) return;
  peer_turns_.rest(peer);
  forget_peers();
}

void BatchQueue::forget_flows(PeerQueue* peer) {
  while (Turns::Member* member = peer->turns.forgettable(kMostRestingFlows)) erase(static_cast<Flow*>(member));
}

void BatchQueue::forget_peers() {
  while (Turns::Member* member = peer_turns_.forgettable(kMostRestingPeers)) {
    PeerQueue* const peer = static_cast<PeerQueue*>(member);
    while (!peer->flows.empty()) erase(peer->flows.begin()->second.get());
    peers_.erase(peers_.find(peer->name));
  }
}

void BatchQueue::erase(Flow* flow) {
  Key* const key = flow->key;
  flow->peer->flows.erase(key);
  if (--key->flows == 0) keys_.erase(keys_.find(key->plan));
}

void BatchQueue::refresh_piece(Key* key) { key->piece = piece_of_(key->plan, bounds_of(limits_, key->plan)); }

void BatchQueue::begin_to_wait(Flow* flow) {
  if (flow->key->waiting.empty()) refresh_piece(flow->key);
  flow->place = flow->key->waiting.insert(flow->key->waiting.end(), flow);
  flow->peer->turns.join(flow);
  if (!flow->peer->waits()) peer_turns_.join(flow->peer);
}

void BatchQueue::end_to_wait(Flow* flow) {
  flow->key->waiting.erase(flow->place);
  flow->peer->turns.leave(flow);
  if (flow->peer->turns.empty()) peer_turns_.leave(flow->peer);
}

Flow* BatchQueue::nth_flow(const PeerQueue& peer, size_t n) {
  Flow* nth = nullptr;
  if (n >= peer.turns.size()) return nth;
  peer.turns.for_each([&](Turns::Member* member) {
    nth = static_cast<Flow*>(member);
    return n-- > 0;
  });
  return nth;
}

// --- in and out ----------------------------------------------------------------------------------

void BatchQueue::add(const std::shared_ptr<Job>& job, absl::Span<const int64_t> shares, absl::Time now) {
  Flow* const flow = find_or_make(job->work.request.peer, job->work.plan);
  Job::Rest& rest = job->rest;
  int64_t end = 0;
  for (const int64_t share : shares) rest.ends.push_back(end += share);
  rest.flow = flow;
  rest.since = now;
  job->unfinished = end;
  rest.place = flow->line.insert(flow->line.end(), job);
  flow->matrices += end;
  if (flow->line.size() == 1) begin_to_wait(flow);
}

std::shared_ptr<Job> BatchQueue::withdraw(Job* job) {
  Job::Rest& rest = job->rest;
  Flow* const flow = std::exchange(rest.flow, nullptr);
  if (flow == nullptr) return nullptr;
  std::shared_ptr<Job> withdrawn = std::move(*rest.place);
  flow->line.erase(rest.place);
  flow->matrices -= rest.ends.back() - rest.next;
  if (flow->line.empty()) end_to_wait(flow);
  rest_if_done(flow);
  return withdrawn;
}

void BatchQueue::put_back(std::unique_ptr<Batch> batch) {
  batch->running = false;
  returned_.push_front(std::move(batch));
}

std::shared_ptr<Job> BatchQueue::drop(Batch* batch, size_t slot) {
  Slice& slice = batch->slices[slot];
  batch->bytes -= slice.count * static_cast<int64_t>(operand_bytes(batch->plan));
  batch->matrices -= slice.count;
  if (Flow* const flow = std::exchange(slice.flow, nullptr); flow != nullptr) {
    --flow->slices;
    rest_if_done(flow);
  }
  return std::move(slice.job);
}

std::shared_ptr<Job> BatchQueue::remove(const Part& part) {
  Batch* const batch = part.batch;
  std::shared_ptr<Job> job = drop(batch, part.slot);
  if (--batch->live == 0) {
    returned_.remove_if([batch](const std::unique_ptr<Batch>& returned) { return returned.get() == batch; });
  }
  return job;
}

int64_t BatchQueue::waiting(const Peer& peer, const Plan& plan) const {
  const auto key = keys_.find(plan);
  const auto queue = peers_.find(peer);
  if (key == keys_.end() || queue == peers_.end()) return 0;
  const auto flow = queue->second->flows.find(key->second.get());
  return flow == queue->second->flows.end() ? 0 : flow->second->matrices;
}

// --- batches -------------------------------------------------------------------------------------

bool BatchQueue::gather_from(const Flow& flow, int64_t most, absl::Time latest, Gathered* gathered) const {
  const int64_t group = flow.key->plan.outputs.group;
  for (const std::shared_ptr<Job>& job : flow.line) {
    const Job::Rest& rest = job->rest;
    const bool is_shared_out = rest.ends.size() > 1;  // its parts go alone
    const int64_t left = rest.in_share();
    const int64_t count = gathered->parts.empty() ? first_part(left, most, group) : left;
    if (!gathered->parts.empty() && (is_shared_out || gathered->matrices + count > most)) {
      gathered->reason = CutReason::kFull;
      return false;
    }
    if (rest.since > latest) {
      gathered->reason = CutReason::kAge;
      return false;
    }
    gathered->parts.push_back({job.get(), count});
    gathered->matrices += count;
    if (count < left || gathered->matrices >= most) gathered->reason = CutReason::kFull;
    if (gathered->reason == CutReason::kFull || is_shared_out) return false;
  }
  return true;
}

BatchQueue::Gathered BatchQueue::gather(const Flow& first, int64_t most, absl::Time now) const {
  Gathered gathered;
  const absl::Time oldest = first.line.front()->rest.since;
  const bool waits_long = now - oldest > kLongWaits * limits_.max_delay;
  const absl::Time latest = waits_long ? absl::InfiniteFuture() : oldest + limits_.max_delay;
  if (!gather_from(first, most, latest, &gathered)) return gathered;
  // A peer that is further ahead than this may be ahead of one that waits under another key, too.
  const absl::Duration furthest = first.peer->used() + limits_.max_work;
  for (const Flow* flow : first.key->waiting) {
    if (flow == &first || flow->peer->used() > furthest) continue;
    if (!gather_from(*flow, most, latest, &gathered)) break;
  }
  return gathered;
}

int64_t BatchQueue::nth_piece(const Flow& flow, int64_t n, absl::Time now) const {
  const int64_t piece = flow.key->piece;
  if (n == 0) return gather(flow, piece, now).matrices;
  return std::clamp<int64_t>(flow.matrices - n * piece, 0, piece);
}

void BatchQueue::move(Job* job, int64_t count, Batch* batch) {
  Job::Rest& rest = job->rest;
  Flow* const flow = rest.flow;
  job->parts.push_back({batch, batch->slices.size()});
  batch->slices.push_back({*rest.place, rest.next, count, flow});
  ++flow->slices;
  flow->matrices -= count;
  rest.next += count;
  if (rest.next < rest.ends[rest.share]) return;
  if (++rest.share < rest.ends.size()) return;
  flow->line.erase(rest.place);
  rest.flow = nullptr;
  if (flow->line.empty()) end_to_wait(flow);
}

std::unique_ptr<Batch> BatchQueue::assemble(const Flow& first, int64_t most, absl::Time now, CutEvents* cuts) {
  auto batch = std::make_unique<Batch>();
  batch->plan = first.key->plan;
  const Gathered gathered = gather(first, most, now);
  const absl::Time oldest = gathered.parts.front().job->rest.since;
  for (const auto& [job, count] : gathered.parts) move(job, count, batch.get());
  batch->matrices = gathered.matrices;
  batch->bytes = gathered.matrices * static_cast<int64_t>(operand_bytes(batch->plan));
  batch->live = static_cast<int64_t>(batch->slices.size());
  cuts->push_back({gathered.reason, batch->live, batch->matrices, batch->bytes, now - oldest});
  return batch;
}

std::unique_ptr<Batch> BatchQueue::take(const Offer& offer, absl::Duration predicted, absl::Time now, CutEvents* cuts) {
  if (!peer_turns_.empty()) {
    peer_turns_.take();
    forget_peers();
  }
  std::unique_ptr<Batch> batch;
  if (offer.returned != nullptr) {
    const auto place = std::find_if(returned_.begin(), returned_.end(),
                                    [&](const std::unique_ptr<Batch>& b) { return b.get() == offer.returned; });
    batch = std::move(*place);
    returned_.erase(place);
  } else {
    offer.flow->peer->turns.take();
    forget_flows(offer.flow->peer);
    Key* const key = offer.flow->key;
    batch = assemble(*offer.flow, offer.most, now, cuts);
    if (!key->waiting.empty()) refresh_piece(key);  // what it is by now
  }
  batch->running = true;
  batch->charged = std::max(predicted, kLeastCharge);
  charge(*batch, batch->charged);
  return batch;
}

void BatchQueue::settle(Batch* batch, absl::Duration took) {
  charge(*batch, std::max(took, kLeastCharge) - batch->charged);
  batch->charged = absl::ZeroDuration();
}

void BatchQueue::charge(const Batch& batch, absl::Duration time) {
  for (size_t i = 0; i < batch.slices.size();) {
    Flow* const flow = batch.slices[i].flow;
    int64_t matrices = 0;  // of slices of one flow, which lie together
    for (; i < batch.slices.size() && batch.slices[i].flow == flow; ++i) matrices += batch.slices[i].count;
    if (flow == nullptr) continue;
    const absl::Duration part = time * (static_cast<double>(matrices) / static_cast<double>(batch.matrices));
    flow->peer->turns.charge(flow, part);
    peer_turns_.charge(flow->peer, part);
  }
}

}  // namespace svdserve::server
