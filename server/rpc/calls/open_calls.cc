#include "server/rpc/calls/open_calls.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kRetryAfter = absl::Milliseconds(500);

Error too_many(const char* what, int64_t limit) {
  return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedRequests,
          absl::StrCat("too many open ", what, ": the limit is ", limit), "", kRetryAfter};
}

Error draining() {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, "the server is shutting down", "", kRetryAfter};
}

template <class Counts>
int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

int64_t OpenCalls::share(int64_t limit) const {
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(limit) * limits_.peer_percent / 100));
}

Error OpenCalls::add(CallKind kind, const Peer& peer, OpenCall* call) {
  constexpr auto kStreams = static_cast<size_t>(CallKind::kStream);
  const auto k = static_cast<size_t>(kind);
  MutexLock lock(&mu_);
  if (closed_ && kind != CallKind::kWatch && kind != CallKind::kSmall) return draining();
  if (sum(counts_) >= limits_.calls) return too_many("calls", limits_.calls);
  if (k == kStreams && counts_[k] >= limits_.streams) return too_many("streams", limits_.streams);
  Counts& mine = peers_[peer];
  if (sum(mine) >= share(limits_.calls)) return too_many("calls of this client", share(limits_.calls));
  if (k == kStreams && mine[k] >= share(limits_.streams)) {
    return too_many("streams of this client", share(limits_.streams));
  }
  ++counts_[k];
  ++mine[k];
  call->kind_ = kind;
  call->peer_ = peer;
  call->place_ = open_.insert(open_.end(), call);
  return {};
}

void OpenCalls::remove(OpenCall* call) {
  const auto k = static_cast<size_t>(call->kind_);
  MutexLock lock(&mu_);
  open_.erase(call->place_);
  --counts_[k];
  const auto mine = peers_.find(call->peer_);
  --mine->second[k];
  if (sum(mine->second) == 0) peers_.erase(mine);
}

void OpenCalls::cut_off_stalled(absl::Time now, absl::Duration timeout) {
  MutexLock lock(&mu_);
  for (OpenCall* const call : open_) call->cut_off_if_stalled(now, timeout);
}

void OpenCalls::close_all() {
  const grpc::Status status = to_status(draining());
  MutexLock lock(&mu_);
  closed_ = true;
  for (OpenCall* const call : open_) call->close(status);
}

int64_t OpenCalls::count(CallKind kind) const {
  MutexLock lock(&mu_);
  return counts_[static_cast<size_t>(kind)];
}

}  // namespace svdserve::server
