// The members' work in one run of their threads: swaps and p-steps, or the copies of a checkpoint.
//
// A swap has a part on the thread of each of the two. A member's p-steps may still read its free slot, so the partner sends
// once they are done. Both send at once. Then each waits until what it gets is there.
//   mark done; meet; await the partner's done; send; mark sent; meet; await the partner's sent
// Meetings are of host threads, all else may be events of devices. Members that reach no memory of each other:
//   offer; meet; exchange; meet
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_RING_RUN_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_RING_RUN_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backends/ring/member_threads.h"
#include "engine/backends/ring/ring_layout.h"
#include "engine/backends/ring/ring_member.h"

namespace svdserve::ring {

// All that the threads of a run use. Those that are left behind keep it.
template <RingMember Member>
struct RingRun {
  using E = typename Member::Element;

  RingRun(const Members<Member>& all, const Unions& cut)
      : members(all), unions(cut), slots(all.size()), programs(all.size()), counters(all.size()) {}

  // The whole program of member m.
  void compute(int m, MeetingPlace& place) {
    Member& own = *members[static_cast<size_t>(m)];
    std::vector<int64_t> places(static_cast<size_t>(unions.blocks()));
    if (counts_anew) own.reset_counters();
    std::vector<large::PStep<E>> between_swaps;
    const auto compute_them = [&] {
      place.alive(m);
      large::p_steps(own, between_swaps, [&] { place.alive(m); });
      between_swaps.clear();
    };
    for (const RingAction& action : programs[static_cast<size_t>(m)]) {
      if (action.kind == RingAction::Kind::kSwap) {
        compute_them();
        swap(m, action, place);
        continue;
      }
      // All pairs between two swaps are of the same unions, so that the places are, too.
      if (between_swaps.empty()) find_places(action.unions, places);
      large::PStep<E> step = steps[action.step];
      step.pairs = action.pairs.data();
      step.count = static_cast<int>(action.pairs.size());
      step.places = places.data();
      between_swaps.push_back(step);
    }
    compute_them();
    place.alive(m);
    counters[static_cast<size_t>(m)] = own.read_counters();
  }

  // f(place, columns of the checkpoint) for the slots of member m that are in use.
  template <class F>
  void for_slots(int m, MeetingPlace& place, const F& f) {
    for (int slot = 0; slot < kSlots; ++slot) {
      const int u = slots[static_cast<size_t>(m)][static_cast<size_t>(slot)];
      if (u < 0) continue;
      place.alive(m);
      const UnionPlace in_use = place_of(slot, u);
      f(in_use, checkpoint->columns(in_use.first, in_use.count));
    }
  }

  Members<Member> members;
  Unions unions;
  std::vector<std::array<int, kSlots>> slots;
  std::shared_ptr<Checkpoint<E>> checkpoint;      // of copies
  std::vector<std::vector<RingAction>> programs;  // of the members
  std::vector<large::PStep<E>> steps;             // without pairs
  std::vector<large::PStepCounters> counters;     // [out]
  bool counts_anew = false;

 private:
  void swap(int m, const RingAction& action, MeetingPlace& place) {
    Member& own = *members[static_cast<size_t>(m)];
    const UnionPlace sent = place_of(action.sent_slot, action.sent_union);
    if constexpr (ExchangingMember<Member>) {
      own.offer(sent);
      place.meet(m, action.partner, 2 * action.meeting);
      own.exchange(m, action.partner, sent, place_of(action.free_slot, action.got_union), [&] { place.alive(m); });
      place.meet(m, action.partner, 2 * action.meeting + 1);
    } else {
      Member& partner = *members[static_cast<size_t>(action.partner)];
      own.mark(RingMark::kDone);
      place.meet(m, action.partner, 2 * action.meeting);
      own.await(partner, RingMark::kDone);
      own.send(sent, partner, action.partner_slot);
      own.mark(RingMark::kSent);
      place.meet(m, action.partner, 2 * action.meeting + 1);
      own.await(partner, RingMark::kSent);
    }
  }

  UnionPlace place_of(int slot, int u) const {
    const int first = unions.first_block(u);
    return {slot, unions.first_column(u), unions.columns(u), first, unions.first_block(u + 1) - first};
  }

  void find_places(const std::array<int, kSlots>& in_slots, std::vector<int64_t>& places) const {
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const int u = in_slots[static_cast<size_t>(slot)];
      if (u < 0) continue;
      int64_t column = slot * unions.most_columns();
      for (int b = unions.first_block(u); b < unions.first_block(u + 1); ++b, column += unions.width()) {
        places[static_cast<size_t>(b)] = column;
      }
    }
  }
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_RING_RUN_H_
