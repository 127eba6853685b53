#include "server/admit/ledger.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kShortestDelay =
    absl::Milliseconds(10);                                  // below, a refused client costs more than a served one
constexpr absl::Duration kLongestDelay = absl::Seconds(10);  // beyond, the estimate is worth nothing
constexpr absl::Duration kMemory = absl::Seconds(2);         // of the rate at which requests leave
// A claim up to here is small: the last kSmallShare-th of the bytes is for such claims.
constexpr int64_t kSmallClaim = 256 << 10;
constexpr int64_t kSmallShare = 16;
// A rate is believed once this many requests have left, in no less than this time.
constexpr double kEvidence = 4;
constexpr absl::Duration kShortestEvidence = absl::Milliseconds(20);
// A claim is rejected when its expected stay exceeds this part of the time that it has. The estimate is a mean, and
// half of the requests take longer.
constexpr double kUsableTime = 0.75;

Error overloaded(Reason reason, std::string message, absl::Duration retry_after) {
  return {absl::StatusCode::kResourceExhausted, reason, std::move(message), "", retry_after};
}

Error draining_error() {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, "the server is shutting down", "", absl::Seconds(1)};
}

// Claims of one class differ in size by less than a factor of four.
constexpr size_t kSizeClasses = 33;
size_t size_class(int64_t bytes) { return (std::bit_width(static_cast<uint64_t>(bytes)) + 1) / 2; }

int64_t share_of(int64_t limit, int percent) {
  const auto share = static_cast<int64_t>(static_cast<double>(limit) * percent / 100);
  return percent >= 100 ? limit : std::max<int64_t>(share, 1);
}

}  // namespace

// A peer's claims of one size class. It grants their reservations, so that what comes back is found at once.
struct Ledger::Account final : public ReservationGrantor {
  Account(Ledger* l, PeerState* p) : ledger(l), peer(p) {}
  void give_back(int64_t bytes, int requests_back) override { ledger->give_back(this, bytes, requests_back); }

  Ledger* const ledger;
  PeerState* const peer;
  int64_t requests = 0;  // in the ledger
  int64_t waiting = 0;
  Flow flow;
};

struct Ledger::Claim {
  AdmissionWaiter* waiter;
  Account* account;
  int64_t bytes;
  absl::Time deadline, expiry;
};

struct Ledger::PeerState {
  Account* account_of(Ledger* ledger, int64_t claim) {
    std::unique_ptr<Account>& account = accounts[size_class(claim)];
    if (account == nullptr) account = std::make_unique<Account>(ledger, this);
    return account.get();
  }
  Line& line_of(int64_t claim) { return claim <= kSmallClaim ? small : large; }

  Peer name;
  int64_t bytes = 0;
  int64_t requests = 0;
  Line small, large;
  std::list<PeerState*>::iterator turn;  // where a line is not empty
  std::array<std::unique_ptr<Account>, kSizeClasses> accounts;
};

Ledger::Ledger(const LedgerLimits& limits, Clock* clock)
    : limits_(limits),
      peer_bytes_(share_of(limits.max_bytes, limits.peer_percent)),
      peer_requests_(share_of(limits.max_requests, limits.peer_percent)),
      peer_waiting_(share_of(limits.max_waiting, limits.peer_percent)),
      clock_(clock),
      alarm_(clock->make_alarm([this] { on_alarm(); })) {}

Ledger::~Ledger() = default;

// --- in -----------------------------------------------------------------------------------------

Error Ledger::admit(const Peer& name, int64_t bytes, Reservation* reservation) {
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  PeerState* const peer = find_or_make(name);
  Error error = check(*peer, bytes, now);
  if (error.ok() && (bytes > limits_.max_bytes - bytes_ || !fits_peer(*peer, bytes))) error = full(*peer, bytes, now);
  if (error.ok()) {
    *reservation = grant(peer->account_of(this, bytes), bytes, now);
  } else {
    erase_if_idle(peer);
  }
  return error;
}

bool Ledger::extend(int64_t bytes, Reservation* reservation) {
  MutexLock lock(&mu_);
  if (bytes > limits_.max_bytes - bytes_) return false;
  PeerState* const peer = find_or_make(Peer());
  bytes_ += bytes;
  peer->bytes += bytes;
  *reservation = Reservation(peer->account_of(this, bytes), bytes, 0);
  erase_if_idle(peer);  // where it was extended by nothing
  return true;
}

Admission Ledger::enter(const Ask& ask, AdmissionWaiter* waiter, Reservation* reservation, Error* error) {
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  PeerState* const peer = find_or_make(ask.peer);
  Account* const account = peer->account_of(this, ask.bytes);
  *error = check(*peer, ask.bytes, now);
  if (error->ok()) *error = check_deadline(*account, ask.deadline, now);
  if (!error->ok()) {
    erase_if_idle(peer);
    return Admission::kRefused;
  }
  // Only small claims overtake, and none that waits for the share of its own peer lets another of that peer pass.
  const bool first = waiting_.empty() || (ask.bytes <= kSmallClaim && peer->small.empty());
  if (first && fits_all(ask.bytes) && fits_peer(*peer, ask.bytes)) {
    *reservation = grant(account, ask.bytes, now);
    return Admission::kAdmitted;
  }
  *error = check_queue(*peer, now);
  if (!error->ok()) {
    erase_if_idle(peer);
    return Admission::kRefused;
  }
  wait(peer, account, ask, waiter, now);
  return Admission::kWaits;
}

void Ledger::wait(PeerState* peer, Account* account, const Ask& ask, AdmissionWaiter* waiter, absl::Time now) {
  if (peer->small.empty() && peer->large.empty()) peer->turn = turns_.insert(turns_.end(), peer);
  if (account->requests == 0 && account->waiting == 0) account->flow = {.since = now};
  ++account->waiting;
  Line& line = peer->line_of(ask.bytes);
  const absl::Time expiry = std::min(now + limits_.max_wait, ask.deadline);
  const auto claim = line.insert(line.end(), {waiter, account, ask.bytes, ask.deadline, expiry});
  waiting_[waiter] = {peer, claim};
  expiries_.insert({expiry, waiter});
  // It may be the only one that nothing keeps back: then it is served by the alarm, as soon as this has returned.
  if (peer->small.size() + peer->large.size() == 1 && fits_all(ask.bytes) && fits_peer(*peer, ask.bytes)) {
    alarm_at_ = now;
    alarm_->set(now);
    return;
  }
  set_alarm();
}

bool Ledger::leave(AdmissionWaiter* waiter) {
  MutexLock lock(&mu_);
  const auto found = waiting_.find(waiter);
  if (found == waiting_.end()) return false;
  PeerState* const peer = found->second.first;
  remove(peer, found->second.second);
  erase_if_idle(peer);
  return true;
}

void Ledger::remove(PeerState* peer, Line::iterator claim) {
  --claim->account->waiting;
  waiting_.erase(claim->waiter);
  expiries_.erase({claim->expiry, claim->waiter});
  peer->line_of(claim->bytes).erase(claim);
  if (peer->small.empty() && peer->large.empty()) turns_.erase(peer->turn);
}

Error Ledger::resize(Reservation* reservation, int64_t bytes) {
  const int64_t more = bytes - reservation->bytes();
  if (more <= 0) {
    const Reservation rest = reservation->split(-more);  // gives itself back, outside of mu_
    return {};
  }
  auto* const account = static_cast<Account*>(reservation->grantor());
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  PeerState* const peer = account->peer;
  if (draining_) return draining_error();
  // Bytes that the reservation holds already do not stand in its own way.
  const bool alone = peer->bytes == reservation->bytes();
  if (bytes > limits_.max_bytes) return check(*peer, bytes, now);
  if (more > limits_.max_bytes - bytes_ || (!alone && peer->bytes + more > peer_bytes_)) return full(*peer, more, now);
  bytes_ += more;
  peer->bytes += more;
  reservation->join(Reservation(account, more, 0));
  return {};
}

// --- the rules ----------------------------------------------------------------------------------

bool Ledger::fits_all(int64_t bytes) const {
  if (bytes_ == 0) return bytes <= limits_.max_bytes;
  const int64_t limit = limits_.max_bytes - (bytes <= kSmallClaim ? 0 : limits_.max_bytes / kSmallShare);
  return bytes <= limit - bytes_;
}

bool Ledger::fits_peer(const PeerState& peer, int64_t bytes) const {
  return peer.bytes == 0 || bytes <= peer_bytes_ - peer.bytes;
}

Error Ledger::check(const PeerState& peer, int64_t bytes, absl::Time now) const {
  if (draining_) return draining_error();
  if (bytes > limits_.max_bytes) {
    return overloaded(
        Reason::kOverloadedBytes,
        absl::StrCat("the request needs ", bytes, " bytes; the server's memory limit is ", limits_.max_bytes, " bytes"),
        absl::ZeroDuration());
  }
  if (requests_ >= limits_.max_requests) {
    return overloaded(Reason::kOverloadedRequests,
                      absl::StrCat(requests_, " requests are in flight, which is the limit"), retry_delay(now));
  }
  if (peer.requests >= peer_requests_) {
    return overloaded(
        Reason::kOverloadedRequests,
        absl::StrCat(peer.requests, " requests of this client are in flight, which is the limit for one client"),
        retry_delay(now));
  }
  return {};
}

Error Ledger::check_deadline(const Account& account, absl::Time deadline, absl::Time now) const {
  const int64_t ahead = account.requests + account.waiting;
  const absl::Duration elapsed = now - account.flow.since;
  if (deadline == absl::InfiniteFuture() || ahead < 2 || account.flow.requests < kEvidence ||
      elapsed < kShortestEvidence) {
    return {};
  }
  const absl::Duration stay = elapsed * (static_cast<double>(ahead) / account.flow.requests);
  if (stay <= kUsableTime * (deadline - now)) return {};
  return overloaded(
      Reason::kOverloadedRequests,
      absl::StrCat("requests of this size take ", absl::FormatDuration(absl::Trunc(stay, absl::Milliseconds(1))),
                   " at present, which is longer than the time to the deadline"),
      std::clamp(stay / 2, kShortestDelay, kLongestDelay));
}

Error Ledger::full(const PeerState& peer, int64_t bytes, absl::Time now) const {
  const bool by_share = bytes <= limits_.max_bytes - bytes_;
  return overloaded(Reason::kOverloadedBytes,
                    by_share ? absl::StrCat("the request needs ", bytes, " bytes; this client's requests hold ",
                                            peer.bytes, " of ", peer_bytes_, " bytes, the limit for one client")
                             : absl::StrCat("the request needs ", bytes, " bytes; ", bytes_, " of ", limits_.max_bytes,
                                            " bytes of memory are in use"),
                    retry_delay(now));
}

Error Ledger::check_queue(const PeerState& peer, absl::Time now) const {
  const auto waiting = static_cast<int64_t>(waiting_.size());
  if (waiting >= limits_.max_waiting) {
    return overloaded(Reason::kOverloadedBytes, absl::StrCat(waiting, " requests wait for memory, which is the limit"),
                      retry_delay(now));
  }
  const auto of_peer = static_cast<int64_t>(peer.small.size() + peer.large.size());
  if (of_peer >= peer_waiting_) {
    return overloaded(
        Reason::kOverloadedBytes,
        absl::StrCat(of_peer, " requests of this client wait for memory, which is the limit for one client"),
        retry_delay(now));
  }
  return {};
}

// --- out ----------------------------------------------------------------------------------------

Reservation Ledger::grant(Account* account, int64_t bytes, absl::Time now) {
  if (requests_ == 0) flow_ = {.since = now};  // a busy period begins
  if (account->requests == 0 && account->waiting == 0) account->flow = {.since = now};
  bytes_ += bytes;
  ++requests_;
  account->peer->bytes += bytes;
  ++account->peer->requests;
  ++account->requests;
  return {account, bytes};
}

void Ledger::give_back(Account* account, int64_t bytes, int requests) {
  const absl::Time now = clock_->now();
  Admitted admitted;
  {
    MutexLock lock(&mu_);
    PeerState* const peer = account->peer;
    bytes_ -= bytes;
    requests_ -= requests;
    peer->bytes -= bytes;
    peer->requests -= requests;
    account->requests -= requests;
    flow_.left(now, bytes, requests);
    account->flow.left(now, bytes, requests);
    if (!waiting_.empty()) admitted = serve(now);
    erase_if_idle(peer);
  }
  for (auto& [waiter, reservation] : admitted) waiter->on_admitted(std::move(reservation));
}

Ledger::Admitted Ledger::serve(absl::Time now) {
  Admitted admitted;
  bool blocked = false;
  for (bool served = true; served;) {
    served = false;
    for (auto turn = turns_.begin(); turn != turns_.end();) {
      PeerState* const peer = *turn++;
      if (!serve_one(peer, now, &blocked, &admitted)) continue;
      served = true;
      if (!peer->small.empty() || !peer->large.empty()) turns_.splice(turns_.end(), turns_, peer->turn);
    }
  }
  return admitted;
}

bool Ledger::serve_one(PeerState* peer, absl::Time now, bool* blocked, Admitted* admitted) {
  for (Line* const line : {&peer->small, &peer->large}) {
    if (line->empty() || (line == &peer->large && *blocked)) continue;
    const Line::iterator claim = line->begin();
    if (requests_ >= limits_.max_requests) return false;
    if (peer->requests >= peer_requests_ || !fits_peer(*peer, claim->bytes)) continue;
    if (!fits_all(claim->bytes)) {
      *blocked = *blocked || line == &peer->large;
      continue;
    }
    AdmissionWaiter* const waiter = claim->waiter;
    Account* const account = claim->account;
    const int64_t bytes = claim->bytes;
    remove(peer, claim);
    admitted->emplace_back(waiter, grant(account, bytes, now));
    return true;
  }
  return false;
}

void Ledger::on_alarm() {
  const absl::Time now = clock_->now();
  Admitted admitted;
  Refused refused;
  {
    MutexLock lock(&mu_);
    alarm_at_ = absl::InfiniteFuture();
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      AdmissionWaiter* const waiter = expiries_.begin()->second;
      const auto [peer, claim] = waiting_[waiter];
      const bool late = claim->deadline <= now;
      refused.emplace_back(waiter, overloaded(late ? Reason::kOverloadedBytes : Reason::kQueueTimeout,
                                              absl::StrCat("no memory was free for the request's ", claim->bytes,
                                                           " bytes before its ", late ? "deadline" : "queue timeout"),
                                              retry_delay(now)));
      remove(peer, claim);
      erase_if_idle(peer);
    }
    admitted = serve(now);
    set_alarm();
  }
  for (auto& [waiter, reservation] : admitted) waiter->on_admitted(std::move(reservation));
  for (auto& [waiter, error] : refused) waiter->on_refused(std::move(error));
}

void Ledger::set_alarm() {
  if (expiries_.empty() || expiries_.begin()->first >= alarm_at_) return;  // it rings too early, which does no harm
  alarm_at_ = expiries_.begin()->first;
  alarm_->set(alarm_at_);
}

Ledger::PeerState* Ledger::find_or_make(const Peer& name) {
  std::unique_ptr<PeerState>& peer = peers_[name];
  if (peer == nullptr) {
    peer = std::make_unique<PeerState>();
    peer->name = name;
  }
  return peer.get();
}

void Ledger::erase_if_idle(PeerState* peer) {
  if (peer->requests == 0 && peer->bytes == 0 && peer->small.empty() && peer->large.empty()) peers_.erase(peer->name);
}

void Ledger::Flow::left(absl::Time now, int64_t bytes_left, int requests_left) {
  bytes += static_cast<double>(bytes_left);
  requests += requests_left;
  if (now - since < kMemory) return;
  // Forget half: the rate stays, and the older half of what it is made of counts no more than the younger.
  since += (now - since) / 2;
  bytes /= 2;
  requests /= 2;
}

absl::Duration Ledger::retry_delay(absl::Time now) const {
  const absl::Duration elapsed = now - flow_.since;
  // Nothing has left yet: it will take at least as long again.
  double turns = 1;
  if (flow_.requests > 0) {
    turns = static_cast<double>(requests_) / flow_.requests;
    if (flow_.bytes > 0) turns = std::max(turns, static_cast<double>(bytes_) / flow_.bytes);
    turns /= 2;
  }
  return std::clamp(elapsed * turns, kShortestDelay, kLongestDelay);
}

void Ledger::start_drain() {
  std::vector<AdmissionWaiter*> refused;
  {
    MutexLock lock(&mu_);
    draining_ = true;
    while (!waiting_.empty()) {
      const auto [peer, claim] = waiting_.begin()->second;
      refused.push_back(claim->waiter);
      remove(peer, claim);
      erase_if_idle(peer);
    }
  }
  for (AdmissionWaiter* const waiter : refused) waiter->on_refused(draining_error());
}

bool Ledger::is_half_full() const {
  MutexLock lock(&mu_);
  return bytes_ > limits_.max_bytes / 2;
}

Ledger::Usage Ledger::usage() const {
  MutexLock lock(&mu_);
  return {bytes_, requests_, draining_, static_cast<int64_t>(waiting_.size())};
}

}  // namespace svdserve::server
