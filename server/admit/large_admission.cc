#include "server/admit/large_admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace svdserve::server {

namespace {

int64_t share_of(int64_t limit, int percent) {
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(limit) * percent / 100));
}

}  // namespace

LargeAdmission::LargeAdmission(const LedgerLimits& limits, Clock* clock)
    : limit_(limits.max_bytes),
      share_(share_of(limits.max_bytes, limits.peer_percent)),
      places_share_(share_of(limits.max_requests, limits.peer_percent)),
      ledger_({.max_bytes = limits.max_bytes, .max_requests = limits.max_requests}, clock) {}

Error LargeAdmission::admit(const Peer& peer, int64_t operand, int64_t most, Place* place, Reservation* reservation) {
  Reservation admitted;
  // Under no peer: here shares are of what a matrix will need.
  if (Error error = ledger_.admit(Peer(), operand, &admitted); !error.ok()) return error;
  MutexLock lock(&mu_);
  if (places_of(peer) >= places_share_) {
    return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedRequests,
            absl::StrCat(places_share_, " large matrices of this client are open, which is the limit for one client"),
            "", absl::Seconds(1)};
  }
  waiting_.push_front({peer, operand, most});
  if (!each_can_be_computed(peer)) {
    waiting_.pop_front();
    return {
        absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes,
        absl::StrCat("the matrix needs ", most,
                     " bytes while it is computed; beside the matrices in the queue it exceeds the memory limit of ",
                     limit_, " bytes, or the limit for one client, ", share_, " bytes"),
        "", absl::Seconds(1)};
  }
  *place = Place(this, waiting_.begin());
  *reservation = std::move(admitted);
  return {};
}

bool LargeAdmission::keep(int64_t bytes, Place* place, Reservation* reservation) {
  MutexLock lock(&mu_);
  place->amounts_->kept += bytes;
  if (each_can_be_computed(place->amounts_->peer) && ledger_.extend(bytes, reservation)) return true;
  place->amounts_->kept -= bytes;
  return false;
}

void LargeAdmission::leave(std::list<Amounts>::iterator amounts) {
  MutexLock lock(&mu_);
  waiting_.erase(amounts);
}

int64_t LargeAdmission::places_of(const Peer& peer) const {
  return std::count_if(waiting_.begin(), waiting_.end(), [&peer](const Amounts& a) { return a.peer == peer; });
}

bool LargeAdmission::each_can_be_computed(const Peer& peer) const {
  int64_t free = limit_, need = 0, free_of_peer = share_, need_of_peer = 0;
  for (const Amounts& amounts : waiting_) {
    free -= amounts.kept;
    need = std::max(need, amounts.most - amounts.kept);
    if (amounts.peer != peer) continue;
    free_of_peer -= amounts.kept;
    need_of_peer = std::max(need_of_peer, amounts.most - amounts.kept);
  }
  return need <= free && need_of_peer <= free_of_peer;
}

}  // namespace svdserve::server
