// Whose turn it is among members that share something: the one that has used least of it is next. This is start-time
// fair queueing (Goyal, Vin, Cheng: IEEE/ACM Trans. Networking 5 (1997) 690-704). A member's virtual time advances by
// its use. A member that comes starts at the virtual time of the turn taken last, or at its own where that is later. So
// no member saves up credit while idle, and none loses a debt by leaving. Neither of two members that wait all along
// gets ahead of the other by more than one turn of each.
//
// Plain data under its owner's lock.
#ifndef SVDSERVE_SERVER_BATCH_TURNS_H_
#define SVDSERVE_SERVER_BATCH_TURNS_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"

namespace svdserve::server {

class Turns {
 public:
  // One that takes turns. It waits, or is active without waiting, or rests. It is active when it is made.
  class Member {
   public:
    absl::Duration used() const { return used_; }
    bool waits() const { return state_ == State::kWaits; }
    bool rests() const { return state_ == State::kRests; }

   private:
    friend class Turns;
    enum class State : uint8_t { kActive, kWaits, kRests };
    State state_ = State::kActive;
    absl::Duration used_ = -absl::InfiniteDuration();  // its virtual time; until it first waits it has none
    uint64_t place_ = 0;                               // among those that have used as much
  };

  // An active member waits from now on.
  void join(Member* member) {
    // Where nobody waits, nobody is owed anything.
    if (waiting_.empty() && !resting_.empty()) now_ = std::max(now_, std::get<0>(*resting_.rbegin()));
    member->used_ = std::max(member->used_, now_);
    enter(member, Member::State::kWaits);
  }
  // A member that waits is active alone from now on.
  void leave(Member* member) {
    waiting_.erase({member->used_, member->place_, member});
    member->state_ = Member::State::kActive;
  }
  // An active member rests: it is only remembered, until forgettable() names it.
  void rest(Member* member) { enter(member, Member::State::kRests); }
  // A member that rests is active again.
  void wake(Member* member) {
    resting_.erase({member->used_, member->place_, member});
    member->state_ = Member::State::kActive;
  }
  // One that rests and owes nothing any more, or the one that owes least of more than `most`; it is no member any more.
  // Null: there is none.
  Member* forgettable(size_t most) {
    if (resting_.empty()) return nullptr;
    Member* const least = std::get<2>(*resting_.begin());
    if (least->used_ > now_ && resting_.size() <= most) return nullptr;
    wake(least);
    return least;
  }

  // A turn is taken by some members that wait; each is then charged its part. At least one member waits.
  void take() { now_ = std::max(now_, std::get<0>(*waiting_.begin())); }
  // A member that does not rest has used so much more; less than zero: it was charged too much. It goes behind its
  // equals.
  void charge(Member* member, absl::Duration used) {
    const bool waited = member->waits();
    if (waited) leave(member);
    member->used_ += used;
    if (waited) enter(member, Member::State::kWaits);
  }

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }  // members that wait

  // Calls visit(member) for those that wait, the next one first, until it returns false. It changes nothing.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [used, place, member] : waiting_) {
      if (!visit(member)) return;
    }
  }

 private:
  using Order = absl::btree_set<std::tuple<absl::Duration, uint64_t, Member*>>;

  void enter(Member* member, Member::State state) {
    member->state_ = state;
    member->place_ = ++last_place_;
    Order& order = state == Member::State::kWaits ? waiting_ : resting_;
    order.insert({member->used_, member->place_, member});
  }

  Order waiting_, resting_;
  absl::Duration now_;  // the virtual time of the turn taken last; never decreases
  uint64_t last_place_ = 0;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_TURNS_H_
