// Requirements of ring_backend.h on a member: a device, or a share of a host's threads, with three slots of memory.
//
// A slot has room for a union of super-blocks: its columns of X with their exponents, and of V where there is one.
// Calls come from one thread at a time, which differs from call to call. Each sees the results of those before it. Calls
// may return before they are done, but for those that say that they wait. Every call may throw. After one that did, or
// that was late, the member is only destroyed, once its call has returned.
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_RING_MEMBER_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_RING_MEMBER_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::ring {

inline constexpr int kSlots = 3;

// The matrix, and the size of each slot.
struct RingShape {
  int64_t rows = 0;    // of X
  int64_t v_rows = 0;  // of V; 0: none
  int64_t columns = 0;
  int64_t slot_columns = 0;
  int64_t width = 0;  // of a block
  double tolerance = 0;
  int64_t blocks() const { return (columns + width - 1) / width; }
};

// A union of super-blocks: columns first .. first + count - 1 of the matrix, which are the first of a slot. A member that
// has room for the whole matrix may keep them at their own place there, and needs no slots.
struct UnionPlace {
  int slot = 0;
  int64_t first = 0, count = 0;
  int first_block = 0, blocks = 0;
};

// Columns of a checkpoint, as far apart as its home says. v: null where there is none.
template <class E>
struct RingColumns {
  E* x = nullptr;
  int32_t* f = nullptr;
  E* v = nullptr;
  int64_t count = 0;
};

// Points in the order of a member's calls: its p-steps are done; what it sent has left its slot.
enum class RingMark : uint8_t { kDone, kSent };

// Member: class with
//   void reserve(RingShape)                  three slots, numbered 0 .. 2, one behind the other; contents unspecified
//   void take(place, columns)                the union there := columns. waits
//   void give(place, columns)                columns := the union there. waits
// and either, where members reach each other's memory,
//   void mark(RingMark)                      the point of the latest mark of this kind
//   void await(member, RingMark)             what follows here sees all before that member's latest mark of this kind
//   void send(place, to, to_slot)            the union goes into that slot of member `to`
// or, where they do not, such as by NCCL's ncclSend and ncclRecv,
//   void offer(sent)                         the union is ready to leave. waits
//   void exchange(own, partner, sent, got, alive)    member number `own` sends what it offered to member number `partner`
//                                            of this ring, which has offered, too, and calls this at the same time. It
//                                            gets a union into a free slot. While it waits for the partner, and for
//                                            nothing else, it calls alive() many times a deadline. That may throw. waits
// and
//   void p_step(step)                        of PStep, x.data, f, v.data and both ld are the member's to fill in. With
//                                            places: column c of slot s is column s * slot_columns + c
//   void p_steps(steps)                      where it has that: p_step() of each, a std::vector, in their order. They
//                                            are all between two swaps
//   void reset_counters(); PStepCounters read_counters()      the second waits
//   void tell(phases)                        adds the times of its p-steps, and what it knows of those between them
//   void stop()                              from any thread, at any time: what runs may end early, by throwing
template <class M>
concept ExchangingMember = requires(M& m, const UnionPlace& place, void (*alive)()) {
  m.offer(place);
  m.exchange(0, 1, place, place, alive);
};
template <class M>
concept PeerMember = requires(M& m, M& other, const UnionPlace& place) {
  m.mark(RingMark::kDone);
  m.await(other, RingMark::kSent);
  m.send(place, other, 0);
};
template <class M>
concept RingMember = (PeerMember<M> || ExchangingMember<M>)&&requires(M& m, const RingShape& shape,
                                                                      const UnionPlace& place,
                                                                      const RingColumns<typename M::Element>& columns,
                                                                      const large::PStep<typename M::Element>& step,
                                                                      std::vector<LargePhaseTime>& phases) {
  m.reserve(shape);
  m.take(place, columns);
  m.give(place, columns);
  m.p_step(step);
  m.reset_counters();
  { m.read_counters() } -> std::same_as<large::PStepCounters>;
  m.tell(phases);
  m.stop();
};

// Threads that are left behind may share them.
template <class Member>
using Members = std::vector<std::shared_ptr<Member>>;

// X, its exponents and V as they were before some p-step, in memory that all members reach.
template <class E>
struct Checkpoint {
  // ld, v_ld: elements of a column of X, and of V or 0. allocate(bytes): a std::shared_ptr<void>.
  template <class Allocate>
  Checkpoint(int64_t ld, int64_t v_ld, int64_t n, const Allocate& allocate)
      : ld(ld),
        v_ld(v_ld),
        memory(allocate(static_cast<uint64_t>(n) * (static_cast<uint64_t>(ld + v_ld) * sizeof(E) + sizeof(int32_t)))),
        x(static_cast<E*>(memory.get())),
        v(v_ld > 0 ? x + ld * n : nullptr),
        f(reinterpret_cast<int32_t*>(x + (ld + v_ld) * n)) {}
  RingColumns<E> columns(int64_t first, int64_t count) const {
    return {x + first * ld, f + first, v != nullptr ? v + first * v_ld : nullptr, count};
  }

  const int64_t ld, v_ld;
  const std::shared_ptr<void> memory;
  E* const x;
  E* const v;
  int32_t* const f;
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_RING_MEMBER_H_
