// The ledger of what is in memory: bytes of messages, operands and results, and requests; and the queue in front of it.
// A call claims its bytes before its message is received. A claim that does not fit now waits in the queue. A claim
// that waits too long, or that cannot be served before its deadline, is refused with a time to come back.
//
// The queue has a line for each peer; peers take turns, one claim a turn. One peer's claims are bounded by its share of
// bytes and of requests, so that a peer that takes nothing leaves room for the others. A waiting call's client may
// already have sent one flow-control window, so the number of waiting claims is bounded, too.
//
// The flow of the peer's claims of like size tells whether a deadline can be met. With N of them in memory and in the
// queue, of which r leave a second, the next one leaves after N / r seconds (Little's law).
//
// Thread-safe. Invariants:
//   1. bytes_ and requests_ are the sums over the reservations that exist; they pass their limits only where one claim
//      alone does, and then it is alone.
//   2. The last sixteenth of the bytes is for small claims, so that no small one waits behind large ones.
//   3. A claim at the head of its peer's line that only its peer's share keeps back lets other peers pass. One that the
//      limits of all keep back lets only small claims pass, so it is served in the end.
//   4. After start_drain() nothing is admitted any more, and nothing waits; what was admitted may still be extended.
//   5. No waiter is called under mu_.
//   6. At most max_waiting claims wait, and at most its share of them for one peer.
#ifndef SVDSERVE_SERVER_ADMIT_LEDGER_H_
#define SVDSERVE_SERVER_ADMIT_LEDGER_H_

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/admission.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/error.h"
#include "server/reservation.h"

namespace svdserve::server {

struct LedgerLimits {
  int64_t max_bytes = int64_t{1} << 30;
  int64_t max_requests = 4096;
  int64_t max_waiting = 4096;                          // claims in the queue
  int peer_percent = 100;                              // of all three, for one peer; at least one request
  absl::Duration max_wait = absl::InfiniteDuration();  // in the queue
};

class Ledger {
 public:
  // `clock` outlives the ledger, the ledger every reservation.
  Ledger(const LedgerLimits& limits, Clock* clock);
  // Nobody waits any more.
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Admits one request of `bytes` >= 0 and returns its reservation, or rejects it. Then RESOURCE_EXHAUSTED has a delay
  // after which another try makes sense (none where it never will fit), UNAVAILABLE stands for draining.
  Error admit(const Peer& peer, int64_t bytes, Reservation* reservation);

  // The same, but what does not fit now waits. `waiter` lives until it is told or has left.
  Admission enter(const Ask& ask, AdmissionWaiter* waiter, Reservation* reservation, Error* error);
  // Reserves `bytes` >= 0 more for a request that was admitted under an empty peer, also when draining. The reservation
  // counts no request. False: there is no room now.
  bool extend(int64_t bytes, Reservation* reservation);

  // Takes a waiter out of the queue. False: it is not there, since it was told or will be in a moment.
  bool leave(AdmissionWaiter* waiter);

  // Makes the reservation, which this ledger granted, one of `bytes`. Refuses where it grows and there is no room.
  Error resize(Reservation* reservation, int64_t bytes);

  // Refuses all that waits, and whatever comes.
  void start_drain();

  struct Usage {
    int64_t bytes;
    int64_t requests;
    bool draining;
    int64_t waiting;
  };
  Usage usage() const;
  // Whether more than half of the bytes are taken.
  bool is_half_full() const;

 private:
  struct Account;
  struct PeerState;
  struct Claim;
  using Line = std::list<Claim>;
  // Waiters that are told once mu_ is released.
  using Admitted = std::vector<std::pair<AdmissionWaiter*, Reservation>>;
  using Refused = std::vector<std::pair<AdmissionWaiter*, Error>>;

  // The bytes and requests that left since a recent moment of the present busy period.
  struct Flow {
    absl::Time since = absl::InfinitePast();
    double bytes = 0;
    double requests = 0;
    void left(absl::Time now, int64_t bytes_left, int requests_left);
  };

  void give_back(Account* account, int64_t bytes, int requests);
  PeerState* find_or_make(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void erase_if_idle(PeerState* peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool fits_all(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool fits_peer(const PeerState& peer, int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a claim is refused before its bytes are looked at; ok() where it is not.
  Error check(const PeerState& peer, int64_t bytes, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error check_deadline(const Account& account, absl::Time deadline, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error full(const PeerState& peer, int64_t bytes, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a claim may not wait; ok() where it may.
  Error check_queue(const PeerState& peer, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Reservation grant(Account* account, int64_t bytes, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Admits what fits, in turn.
  Admitted serve(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives one claim of the peer room, if there is any for it; *blocked: only small claims may have it.
  bool serve_one(PeerState* peer, absl::Time now, bool* blocked, Admitted* admitted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void wait(PeerState* peer, Account* account, const Ask& ask, AdmissionWaiter* waiter, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void remove(PeerState* peer, Line::iterator claim) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void on_alarm();
  void set_alarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How long until half of what is in the ledger has left it, going by what left lately.
  absl::Duration retry_delay(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const LedgerLimits limits_;
  const int64_t peer_bytes_, peer_requests_, peer_waiting_;  // the share of one peer
  Clock* const clock_;
  mutable Mutex mu_;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  Flow flow_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Peer, std::unique_ptr<PeerState>> peers_ ABSL_GUARDED_BY(mu_);  // that have something here
  std::list<PeerState*> turns_ ABSL_GUARDED_BY(mu_);  // those with a line; the front is served next
  absl::flat_hash_map<AdmissionWaiter*, std::pair<PeerState*, Line::iterator>> waiting_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<std::pair<absl::Time, AdmissionWaiter*>> expiries_ ABSL_GUARDED_BY(mu_);
  absl::Time alarm_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::unique_ptr<Alarm> alarm_;  // last: its callback uses everything above
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMIT_LEDGER_H_
