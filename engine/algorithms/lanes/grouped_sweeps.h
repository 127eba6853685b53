// Implicitly shifted QR on a matrix with few diagonals, by groups of sweeps, with the rotations that make its vectors.
//
// Four sweeps make a group (lanes/rotation_groups.h). Each may follow three rows behind the one before, and ends where that
// has left a zero beside the diagonal. So it is the sweep that would come next, but all shifts of a group are known before
// it. They are eigenvalues of the last eight rows and columns. Those of the last two pairs of rows are the start. Two steps
// of Laguerre's method on the polynomial of all eight improve them. Two groups or more may be made at once like one. Then
// shifts come from twice as many rows as there are sweeps, by three steps.
//
// In single precision no shift of one group is known before. Each sweep has Wilkinson's, of what the one before has left.
//
// Some rows let no shift pass. A sweep over such rows has none. Shifts that are known before would undo what it does. So
// the sweeps of such a group are made one after the other, each with the shift that it finds, which is Wilkinson's or
// none. So are those of a group behind two that split nothing off.
//
// `high` only falls, so a group needs the columns up to that at its beginning.
//
// Threads: core/team.h, as many as sweeps are made at once, or one, which makes them in turn. The bits are the same.
//
// Form: of T, or of B, for which T = B^T B. All threads have its numbers. A copyable class with
//   Lane, Writer                       real numbers, and a RotationWriter of them
//   is_split(i)                        whether nothing couples rows i and i + 1
//   stops_shifts(i)                    1: row i lets no shift pass; else 0
//   largest(rows)                      by which the next two divide
//   diagonal(rows, i, scale)           t_ii, as if nothing coupled the block to the rows above it
//   off_diagonal(i, scale)             t_{i,i+1}; anything where i is the last row
//   shift(x, largest)                  the shift from the eigenvalue x of the scaled rows
//   Sweep(form, block, end, shift, number, to)   one sweep of a group over the block's rows until `end`, with
//     start(), rotate(i) for i = low() .. end() - 1, where end() may fall, finish() at end() if that is not low(),
//     fill(): identities in the places of its group without a rotation; left(): the block that it leaves above its end,
//     which is not in `zeros`
// Source: several shifts: Braman, Byers and Mathias, SIAM J. Matrix Anal. Appl. 23 (2002) 929-947; Laguerre's method:
// Wilkinson, The Algebraic Eigenvalue Problem, chapter 7, section 26.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_GROUPED_SWEEPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_GROUPED_SWEEPS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_GROUPED_SWEEPS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_GROUPED_SWEEPS_H_
#endif

#include "engine/algorithms/lanes/rotation_groups.h"

SVD_KERNEL_BEGIN

// The rotation that takes (f, g) to (r, 0), where (f, g) may have any length: c = f' inverse >= 0, s = g' inverse. It is the
// identity where |(f, g)|^2 < least.
template <class L>
struct Turn {
  L f, g, inverse, r;

  SVD_HD Turn(L f_given, L g_given, L least) {
    const L square = fma(f_given, f_given, g_given * g_given), one(1);
    const auto keep = square >= least;
    inverse = inverse_sqrt_in_range(select(keep, square, one));
    f = select(keep, abs(f_given), one);
    g = select(keep, g_given * copysign(one, f_given), L(0));
    // The root is rounded correctly. Errors of one sign would let all values of a cluster grow together.
    const L near = square * inverse, half(typename L::Scalar(0.5));
    r = select(keep, copysign(fma(fma(-near, near, square), half * inverse, near), f_given), f_given);
  }
  SVD_HD PlaneRotation<L> plane() const {
    const L s = g * inverse;
    return {s, s * near_reciprocal(fma(f, inverse, L(1)))};
  }
};

// Where sweeps go on: the rows above `high` are done, and so many groups before have made no e_{high-1} zero.
struct SweepState {
  int32_t high, in_vain;
};

// Whether the shifts of a group are known before it. In single precision one thread a matrix is about as fast as four,
// and a whole group's shifts cost it more than they save (decisions/0019).
template <class T>
constexpr bool knows_shifts_ahead() {
  return sizeof(T) == 8;
}

// Rows low .. high that are coupled, and how many of them let no shift pass.
struct SweptBlock {
  int low, high, zeros;
};

// The rows of a block that its shifts come from, and where it begins.
struct LastRows {
  int first, last, low;
};

// kAtOnce: sweeps that are made at once where their shifts are known before, those of a group or of several.
template <class Form, class Threads, int kAtOnce = Threads::count() == 1 ? RotationGroup::kSweeps : Threads::count()>
class GroupedSweeps {
 public:
  using L = typename Form::Lane;
  using T = typename L::Scalar;
  using Writer = typename Form::Writer;

  SVD_HD GroupedSweeps(const Threads& threads, const Form& form) : threads_(threads), form_(form) {}

  // Sweeps until `high` is zero, or until `to` has no room for another group.
  SVD_HD SweepState run(SweepState state, Writer* to) {
    int high = deflated(state.high), in_vain = state.in_vain;
    Block block = block_above(high);
    while (high > 0) {
      const bool ahead = kShiftsAhead && in_vain < kMostInVain && block.zeros == 0;
      if (!to->begin(high, ahead ? kGroups : 1)) break;
      Block left{0, 0, 0};
      if constexpr (Threads::count() == 1) {
        left = ahead ? sweep_in_turn(block, to) : sweep_by_turn(block, to);
      } else if (ahead) {
        left = sweep_at_once(block, to);
      } else {
        threads_.sync();
        if (threads_.index() == 0) (void)sweep_by_turn(block, to);
        threads_.sync();
      }
      // Sweeps of several blocks: that of the last is not the uppermost.
      if (ahead && sweeps_of(block) < kAtOnce) left = {0, 0, 0};
      const int end = deflated(high);
      in_vain = end < high ? 0 : in_vain + 1;
      high = end;
      block = block_behind(left, high);
    }
    return {high, in_vain};
  }

 private:
  static_assert(Threads::count() == 1 || Threads::count() == kAtOnce);
  static constexpr int kGroups = kAtOnce / RotationGroup::kSweeps;
  static constexpr int kShiftRows = 2 * kAtOnce, kShiftSteps = kGroups == 1 ? 2 : 3, kMostInVain = 2;
  static constexpr bool kShiftsAhead = knows_shifts_ahead<T>() || kGroups > 1;
  // So far a sweep is behind the one before: that has written all that it reads.
  static constexpr int kRowsBehind = 3;

  using Block = SweptBlock;
  using Sweep = typename Form::Sweep;

  SVD_HD int deflated(int high) const {
    while (high > 0 && form_.is_split(high - 1)) --high;
    return high;
  }
  SVD_HD Block block_above(int high) const {
    Block block{high, high, form_.stops_shifts(high)};
    while (block.low > 0 && !form_.is_split(block.low - 1)) block.zeros += form_.stops_shifts(--block.low);
    return block;
  }
  // The block that ends at `high`, where a sweep has left this one, which has no zero at or behind its end.
  SVD_HD Block block_behind(const Block& left, int high) const {
    if (high == left.high && left.low < high) return {left.low, high, left.zeros + form_.stops_shifts(high)};
    if (high + 1 == left.high && left.low < high) return {left.low, high, left.zeros};
    return block_above(high);
  }

  // The sweeps made at once that a block takes. Small ones leave some to the blocks above them.
  static SVD_HD int sweeps_of(const Block& block) {
    const int most = block.high - block.low;
    return most < kAtOnce ? most : kAtOnce;
  }
  // The work of a sweep: the block that it has, if any, and its number among the sweeps of that. `last`: the
  // last block.
  struct Task {
    Block block;
    int number;
    bool exists;
    SVD_HD int end() const { return exists ? block.high : block.low; }
  };
  SVD_HD Task task_of(int number, const Block& last) const {
    Block block = last;
    while (number >= sweeps_of(block) && block.low > 0) {
      number -= sweeps_of(block);
      block = block_above(deflated(block.low));
    }
    return {block, number, number < sweeps_of(block)};
  }

  // --- shifts -------------------------------------------------------------------------------------------------------

  SVD_HD LastRows last_rows(const Block& block) const {
    const int first = block.high + 1 - kShiftRows;
    return {first > block.low ? first : block.low, block.high, block.low};
  }

  // An eigenvalue of the last pair of rows, or of the pair above it.
  SVD_HD L start_of_shift(const LastRows& rows, int number, L scale) const {
    const int pair = rows.last - number / 2 * 2;
    const int i = pair > rows.low ? pair : rows.low + 1;
    const L above = form_.diagonal(rows, i - 1, scale), last = form_.diagonal(rows, i, scale);
    const L off = form_.off_diagonal(i - 1, scale), half = L(T(0.5)) * (above - last);
    const L root = sqrt_in_range(at_least(fma(half, half, off * off), L(FloatTraits<T>::kNegligibleSquare)));
    const L change = off * off * reciprocal(half + copysign(root, half));
    return number % 2 == 0 ? last - change : above + change;
  }

  // One step of Laguerre's method from each x on p(x) = det(M - x I), M the last rows.
  template <int n>
  SVD_HD void improve(const LastRows& rows, L scale, L (&x)[n]) const {
    // p and its derivatives for the rows so far, and for one less.
    L p[n], p1[n], p2[n], q[n], q1[n], q2[n];
    SVD_UNROLL for (int j = 0; j < n; ++j) {
      p[j] = L(1);
      p1[j] = p2[j] = q[j] = q1[j] = q2[j] = L(0);
    }
    L off(0);
    SVD_LOOP for (int i = rows.first; i <= rows.last; ++i) {
      const L diagonal = form_.diagonal(rows, i, scale), b2 = off * off;
      SVD_UNROLL for (int j = 0; j < n; ++j) {
        const L a = diagonal - x[j], r = fma(a, p[j], -(b2 * q[j])), r1 = fma(a, p1[j], -fma(b2, q1[j], p[j]));
        const L r2 = fma(a, p2[j], -fma(b2, q2[j], p1[j] + p1[j]));
        q[j] = p[j], q1[j] = p1[j], q2[j] = p2[j];
        p[j] = r, p1[j] = r1, p2[j] = r2;
      }
      off = form_.off_diagonal(i, scale);
    }
    const L degree(static_cast<T>(rows.last - rows.first + 1)), least(FloatTraits<T>::kNegligibleSquare);
    SVD_UNROLL for (int j = 0; j < n; ++j) {
      const L inverse = reciprocal(p[j]), g = p1[j] * inverse, h = fma(g, g, -(p2[j] * inverse));
      const L square = (degree - L(1)) * fma(degree, h, -(g * g));
      const L step = degree * reciprocal(g + copysign(sqrt_in_range(at_least(square, least)), g));
      x[j] = (abs(p[j]) >= least).m && (abs(step) <= L(1)).m ? x[j] - step : x[j];
    }
  }

  // The shifts of the block's sweeps from `first` on, by so many steps; the first sweep's by none is Wilkinson's.
  template <int n>
  SVD_HD void find_shifts(const Block& block, int first, int steps, L (&shifts)[n]) const {
    const LastRows rows = last_rows(block);
    const L largest = form_.largest(rows), scale = reciprocal(largest);
    SVD_UNROLL for (int j = 0; j < n; ++j) shifts[j] = start_of_shift(rows, first + j, scale);
    SVD_LOOP for (int step = 0; step < steps; ++step) improve(rows, scale, shifts);
    SVD_UNROLL for (int j = 0; j < n; ++j) shifts[j] = form_.shift(shifts[j], largest);
  }
  SVD_HD L shift(const Task& task) const {
    L shift[1] = {L(0)};
    if (task.exists) find_shifts(task.block, task.number, kShiftSteps, shift);
    return shift[0];
  }

  // --- sweeps -------------------------------------------------------------------------------------------------------

  SVD_HD Block swept(Sweep* sweep) const {
    sweep->start();
    int i = sweep->low();
    SVD_LOOP for (; i < sweep->end(); ++i) sweep->rotate(i);
    if (i > sweep->low()) sweep->finish();
    sweep->fill();
    return sweep->left();
  }

  // Sweeps at once by one thread, with the shifts that are known before. Returns what the last sweep has left.
  SVD_HD Block sweep_in_turn(const Block& last, Writer* to) {
    Task tasks[kAtOnce];
    L shifts[kAtOnce];
    const bool alone = sweeps_of(last) == kAtOnce;
    if (alone) find_shifts(last, 0, kShiftSteps, shifts);
    SVD_LOOP for (int number = 0; number < kAtOnce; ++number) {
      tasks[number] = task_of(number, last);
      if (!alone) shifts[number] = shift(tasks[number]);
    }
    Block left = last;
    SVD_LOOP for (int number = 0; number < kAtOnce; ++number) {
      Sweep sweep(form_, tasks[number].block, tasks[number].end(), shifts[number], number, to);
      left = swept(&sweep);
    }
    return left;
  }
  // A group by one thread, each sweep with the shift that it finds.
  SVD_HD Block sweep_by_turn(Block block, Writer* to) {
    Block left = block;
    SVD_LOOP for (int number = 0; number < RotationGroup::kSweeps; ++number) {
      if (number > 0) block = block_behind(left, deflated(block.high));
      L mu[1] = {L(0)};
      if (block.high > 0 && block.zeros == 0) find_shifts(block, 0, 0, mu);
      Sweep sweep(form_, block, block.high, mu[0], number, to);
      left = swept(&sweep);
    }
    return left;
  }

  // By as many threads as there are sweeps.
  SVD_HD Block sweep_at_once(const Block& last, Writer* to) {
    constexpr int kLast = kAtOnce - 1;
    const int number = threads_.index();
    const Task task = task_of(number, last);
    Sweep sweep(form_, task.block, task.end(), shift(task), number, to);
    const int own_steps = sweep.end() - sweep.low() + 1 + kRowsBehind * task.number;
    int steps = 0;
    for (int thread = 0; thread <= kLast; ++thread) {
      const int other = threads_.from_lane(own_steps, thread);
      steps = other > steps ? other : steps;
    }
    threads_.sync();
    SVD_LOOP for (int step = 0, i = sweep.low() - kRowsBehind * task.number; step < steps; ++step, ++i) {
      if (i == sweep.low()) sweep.start();
      if (i >= sweep.low() && i < sweep.end()) {
        sweep.rotate(i);
      } else if (i > sweep.low() && i == sweep.end()) {
        sweep.finish();
      }
      threads_.sync();
    }
    sweep.fill();
    const Block left = sweep.left();
    return {threads_.from_lane(left.low, kLast), threads_.from_lane(left.high, kLast),
            threads_.from_lane(left.zeros, kLast)};
  }

  const Threads threads_;
  const Form form_;
};

SVD_KERNEL_END

#endif
