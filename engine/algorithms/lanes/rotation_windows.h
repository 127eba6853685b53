// Rotations of many columns, gathered into products: x := x W for 64 neighbouring columns at a time.
//
// A run is up to kGroups groups of lanes/rotation_groups.h, one behind the other: 32 sweeps over the columns 0 .. last.
// Window b has of sweep j the rotations of columns i and i + 1,
//
//   32 b - 1 - j <= i <= 32 b + 30 - j,      which touch the columns 32 (b - 1) .. 32 (b + 1) - 1 alone
//
// A rotation comes behind that of columns i - 1 and i of its sweep, and that of i + 1 and i + 2 of the sweep before. Both
// are in window b or in b - 1. So windows are applied in ascending order, and W_b is orthogonal, 64 x 64:
//
//   b = 0, 1 .. :  (X_{b-1}, X_b) := (X_{b-1}, X_b) W_b,   X_b the columns 32 b .. 32 b + 31
//
// Columns before the first and behind `last` stay as they are. Groups whose columns are all in the first 64 need no order
// of windows. A run of such has window 1 alone, and as many groups as make about twice the work of another window.
//
// Cost: 64 x 4 operations for each rotation to make W. A row takes 64 x 32 for each window and run, which are as many as its
// rotations have, but they are a matrix product.
// Accuracy: W is orthogonal to order u times the 32 rotations and more that a row of it meets (lanes/rotation_groups.h).
// Source: Van Zee, van de Geijn and Quintana-Orti, ACM Trans. Math. Softw. 40 (2014) 18, section 4; windows that are
// multiplied: Lang, Parallel Computing 25 (1999) 845-860.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_WINDOWS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_WINDOWS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_WINDOWS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_ROTATION_WINDOWS_H_
#endif

#include "engine/algorithms/lanes/rotation_groups.h"

SVD_KERNEL_BEGIN

struct RotationWindow {
  static constexpr int kColumns = 64, kHalf = kColumns / 2, kGroups = kHalf / RotationGroup::kSweeps;
};

// Where the groups of a matrix go on: the next group, and the place of its first rotation.
struct RotationCursor {
  int32_t group, place;
};

// Groups that are applied together, from `at` on.
struct RotationRun {
  RotationCursor at;
  int32_t groups;
  int32_t last;  // the last column of any

  // last_of(group): its last column. `groups`: those that there are, more than at.group.
  template <class Last>
  SVD_HD RotationRun(const RotationCursor& begin, int all, Last last_of)
      : at(begin), groups(1), last(last_of(begin.group)) {
    int steps = RotationGroup::steps(last);
    while (at.group + groups < all) {
      const int next = last_of(at.group + groups);
      if (is_narrow() ? steps >= kNarrowSteps : groups == RotationWindow::kGroups || next < RotationWindow::kColumns) {
        break;
      }
      steps += RotationGroup::steps(next);
      ++groups;
    }
  }
  static constexpr int kNarrowSteps = 576;  // of groups in the first 64 columns, after which their run ends

  SVD_HD bool is_narrow() const { return last < RotationWindow::kColumns; }
  SVD_HD int first_window() const { return is_narrow() ? 1 : 0; }
  SVD_HD int windows() const {
    constexpr int kHalf = RotationWindow::kHalf;
    return is_narrow() ? 1 : (last + kHalf - 1) / kHalf + 1;
  }
  template <class Last>
  SVD_HD RotationCursor end(Last last_of) const {
    int place = at.place;
    for (int group = at.group; group < at.group + groups; ++group) place += RotationGroup::rotations(last_of(group));
    return {at.group + groups, place};
  }
};

// Rotates one row of the 64 columns of a window by the rotations of a run. Pieces: as RowRotations takes them, with places
// that count from the run's first rotation.
template <class E, class Pieces>
class RotatedWindow {
 public:
  explicit SVD_HD RotatedWindow(const Pieces& pieces) : pieces_(pieces) {}

  // last(group): the last column of a group of the run, counted from zero. x(i): a reference to the element of the window's
  // column i, 0 <= i < 64.
  template <class Last, class Row>
  SVD_HD void rotate(const RotationRun& run, int window, Last last, Row x) {
    if (run.is_narrow()) return RowRotations<E, Pieces>(pieces_).rotate(run.groups, last, x);
    const auto column = [&](int i) SVD_LAMBDA -> E& { return x(i - kHalf * (window - 1)); };
    Cursor next(window, last(0));
    int slot = 0;  // of the piece that is applied next
    for (int p = 0; p < kSlots - 1; ++p) ask(p, run, last, &next);
    SVD_LOOP for (int group = 0; group < run.groups; ++group) {
      // Sweep j has the steps first + j .. first + j + kHalf - 1 of its group.
      const int first = kHalf * window - kSweeps * group, end = first + kHalf - 1;
      const int steps = RotationGroup::steps(last(group));
      RotationPiece<L> piece;
      const auto take = [&](int step) SVD_LAMBDA {
        ask((slot + kSlots - 1) % kSlots, run, last, &next);
        pieces_.take(slot, &piece);
        slot = (slot + 1) % kSlots;
        if (step < 0 || step >= steps) piece = RotationPiece<L>{};
      };
      RotationChain<E> chain;
      chain.clear();
      chain.carried[0] = column(first - 1);
      chain.done[0] = column(first - 2);
      chain.carried[1] = column(first - 3);
      chain.done[1] = column(first - 4);
      take(first);
      keep(piece, [](int j, int p) SVD_LAMBDA { return p >= j; });
      chain.apply(piece, first, first - kSweeps, end, column);
      SVD_LOOP for (int step = first + kSteps; step <= end; step += kSteps) {
        take(step);
        chain.template apply<true>(piece, step, first - kSweeps, end, column);
      }
      take(end + 1);
      keep(piece, [](int j, int p) SVD_LAMBDA { return p < j; });
      chain.apply(piece, end + 1, first - kSweeps, end, column);
      column(end - 2) = chain.carried[3];
      column(end - 1) = chain.done[2];
      column(end) = chain.carried[2];
    }
  }

 private:
  using L = typename E::Lane;
  static constexpr int kSweeps = RotationGroup::kSweeps, kSteps = RotationGroup::kPieceSteps, kSlots = Pieces::kSlots;
  static constexpr int kHalf = RotationWindow::kHalf, kPieces = kHalf / kSteps + 1;  // of a group
  static_assert(kSteps == 4 && kSweeps == 4);

  // The piece that is asked for next.
  struct Cursor {
    SVD_HD Cursor(int window, int last) : step(kHalf * window), steps(RotationGroup::steps(last)) {}
    int step, steps, group = 0, part = 0, place = 0;
  };

  // The rotations of a piece that the window has. The others become identities.
  template <class IsOwn>
  SVD_HD static void keep(RotationPiece<L>& piece, IsOwn is_own) {
    SVD_UNROLL for (int j = 0; j < kSweeps; ++j) {
      SVD_UNROLL for (int p = 0; p < kSteps; ++p) {
        if (!is_own(j, p)) piece.of[j][p] = {L(0), L(0)};
      }
    }
  }
  template <class Last>
  SVD_HD void ask(int slot, const RotationRun& run, Last last, Cursor* next) const {
    if (next->group < run.groups && next->step >= 0 && next->step < next->steps) {
      pieces_.ask(slot, next->place + next->step, next->steps);
    } else {
      pieces_.ask_nothing();
    }
    next->step += kSteps;
    if (++next->part < kPieces) return;
    next->part = 0;
    next->step -= kSteps * kPieces + kSweeps;
    next->place += kSweeps * next->steps;
    if (++next->group < run.groups) next->steps = RotationGroup::steps(last(next->group));
  }

  const Pieces pieces_;
};

SVD_KERNEL_END

#endif
