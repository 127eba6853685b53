// The ledger of what is in memory: bytes of operands and results, and requests. What does not fit is refused at once;
// the queue behind it is never longer than the ledger is large.
//
// Thread-safe. Invariants:
//   1. bytes_ and requests_ are the sums over the reservations that exist, and never pass their limits.
//   2. After StartDrain() nothing is admitted any more; what was admitted may still grow.
#ifndef SVDSERVE_SERVER_ADMIT_LEDGER_H_
#define SVDSERVE_SERVER_ADMIT_LEDGER_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/clock.h"
#include "server/error.h"
#include "server/mutex.h"
#include "server/reservation.h"

namespace svdserve::server {

struct LedgerLimits {
  int64_t max_bytes = int64_t{1} << 30;
  int64_t max_requests = 4096;
};

class Ledger final : private ReservationGrantor {
 public:
  // `clock` outlives the ledger, the ledger every reservation.
  Ledger(const LedgerLimits& limits, Clock* clock) : limits_(limits), clock_(clock) {}

  // Admits one request of `bytes` >= 0 and returns its reservation, or refuses: RESOURCE_EXHAUSTED with a delay after
  // which trying again makes sense (none where it never will fit), or UNAVAILABLE when draining.
  Error Admit(int64_t bytes, Reservation* reservation);

  // Reserves `bytes` >= 0 more for a request that was admitted before, also when draining. The reservation counts no
  // request. False: there is no room now.
  bool Extend(int64_t bytes, Reservation* reservation);

  void StartDrain();

  struct Usage {
    int64_t bytes;
    int64_t requests;
    bool draining;
  };
  Usage usage() const;

 private:
  void GiveBack(int64_t bytes, int requests) override;
  // How long until half of what is in the ledger has left it, going by what left lately.
  absl::Duration RetryDelay(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const LedgerLimits limits_;
  Clock* const clock_;
  mutable Mutex mu_;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t requests_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  // What has left since `since_`, a recent moment of the present busy period.
  absl::Time since_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  double left_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  double left_requests_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMIT_LEDGER_H_
