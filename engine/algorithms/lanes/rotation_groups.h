// Plane rotations of neighbouring columns, from the sweeps that found them to the rows that take them.
//
//   (x_i, x_{i+1}) := (c x_i + s x_{i+1}, c x_{i+1} - s x_i),   c >= 0
//
// They are kept as s and t = s / (1 + c). Rows take them as x_i + s (x_{i+1} - t x_i) and x_{i+1} - s (x_i + t x_{i+1}). With
// c and s themselves the rounding error of c would lengthen all rows alike, in all rotations of nearly the same angle.
//
// A sweep is a run of rotations with ascending i. kSweeps of them are a group: a row is read and written once for all.
// Sweep j follows two columns behind sweep j - 1, so the rotations of one step touch different columns:
//
//   step t:   sweep j rotates columns i and i + 1, i = t - 1 - 2 j
//
// A group over the columns 0 .. last has last + 2 kSweeps steps, rounded up to a multiple of 2 kPieceSteps. It is kSweeps
// runs of so many rotations, one for each step. Places without a rotation have the identity. The places before column 0
// and behind `last` fill and empty the chain of sweeps.
//
// Cost for each row and step: 4 kSweeps operations on reals, a number read and one written.
// Source: Van Zee, van de Geijn and Quintana-Orti, ACM Trans. Math. Softw. 40 (2014) 18 (rotations of several sweeps
// fused, section 4).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_GROUPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_GROUPS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_GROUPS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_GROUPS_H_
#endif

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

template <class L>
struct alignas(2 * sizeof(L)) PlaneRotation {
  L s, t;
};

// x + a y
template <class E>
SVD_HD E plus_scaled(E x, typename E::Lane a, const E& y) {
  x.re = fma(a, y.re, x.re);
  if constexpr (E::kComplex) x.im = fma(a, y.im, x.im);
  return x;
}

struct RotationGroup {
  static constexpr int kSweeps = 4, kBehind = 2 * kSweeps - 1;
  static constexpr int kPieceSteps = 4;  // rotations are read by pieces of so many steps, two at a time

  static SVD_HD int steps(int last) {
    return (last + 2 * kSweeps + 2 * kPieceSteps - 1) / (2 * kPieceSteps) * (2 * kPieceSteps);
  }
  static SVD_HD int rotations(int last) { return steps(last) * kSweeps; }
  // The first column of sweep j's rotation in the first step.
  static SVD_HD int first(int j) { return -1 - 2 * j; }
};

// The groups of one matrix, one behind the other. Rotations of the left and of the right side have places of the same
// number. Memory is the caller's.
template <class L>
struct RotationGroups {
  PlaneRotation<L>*left, *right;  // `capacity` of each, at least rotations(k - 1)
  int32_t* last;                  // of each group
  int capacity;
};

// Writes groups. Groups that found no room are left to the caller. Without both sides only `right` has rotations.
template <class L, bool kBothSides = true>
class RotationWriter {
 public:
  explicit SVD_HD RotationWriter(const RotationGroups<L>& to) : to_(to) {}

  // Begins so many groups over the columns 0 .. last, whose sweeps are numbered together. False: there is no room.
  SVD_HD bool begin(int last, int groups = 1) {
    const int first = first_ + steps_ * RotationGroup::kSweeps * begun_;
    if (first + RotationGroup::rotations(last) * groups > to_.capacity) return false;
    first_ = first;
    steps_ = RotationGroup::steps(last);
    begun_ = groups;
    for (int group = 0; group < groups; ++group) to_.last[groups_++] = last;
    return true;
  }
  // Sweep j's rotations of columns i and i + 1.
  SVD_HD void rotation(int j, int i, const PlaneRotation<L>& left, const PlaneRotation<L>& right) {
    const int at = place(j, i);
    to_.left[at] = left;
    to_.right[at] = right;
  }
  SVD_HD void rotation(int j, int i, const PlaneRotation<L>& right) { to_.right[place(j, i)] = right; }
  // Sweep j has rotations of the columns low .. high - 1 alone. The others are identities.
  SVD_HD void no_rotations(int j, int low, int high) {
    const int first = RotationGroup::first(j % RotationGroup::kSweeps), end = first + steps_;
    for (int i = first; i < low; ++i) no_rotation(j, i);
    for (int i = high; i < end; ++i) no_rotation(j, i);
  }
  SVD_HD int groups() const { return groups_; }

 private:
  SVD_HD void no_rotation(int j, int i) {
    const PlaneRotation<L> none{L(0), L(0)};
    if constexpr (kBothSides) {
      rotation(j, i, none, none);
    } else {
      rotation(j, i, none);
    }
  }
  SVD_HD int place(int j, int i) const {
    return first_ + j * steps_ + i - RotationGroup::first(j % RotationGroup::kSweeps);
  }

  const RotationGroups<L> to_;
  int first_ = 0, steps_ = 0, begun_ = 0, groups_ = 0;
};

// The rotations of a piece: kPieceSteps of each sweep.
template <class L>
struct RotationPiece {
  PlaneRotation<L> of[RotationGroup::kSweeps][RotationGroup::kPieceSteps];
};

// The sweeps of a group at work on one row.
template <class E>
struct RotationChain {
  using L = typename E::Lane;
  static constexpr int kSweeps = RotationGroup::kSweeps, kSteps = RotationGroup::kPieceSteps;

  // The column that each sweep's next rotation takes first, and the one that it has left behind.
  E carried[kSweeps], done[kSweeps];

  SVD_HD void clear() { SVD_UNROLL for (int j = 0; j < kSweeps; ++j) carried[j] = done[j] = zero_element<E>(); }
  // The steps from `step` on. Columns beyond `end` are not there, and those before `first` are not written. kIsInside: there
  // are none of these.
  template <bool kIsInside = false, class Row>
  SVD_HD void apply(const RotationPiece<L>& piece, int step, int first, int end, Row x) {
    SVD_UNROLL for (int p = 0; p < kSteps; ++p) {
      E second = kIsInside || step + p <= end ? x(step + p) : zero_element<E>();
      SVD_UNROLL for (int j = 0; j < kSweeps; ++j) {
        const L s = piece.of[j][p].s, t = piece.of[j][p].t;
        const E before = carried[j], next = done[j];
        done[j] = plus_scaled(before, s, plus_scaled(second, -t, before));
        carried[j] = plus_scaled(second, -s, plus_scaled(before, t, second));
        second = next;
      }
      const int column = step + p - RotationGroup::kBehind;
      if (kIsInside || (column >= first && column <= end)) x(column) = done[kSweeps - 1];
    }
  }
};

// Rotates one row by all groups of a matrix. Pieces are asked for long before they are applied. Pieces:
//   kSlots                      slots for pieces on their way
//   ask(slot, place, steps)     the piece whose rotations of sweep j begin at place + j steps
//   ask_nothing()               in its place, behind the last piece
//   take(slot, piece)           that which was asked for kSlots - 1 asks before the next one
template <class E, class Pieces>
class RowRotations {
 public:
  explicit SVD_HD RowRotations(const Pieces& pieces) : pieces_(pieces) {}

  // last(group): the last column of a group. x(i): a reference to element i of the row.
  template <class Last, class Row>
  SVD_HD void rotate(int groups, Last last, Row x) {
    if (groups == 0) return;
    Cursor next{0, 0, RotationGroup::steps(last(0)), 0};
    int slot = 0;  // of the piece that is applied next
    for (int p = 0; p < kSlots - 1; ++p) ask(p, groups, last, &next);
    RotationPiece<L> even, odd;
    pieces_.take(0, &even);
    for (int group = 0; group < groups; ++group) {
      const int end = last(group), steps = RotationGroup::steps(end);
      RotationChain<E> chain;
      chain.clear();
      SVD_LOOP for (int step = 0; step < steps; step += 2 * kSteps) {
        ask((slot + kSlots - 1) % kSlots, groups, last, &next);
        pieces_.take((slot + 1) % kSlots, &odd);
        chain.apply(even, step, 0, end, x);
        ask(slot, groups, last, &next);
        slot = (slot + 2) % kSlots;
        pieces_.take(slot, &even);
        chain.apply(odd, step + kSteps, 0, end, x);
      }
    }
  }

 private:
  using L = typename E::Lane;
  static constexpr int kSweeps = RotationGroup::kSweeps, kSteps = RotationGroup::kPieceSteps, kSlots = Pieces::kSlots;
  static_assert(kSlots >= 4 && (kSlots & (kSlots - 1)) == 0);

  // The piece that is asked for next.
  struct Cursor {
    int group, place, steps, step;
  };
  template <class Last>
  SVD_HD void ask(int slot, int groups, Last last, Cursor* next) const {
    if (next->group >= groups) return pieces_.ask_nothing();
    pieces_.ask(slot, next->place + next->step, next->steps);
    next->step += kSteps;
    if (next->step < next->steps) return;
    next->place += kSweeps * next->steps;
    next->step = 0;
    if (++next->group < groups) next->steps = RotationGroup::steps(last(next->group));
  }

  const Pieces pieces_;
};

SVD_KERNEL_END

#endif
