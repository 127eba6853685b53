// JACOBI for k x k matrices of one team of threads of a warp each, k <= K <= 32: the algorithm of jacobi_vectors.h, bit for
// bit, spread over threads.
//
//   A = U S V^H;   X := A, Y := I;   X := X W, Y := Y W until every two columns of X are orthogonal; x_j = s_j u_j
//
// The places of the odd-even exchange are threads (pair_threads.h), whose registers have the columns of X and Y. A pair
// that is rotated exchanges its columns on the way. After a step one of them moves to the neighbours by shuffles.
// Without Y it is the algorithm of definite_jacobi.h: of a column's scale d^2 alone counts.
//
// Y may be in memory that the threads share, where they have no registers for it. Its columns stay in their places there,
// and a move only changes which of them a thread has.
//
// blocks/placed_jacobi.h does the same in a thread block for larger k. The loop, the order, the sums, the rotations and
// the steps of a column are shared, and the rest stays two. Sums of blocks have an order of their own, an odd k gets a
// column of zeros there, and columns may be in memory. A warp needs no mail, no barrier and no number of a column.
//
// Source, cost, accuracy, and what ends without convergence: jacobi_vectors.h.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_WARP_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_WARP_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_WARP_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_WARP_JACOBI_H_
#endif

#include <type_traits>
#include <variant>

#include "engine/algorithms/blocks/pair_threads.h"
#include "engine/algorithms/lanes/definite_jacobi.h"
#include "engine/algorithms/lanes/jacobi_vectors.h"

SVD_KERNEL_BEGIN

// A column in a place: of X and, where it is wanted, of Y. Rows beyond the matrix are zero.
template <class E, int kRows, bool kHasY>
struct WarpColumn {
  E x[kRows], y[kHasY ? kRows : 1];
  ColumnScale<typename E::Lane> scale;
};

// Partial sums of a thread: those of core/reduce.h for sums of K terms.
constexpr SVD_HD int warp_partials(int places, int split) { return places <= 8 ? 1 : 8 / split; }

// Threads of a team.
constexpr SVD_HD int warp_team(int places, int split) {
  int threads = 2;
  while (threads < places / 2 * split) threads *= 2;
  return threads;
}

// K: places; kSplit: threads for each pair of places. YMemory: void, or class with E load(i) and store(i, E), i < K K, of
// memory that the team shares. A team has a power of two of threads. Those beyond the pairs have columns that nobody
// reads.
template <class Threads, class E, int K, int kSplit, bool kHasY = true, class YMemory = void>
class WarpJacobi : public PairThreads<Threads, E, K / kSplit, kSplit, warp_partials(K, kSplit)> {
 public:
  static constexpr int kThreads = warp_team(K, kSplit), kRows = K / kSplit, kPartials = warp_partials(K, kSplit);
  static_assert(kThreads <= 32 && 8 % kSplit == 0 && K % kSplit == 0 && (K > 8 || kSplit == 1));
  using T = typename E::Scalar;
  using L = typename E::Lane;
  using Mask = typename L::Mask;
  static constexpr bool kYInMemory = !std::is_void_v<YMemory>;
  using Column = WarpColumn<E, kRows, kHasY && !kYInMemory>;
  using Memory = std::conditional_t<kYInMemory, YMemory, std::monostate>;
  using Base = PairThreads<Threads, E, kRows, kSplit, kPartials>;
  // Four columns of c128 leave a thread no register on a GPU. With the roots in range 32x32 had 0.81 of the rate that it
  // had before, with the general ones (device_vectors_bench, H100).
  using Roots = std::conditional_t<(kRows * static_cast<int>(sizeof(E)) < 256), InRange, InGeneral>;
  using Base::exchanged;
  using Base::threads;

  SVD_HD WarpJacobi(const Threads& of, int size, T tolerance, const Memory& y = {})
      : Base(of),
        k(size),
        floor_(0),
        tol_square_(L(tolerance) * L(tolerance)),
        pair_(threads().index() / kSplit),
        part_(threads().index() % kSplit),
        y_(y) {}

  SVD_HD int pair() const { return pair_; }
  SVD_HD int part() const { return part_; }

  // load(x, place): this thread's rows of column `place` of A, which stands for 2^given[place] times it (null: zero).
  // results.value(r, s) and results.columns(x, y, r, finite) get what has number r in descending order; of a matrix that
  // is not finite NaN is to be written. Returns the status, to every thread.
  template <class Load, class Results>
  SVD_HD MatrixStatus run(const Load& load, const T* given, int max_sweeps, const Results& results) {
    const L largest(FloatTraits<T>::kLargest);
    const int place = 2 * pair();
    bool finite = begin(p, place, load, given);
    finite = begin(q, place + 1, load, given) && finite;
    finite = !threads().any(!finite);
    scale_once(p, finite);
    scale_once(q, finite);
    if constexpr (kHasFloor) find_floor();
    const bool unfinished = sweeps(max_sweeps);
    scale_columns();
    const L s_p = normalize(view_of(p)), s_q = normalize(view_of(q));
    const bool out_of_range =
        threads().any((place < k && !any_of(s_p <= largest)) || (place + 1 < k && !any_of(s_q <= largest)));
    const int r_p = rank(s_p, place, s_p, s_q), r_q = rank(s_q, place + 1, s_p, s_q);
    store(p, place, s_p, r_p, finite, results);
    store(q, place + 1, s_q, r_q, finite, results);
    return status_of(finite, !out_of_range, unfinished);
  }

  // The sweeps of p and q, which are of scaled columns. Returns whether they have not converged.
  SVD_HD bool sweeps(int max_sweeps) {
    return sweep_until_orthogonal(k > 1, max_sweeps, [&](int sweep, bool) SVD_LAMBDA {
      begin_sweep(sweep);
      return threads().any(odd_even_sweep(*this, k, kHasFloor ? first_step(k, sweep) : 0));
    });
  }

  // x of that pair's thread with the same part.
  SVD_HD T from(T x, int pair_number) const { return threads().from_lane(x, pair_number * kSplit + part()); }
  SVD_HD E from(E x, int pair_number) const {
    x.re.v = from(x.re.v, pair_number);
    if constexpr (E::kComplex) x.im.v = from(x.im.v, pair_number);
    return x;
  }
  SVD_HD L square_of(const E (&x)[kRows]) const {
    return Base::square_of([&](int i) SVD_LAMBDA { return x[i]; });
  }
  SVD_HD E product_of(const E (&x)[kRows], const E (&y)[kRows]) const {
    return Base::product_of([&](int i) SVD_LAMBDA { return x[i]; }, [&](int i) SVD_LAMBDA { return y[i]; });
  }

  // The steps of odd_even_sweep().
  SVD_HD bool rotate_even() { return rotate(2 * pair() + 1 < k); }
  SVD_HD bool rotate_odd() { return rotate(2 * pair() + 2 < k); }
  SVD_HD void to_odd() {
    const int next = pair() + 1 < K / 2 ? pair() + 1 : 0;
    move(p, q, next);
    is_odd_ = true;
  }
  SVD_HD void to_even() {
    const int previous = pair() > 0 ? pair() - 1 : K / 2 - 1;
    move(q, p, previous);
    is_odd_ = false;
  }

  Column p, q;
  const int k;

 private:
  static constexpr bool kHasFloor = K > kLargestWithoutFloor;

  // For the steps of scaled_column.h.
  struct View {
    using Element = E;
    static constexpr bool kHasV = kHasY, kKeepsX = true, kHasBeyond = false;
    const WarpJacobi* jacobi;
    Column* column;
    bool is_q;
    SVD_HD ColumnScale<L>& scale() const { return column->scale; }
    template <class F>
    SVD_HD void each_x(F f) const {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) f(column->x[i]);
    }
    template <class F>
    SVD_HD void each_v(F f) const {
      if constexpr (kYInMemory) {
        if (!jacobi->has_columns()) return;
        SVD_UNROLL for (int i = 0; i < kRows; ++i) {
          E y = jacobi->y_.load(jacobi->y_at(is_q, i));
          f(y);
          jacobi->y_.store(jacobi->y_at(is_q, i), y);
        }
      } else {
        SVD_UNROLL for (int i = 0; i < kRows; ++i) f(column->y[i]);
      }
    }
    SVD_HD L square_of_x() const { return jacobi->square_of(column->x); }
    SVD_HD L square_of_v() const {
      if constexpr (kYInMemory) {
        return jacobi->Base::square_of([&](int i) SVD_LAMBDA {
          return jacobi->has_columns() ? jacobi->y_.load(jacobi->y_at(is_q, i)) : zero_element<E>();
        });
      } else {
        return jacobi->square_of(column->y);
      }
    }
    SVD_HD L largest_of_x() const { return jacobi->largest_of(column->x); }
  };
  SVD_HD View view_of(Column& column) { return {this, &column, &column == &q}; }

  SVD_HD bool has_columns() const { return 2 * kThreads == K * kSplit || pair_ < K / 2; }
  // Where row i of this thread's columns of Y is in the memory: even places, then odd ones, so that neighbouring threads
  // are neighbours there. In an odd step the places of a pair are one on.
  SVD_HD int y_at(bool is_q, int i) const {
    const int next = pair_ + 1 < K / 2 ? pair_ + 1 : 0;
    return ((2 * i + (is_q != is_odd_)) * (K / 2) + (is_q && is_odd_ ? next : pair_)) * kSplit + part_;
  }
  SVD_HD void turn_in_memory(const E& a, const E& b) const {
    constexpr int kTogether = kRows % 4 == 0 ? 4 : 2;  // rows that are read before the first is written
    static_assert(kRows % kTogether == 0);
    SVD_UNROLL for (int first = 0; first < kRows; first += kTogether) {
      E of_p[kTogether], of_q[kTogether];
      SVD_UNROLL for (int i = 0; i < kTogether; ++i) {
        of_p[i] = y_.load(y_at(false, first + i));
        of_q[i] = y_.load(y_at(true, first + i));
      }
      SVD_UNROLL for (int i = 0; i < kTogether; ++i) {
        update_and_exchange(of_p[i], of_q[i], a, b, L::mask(true));
        y_.store(y_at(false, first + i), of_p[i]);
        y_.store(y_at(true, first + i), of_q[i]);
      }
    }
  }

  SVD_HD L largest_of(const E (&x)[kRows]) const {
    L largest(0);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) largest = raise_to_magnitude(largest, x[i]);
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) largest = at_least(exchanged(largest, d), largest);
    return largest;
  }

  // Returns whether this thread's part of the column is finite.
  template <class Load>
  SVD_HD bool begin(Column& column, int place, const Load& load, const T* given) {
    load(column.x, place);
    L largest(0);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      const int row = i * kSplit + part();
      largest = raise_to_any_magnitude(largest, column.x[i]);
      E y = zero_element<E>();
      if (row < k && place < k && row == place) y.re = L(1);
      if constexpr (kYInMemory) {
        if (has_columns()) y_.store(y_at(place % 2 != 0, i), y);
      } else {
        column.y[i] = y;
      }
    }
    column.scale.square = L(FloatTraits<T>::kScaleSquare);
    column.scale.exponent = L(given == nullptr || place >= k ? T(0) : given[place]);
    return any_of(largest <= L(FloatTraits<T>::kLargest));
  }

  // As scale_matrix<true>: what is not finite goes on as zero.
  SVD_HD void scale_once(Column& column, bool finite) const {
    if (!finite) {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) column.x[i] = zero_element<E>();
    }
    const L e = binary_exponent(largest_of(column.x));
    const auto scale = make_pow2(-e);
    column.scale.exponent = e + column.scale.exponent;
    SVD_UNROLL for (int i = 0; i < kRows; ++i) column.x[i] = scaled(column.x[i], scale);
  }

  SVD_HD void clear_dependent() {
    const L square_p = square_of(p.x), square_q = square_of(q.x);
    L highest = larger(exponent_of(square_p, p.scale), exponent_of(square_q, q.scale));
    SVD_UNROLL for (int d = kSplit; d < kThreads; d *= 2) highest = larger(exchanged(highest, d), highest);
    const auto dependent_p = is_dependent(k, square_p, p.scale, highest);
    const auto dependent_q = is_dependent(k, square_q, q.scale, highest);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      p.x[i] = select_element(dependent_p, zero_element<E>(), p.x[i]);
      q.x[i] = select_element(dependent_q, zero_element<E>(), q.x[i]);
    }
  }

  // As floor_of().
  SVD_HD void find_floor() {
    L column = smaller(exponent_unless_zero(largest_of(p.x), p.scale.exponent),
                       exponent_unless_zero(largest_of(q.x), q.scale.exponent));
    L row = exponent_unless_zero(L(0), L(0));
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      L largest = raise_to_magnitude(raise_to_magnitude(L(0), p.x[i]), q.x[i]);
      SVD_UNROLL for (int d = kSplit; d < kThreads; d *= 2) largest = larger(exchanged(largest, d), largest);
      row = smaller(exponent_unless_zero(largest, binary_exponent(largest)), row);
    }
    SVD_UNROLL for (int d = kSplit; d < kThreads; d *= 2) column = smaller(exchanged(column, d), column);
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) row = smaller(exchanged(row, d), row);
    floor_ = floor_above(column, row);
  }

  SVD_HD void scale_columns() {
    scale_for_sweep(view_of(p), kHasFloor, floor_);
    scale_for_sweep(view_of(q), kHasFloor, floor_);
  }
  static SVD_HD void fold(Column& column) {
    const L by = fold_scale(column.scale);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) column.x[i] = scaled(column.x[i], by);
  }
  SVD_HD void begin_sweep(int sweep) {
    if constexpr (kHasY) {
      if (sweep > 0) clear_dependent();
      scale_columns();
    } else if (sweep > 0) {
      fold(p);
      fold(q);
    }
  }

  // Whether the pair was not orthogonal. Threads without a pair take part in its sums alone.
  SVD_HD bool rotate(bool exists) {
    const Mask active = L::mask(true);
    if (kSplit == 1 && !exists) return false;
    const L alpha = square_of(p.x), beta = square_of(q.x);
    const E g = product_of(p.x, q.x);
    const auto turn = [&](auto& of_p, auto& of_q, const E& a, const E& b) SVD_LAMBDA {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) update_and_exchange(of_p[i], of_q[i], a, b, active);
    };
    if constexpr (kHasY) {
      const auto u = pair_update<Roots>(alpha, beta, g, p.scale, q.scale, tol_square_, active);
      if (!exists) return false;
      turn(p.x, q.x, u.a, u.b);
      if constexpr (kYInMemory) {
        turn_in_memory(u.v_a, u.v_b);
      } else {
        turn(p.y, q.y, u.v_a, u.v_b);
      }
      shrink_and_exchange(p.scale, q.scale, u.shrink, active);
      return any_of(u.wanted);
    } else {
      const auto u = definite_update(alpha, beta, g, p.scale.square, q.scale.square, tol_square_, active);
      if (!exists) return false;
      turn(p.x, q.x, u.a, u.b);
      const L square_p = p.scale.square * u.shrink;
      p.scale.square = q.scale.square * u.shrink;
      q.scale.square = square_p;
      return any_of(u.wanted);
    }
  }

  // `leaving` goes to a neighbour, `staying` takes its place, and what comes from the other neighbour takes that one's.
  SVD_HD void move(Column& leaving, Column& staying, int source) const {
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      const E x = from(leaving.x[i], source);
      leaving.x[i] = staying.x[i];
      staying.x[i] = x;
      if constexpr (kHasY && !kYInMemory) {
        const E y = from(leaving.y[i], source);
        leaving.y[i] = staying.y[i];
        staying.y[i] = y;
      }
    }
    L exponent = staying.scale.exponent;
    if constexpr (kHasY) exponent = L(from(leaving.scale.exponent.v, source));
    const L square(from(leaving.scale.square.v, source));
    leaving.scale = staying.scale;
    staying.scale = {exponent, square};
    if constexpr (kYInMemory) threads().sync();
  }

  // The number of a place in descending order; equal values in the order of their places.
  SVD_HD int rank(L s, int place, L s_p, L s_q) const {
    int before = 0;
    for (int c = 0; 2 * c < k; ++c) {
      const T first = from(s_p.v, c), second = from(s_q.v, c);
      if (2 * c < place ? first >= s.v : 2 * c > place && first > s.v) ++before;
      if (2 * c + 1 < k && (2 * c + 1 < place ? second >= s.v : 2 * c + 1 > place && second > s.v)) ++before;
    }
    return before;
  }

  template <class Results>
  SVD_HD void store(Column& column, int place, L s, int r, bool finite, const Results& results) const {
    if (place >= k) return;
    if (part() == 0) results.value(r, finite ? s.v : FloatTraits<T>::nan());
    if constexpr (kYInMemory) {
      E y[kRows];
      SVD_UNROLL for (int i = 0; i < kRows; ++i) y[i] = y_.load(y_at(&column == &q, i));
      results.columns(column.x, y, r, finite);
    } else {
      results.columns(column.x, column.y, r, finite);
    }
  }

  L floor_;  // where kHasFloor
  const L tol_square_;
  const int pair_, part_;
  const Memory y_;
  bool is_odd_ = false;  // the step
};

SVD_KERNEL_END

#endif
