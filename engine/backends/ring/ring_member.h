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

// The size of each slot.
struct SlotShape {
  int64_t rows = 0;    // of X
  int64_t v_rows = 0;  // of V; 0: none
  int64_t columns = 0;
  int64_t blocks = 0;  // of the whole matrix
};

// Columns in host memory, without gaps. v: null where there is none.
template <class E>
struct HostColumns {
  E* x = nullptr;
  int32_t* f = nullptr;
  E* v = nullptr;
  int64_t count = 0;
};

// Points in the order of a member's calls: its p-steps are done; what it sent has left its slot.
enum class RingMark : uint8_t { kDone, kSent };

// Member: class with
//   void reserve(SlotShape)                  three slots, numbered 0 .. 2, one behind the other; contents unspecified
//   void take(slot, columns)                 slot := columns. waits
//   void give(slot, columns)                 columns := slot. waits
//   void mark(RingMark)                      the point of the latest mark of this kind
//   void await(member, RingMark)             what follows here sees all before that member's latest mark of this kind
//   void send(slot, columns, to, to_slot)    to_slot of member `to` := the first `columns` columns of the slot
//   void p_step(step)                        of PStep, x.data, f, v.data and both ld are the member's to fill in. With
//                                            places: column c of slot s is column s * shape.columns + c
//   void reset_counters(); PStepCounters read_counters()      the second waits
//   void tell(phases)                        adds the times of its p-steps
//   void stop()                              from any thread, at any time: what runs may end early, by throwing
template <class M>
concept RingMember = requires(M& m, M& other, const SlotShape& shape, const HostColumns<typename M::Element>& columns,
                              const large::PStep<typename M::Element>& step, std::vector<LargePhaseTime>& phases) {
  m.reserve(shape);
  m.take(0, columns);
  m.give(0, columns);
  m.mark(RingMark::kDone);
  m.await(other, RingMark::kSent);
  m.send(0, int64_t{}, other, 0);
  m.p_step(step);
  m.reset_counters();
  { m.read_counters() } -> std::same_as<large::PStepCounters>;
  m.tell(phases);
  m.stop();
};

// Threads that are left behind may share them.
template <class Member>
using Members = std::vector<std::shared_ptr<Member>>;

// X, its exponents and V in host memory, as they were before some p-step.
template <class E>
struct Checkpoint {
  Checkpoint(int64_t rows, int64_t v_rows, int64_t n)
      : rows(rows),
        v_rows(v_rows),
        x(std::make_unique_for_overwrite<E[]>(static_cast<size_t>(rows * n))),
        f(std::make_unique_for_overwrite<int32_t[]>(static_cast<size_t>(n))),
        v(v_rows > 0 ? std::make_unique_for_overwrite<E[]>(static_cast<size_t>(v_rows * n)) : nullptr) {}
  HostColumns<E> columns(int64_t first, int64_t count) const {
    return {x.get() + first * rows, f.get() + first, v ? v.get() + first * v_rows : nullptr, count};
  }

  int64_t rows, v_rows;
  std::unique_ptr<E[]> x;
  std::unique_ptr<int32_t[]> f;
  std::unique_ptr<E[]> v;
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_RING_MEMBER_H_
