// Singular values of an upper bidiagonal matrix B by implicitly shifted QR, with the rotations that make the vectors.
//
//   in:   d_i = b_ii (i < k), e_i = b_{i,i+1} (i < k - 1), real; `bound`: a superdiagonal that is no larger is zero
//   out:  B = U diag(d) V^T, d_i of any sign and in no order; U and V are the products of the rotations
//
// A sweep over the rows low .. high, between which no e_i is zero, with the shift mu:
//
//   (y, z) = (d_low^2 - mu, d_low e_low)
//   i = low .. high - 1:   columns i, i + 1 by the rotation that takes (y, z) to (r, 0);   e_{i-1} = r
//                          (y, z) = (b_ii, b_{i+1,i})
//                          rows i, i + 1 by the rotation that takes (y, z) to (r, 0);      d_i = r
//                          (y, z) = (b_{i,i+1}, b_{i,i+2})
//
// Four sweeps make a group (lanes/rotation_groups.h). Each may follow three rows behind the one before, and ends where that
// has left a zero superdiagonal. So it is the sweep that would come next, but all shifts of a group are known before it.
// They are eigenvalues of the last eight rows and columns of B^T B. Those of the last two pairs of rows are the start. Two
// steps of Laguerre's method on the polynomial of all eight improve them.
//
// In single precision no shift of a group is known before. Each sweep has Wilkinson's, of what the one before has left.
//
// Where some d_i is zero a shift would not pass it, and a sweep has none. It makes a superdiagonal zero, but for rounding
// errors. Shifts that are known before would undo that. So the sweeps of such a group are made one after the other, each
// with the shift that it finds, which is Wilkinson's or none. So are those of a group behind two that made no e_{high-1}
// zero.
//
// `high` only falls, so a group needs the columns up to that at its beginning.
//
// Threads: core/team.h, RotationGroup::kSweeps of them, or one, which makes the sweeps of a group in turn. The bits are the
// same.
// Source: Golub and Kahan, SIAM J. Numer. Anal. 2 (1965) 205-224; Golub and Van Loan, Matrix Computations, 3rd ed.,
// algorithms 8.6.1 and 8.6.2; several shifts: Braman, Byers and Mathias, SIAM J. Matrix Anal. Appl. 23 (2002) 929-947;
// Laguerre's method: Wilkinson, The Algebraic Eigenvalue Problem, chapter 7, section 26.
// Cost: two inverse square roots and two reciprocals a row and sweep. Random matrices take about two sweeps a value.
// Accuracy: the error of each value and the residual are of order k u |B|. Superdiagonals that count as zero
// add sqrt(k) bound at most. No small value is known relatively.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
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

template <class L, class Threads>
class GolubKahan {
 public:
  using T = typename L::Scalar;

  // d, e: k numbers each, which all threads have; e with a zero at its end.
  SVD_HD GolubKahan(const Threads& threads, L* d, L* e, L bound) : threads_(threads), d_(d), e_(e), bound_(bound) {}

  // Sweeps until `high` is zero, or until `to` has no room for another group.
  SVD_HD SweepState run(SweepState state, RotationWriter<L>* to) {
    int high = deflated(state.high), in_vain = state.in_vain;
    Block block = block_above(high);
    while (high > 0 && to->begin(high)) {
      const bool ahead = kShiftsAhead && in_vain < kMostInVain && block.zeros == 0;
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
      if (ahead && sweeps_of(block) < RotationGroup::kSweeps) left = {0, 0, 0};
      const int end = deflated(high);
      in_vain = end < high ? 0 : in_vain + 1;
      high = end;
      block = block_behind(left, high);
    }
    return {high, in_vain};
  }

 private:
  static_assert(Threads::count() == 1 || Threads::count() == RotationGroup::kSweeps);
  static constexpr int kShiftRows = 8, kShiftSteps = 2, kMostInVain = 2;
  static constexpr bool kShiftsAhead = knows_shifts_ahead<T>();
  // So far a sweep is behind the one before: that has written all that it reads.
  static constexpr int kRowsBehind = 3;

  // Rows low .. high between which no e_i is zero, and how many d_i of them are.
  struct Block {
    int low, high, zeros;
  };

  SVD_HD int is_zero(L x) const { return (abs(x) <= bound_).m ? 1 : 0; }
  SVD_HD int deflated(int high) const {
    while (high > 0 && is_zero(e_[high - 1])) --high;
    return high;
  }
  SVD_HD Block block_above(int high) const {
    Block block{high, high, is_zero(d_[high])};
    while (block.low > 0 && !is_zero(e_[block.low - 1])) block.zeros += is_zero(d_[--block.low]);
    return block;
  }
  // The block that ends at `high`, where a sweep has left this one, which has no zero at or behind its end.
  SVD_HD Block block_behind(const Block& left, int high) const {
    if (high == left.high && left.low < high) return {left.low, high, left.zeros + is_zero(d_[high])};
    if (high + 1 == left.high && left.low < high) return {left.low, high, left.zeros};
    return block_above(high);
  }

  // The sweeps of a group that a block takes. Small ones leave some to the blocks above them.
  static SVD_HD int sweeps_of(const Block& block) {
    const int most = block.high - block.low;
    return most < RotationGroup::kSweeps ? most : RotationGroup::kSweeps;
  }
  // The work of a sweep of a group: the block that it has, if any, and its number among the sweeps of that. `last`: the
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

  // The last rows of B^T B, up to kShiftRows, relative to the square of its largest number.
  struct LastRows {
    int first, last, low;
    L largest;
  };
  SVD_HD LastRows last_rows(const Block& block) const {
    const int first = block.high + 1 - kShiftRows;
    LastRows rows{first > block.low ? first : block.low, block.high, block.low, abs(d_[block.high])};
    for (int i = rows.first; i < rows.last; ++i) {
      rows.largest = at_least(rows.largest, at_least(abs(d_[i]), abs(e_[i])));
    }
    if (rows.first > rows.low) rows.largest = at_least(rows.largest, abs(e_[rows.first - 1]));
    return rows;
  }
  SVD_HD L diagonal(const LastRows& rows, int i, L scale) const {
    const L above = i > rows.low ? e_[i - 1] * scale : L(0), d = d_[i] * scale;
    return fma(d, d, above * above);
  }

  // An eigenvalue of the last pair of rows, or of the pair above it.
  SVD_HD L start_of_shift(const LastRows& rows, int number, L scale) const {
    const int pair = rows.last - number / 2 * 2;
    const int i = pair > rows.low ? pair : rows.low + 1;
    const L above = diagonal(rows, i - 1, scale), last = diagonal(rows, i, scale);
    const L off = d_[i - 1] * scale * (e_[i - 1] * scale), half = L(T(0.5)) * (above - last);
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
    L above = rows.first > rows.low ? e_[rows.first - 1] * scale : L(0), off(0);
    SVD_LOOP for (int i = rows.first; i <= rows.last; ++i) {
      const L d = d_[i] * scale, e = e_[i] * scale, diagonal = fma(d, d, above * above), b2 = off * off;
      SVD_UNROLL for (int j = 0; j < n; ++j) {
        const L a = diagonal - x[j], r = fma(a, p[j], -(b2 * q[j])), r1 = fma(a, p1[j], -fma(b2, q1[j], p[j]));
        const L r2 = fma(a, p2[j], -fma(b2, q2[j], p1[j] + p1[j]));
        q[j] = p[j], q1[j] = p1[j], q2[j] = p2[j];
        p[j] = r, p1[j] = r1, p2[j] = r2;
      }
      off = d * e;
      above = e;
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
    const L scale = reciprocal(rows.largest);
    SVD_UNROLL for (int j = 0; j < n; ++j) shifts[j] = start_of_shift(rows, first + j, scale);
    SVD_LOOP for (int step = 0; step < steps; ++step) improve(rows, scale, shifts);
    SVD_UNROLL for (int j = 0; j < n; ++j) shifts[j] = at_least(shifts[j], L(0)) * rows.largest * rows.largest;
  }
  SVD_HD L shift(const Task& task) const {
    L shift[1] = {L(0)};
    if (task.exists) find_shifts(task.block, task.number, kShiftSteps, shift);
    return shift[0];
  }

  // --- sweeps -------------------------------------------------------------------------------------------------------

  // One sweep of a group: start(), rotate() for the rows from low() on before end(), finish() at end() if that is not low().
  class Sweep {
   public:
    // Over the block's rows until `end`.
    SVD_HD Sweep(const GolubKahan& of, const Block& block, int end, L shift, int number, RotationWriter<L>* to)
        : of_(of),
          to_(to),
          number_(number),
          low_(block.low),
          end_(end),
          left_{block.low, end, 0},
          shifted_(block.zeros == 0),
          shift_(shift) {}

    SVD_HD int low() const { return low_; }
    SVD_HD int end() const { return end_; }
    SVD_HD void start() {
      x_ = of_.d_[low_];
      b_ = of_.e_[low_];
      if (of_.is_zero(b_)) end_ = low_;
      f_ = shifted_ ? fma(x_, x_, -shift_) : x_;
      g_ = shifted_ ? x_ * b_ : b_;
    }
    SVD_HD void rotate(int i) {
      // (f, g) has the length of (y, z) times that of the vector on the left before it. B is about one. So a vector on the
      // left is zero below 2^-32 (f64: 2^-450), and (y, z) at most below 2^-30 (2^-50).
      constexpr bool kSingle = sizeof(T) == 4;
      const L least_right(T(kSingle ? 0x1p-124 : 0x1p-1000)), least_left(T(kSingle ? 0x1p-64 : 0x1p-900));
      const L next = of_.d_[i + 1], beyond = of_.e_[i + 1];
      const Turn<L> right(f_, g_, least_right);
      if (i > low_) {
        const L superdiagonal = right.r * before_;
        of_.e_[i - 1] = superdiagonal;
        if (of_.is_zero(superdiagonal)) left_ = {i, end_, 0};
      }
      const L along = fma(right.g, b_, right.f * x_) * before_, off = fma(right.f, b_, -(right.g * x_)) * before_;
      const L off_diagonal = off * right.inverse, diagonal = right.f * next * right.inverse;
      const Turn<L> left(along * right.inverse, right.g * next * right.inverse, least_left);
      to_->rotation(number_, i, left.plane(), right.plane());
      of_.d_[i] = left.r;
      left_.zeros += of_.is_zero(left.r);
      f_ = fma(left.g, diagonal, left.f * off_diagonal);
      x_ = fma(left.f, diagonal, -(left.g * off_diagonal));
      g_ = left.g * beyond;
      b_ = left.f * beyond;
      before_ = left.inverse;
      if (of_.is_zero(beyond)) end_ = i + 1;
    }
    SVD_HD void finish() const {
      of_.e_[end_ - 1] = f_ * before_;
      of_.d_[end_] = x_ * before_;
    }
    // The block that it leaves above its end, which is not in `zeros`.
    SVD_HD Block left() const { return {left_.low, end_, left_.zeros}; }
    SVD_HD void fill() const { to_->no_rotations(number_, low_, end_); }

   private:
    const GolubKahan& of_;
    RotationWriter<L>* const to_;
    const int number_, low_;
    int end_;
    Block left_;
    const bool shifted_;
    const L shift_;
    // (x, b), the next diagonal and superdiagonal element, and (y, z) are `before` times these numbers. So the next
    // rotation does not wait for the length of the last one.
    L x_{0}, b_{0}, f_{0}, g_{0}, before_{1};
  };

  SVD_HD Block swept(Sweep* sweep) const {
    sweep->start();
    int i = sweep->low();
    SVD_LOOP for (; i < sweep->end(); ++i) sweep->rotate(i);
    if (i > sweep->low()) sweep->finish();
    sweep->fill();
    return sweep->left();
  }

  // A group by one thread, with the shifts that are known before. Returns what the last sweep has left.
  SVD_HD Block sweep_in_turn(const Block& last, RotationWriter<L>* to) {
    Task tasks[RotationGroup::kSweeps];
    L shifts[RotationGroup::kSweeps];
    const bool alone = sweeps_of(last) == RotationGroup::kSweeps;
    if (alone) find_shifts(last, 0, kShiftSteps, shifts);
    SVD_LOOP for (int number = 0; number < RotationGroup::kSweeps; ++number) {
      tasks[number] = task_of(number, last);
      if (!alone) shifts[number] = shift(tasks[number]);
    }
    Block left = last;
    SVD_LOOP for (int number = 0; number < RotationGroup::kSweeps; ++number) {
      Sweep sweep(*this, tasks[number].block, tasks[number].end(), shifts[number], number, to);
      left = swept(&sweep);
    }
    return left;
  }
  // A group by one thread, each sweep with the shift that it finds.
  SVD_HD Block sweep_by_turn(Block block, RotationWriter<L>* to) {
    Block left = block;
    SVD_LOOP for (int number = 0; number < RotationGroup::kSweeps; ++number) {
      if (number > 0) block = block_behind(left, deflated(block.high));
      L mu[1] = {L(0)};
      if (block.high > 0 && block.zeros == 0) find_shifts(block, 0, 0, mu);
      Sweep sweep(*this, block, block.high, mu[0], number, to);
      left = swept(&sweep);
    }
    return left;
  }

  // A group by as many threads as it has sweeps.
  SVD_HD Block sweep_at_once(const Block& last, RotationWriter<L>* to) {
    constexpr int kLast = RotationGroup::kSweeps - 1;
    const int number = threads_.index();
    const Task task = task_of(number, last);
    Sweep sweep(*this, task.block, task.end(), shift(task), number, to);
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
  L* const d_;
  L* const e_;
  const L bound_;
};

SVD_KERNEL_END

#endif
