// Admission of large matrices. Each reserves its memory in steps. The operand comes when it is opened, and the results
// when it is committed, if there is room for them. The rest comes when a device takes it. Admission makes sure that the
// last step succeeds sooner or later for every matrix.
//
// Thread-safe. Invariants:
//   1. Uploads never lock the memory up. Take all matrices that are admitted and have no results yet. The bytes that
//      they keep while they wait, plus the most that one of them still needs, are never more than the limit. So once
//      nothing is computed and nothing is downloaded, there is room to compute any one of them; its results leave, and
//      there is room for the next.
//   2. The same holds of the matrices of one peer and of its share of the limit. A peer that opens much and sends
//      little leaves room for the others.
//   3. All reserved bytes together never pass the limit. This is the ledger's own invariant.
#ifndef SVDSERVE_SERVER_ADMIT_LARGE_ADMISSION_H_
#define SVDSERVE_SERVER_ADMIT_LARGE_ADMISSION_H_

#include <cstdint>
#include <list>
#include <utility>

#include "server/admit/ledger.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/error.h"
#include "server/peer.h"
#include "server/reservation.h"

namespace svdserve::server {

class LargeAdmission {
  struct Amounts {
    Peer peer;
    int64_t kept;  // while it waits
    int64_t most;  // while it is computed; at most one peer's share
  };

 public:
  // A matrix that is admitted and has no results yet. Move-only; the destructor ends that.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : admission_(std::exchange(other.admission_, nullptr)), amounts_(other.amounts_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(admission_, other.admission_);
      std::swap(amounts_, other.amounts_);
      return *this;
    }
    ~Place() {
      if (admission_ != nullptr) admission_->leave(amounts_);
    }

   private:
    friend class LargeAdmission;
    Place(LargeAdmission* admission, std::list<Amounts>::iterator amounts) : admission_(admission), amounts_(amounts) {}
    LargeAdmission* admission_ = nullptr;
    std::list<Amounts>::iterator amounts_;
  };

  // `clock` outlives the admission; the admission outlives every place and every reservation.
  LargeAdmission(const LedgerLimits& limits, Clock* clock);

  // The most that a matrix may need: one peer's share of the limit.
  int64_t share() const { return share_; }

  // Admits a matrix that keeps `operand` bytes from now on and needs `most` bytes while it is computed, at most the
  // share. Else the errors of Ledger::admit().
  Error admit(const Peer& peer, int64_t operand, int64_t most, Place* place, Reservation* reservation);

  // Reserves `bytes` of the matrix's need now, and keeps them while it waits. False: there is no room, or the first
  // invariant forbids it.
  bool keep(int64_t bytes, Place* place, Reservation* reservation);

  // Reserves `bytes` that the matrix gives back if its device fails it. False: there is no room now.
  bool reserve(int64_t bytes, Reservation* reservation) { return ledger_.extend(bytes, reservation); }

  void start_drain() { ledger_.start_drain(); }
  Ledger::Usage usage() const { return ledger_.usage(); }

 private:
  void leave(std::list<Amounts>::iterator amounts);
  // Invariants 1 and 2.
  bool each_can_be_computed(const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t places_of(const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t limit_, share_, places_share_;
  Ledger ledger_;
  Mutex mu_;
  std::list<Amounts> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMIT_LARGE_ADMISSION_H_
