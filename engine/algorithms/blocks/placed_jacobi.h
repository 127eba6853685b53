// JACOBI for k x k matrices of one thread block each, k = 33 .. 128: the algorithm of jacobi_vectors.h, with its
// rotations, scales and odd-even exchange, spread over threads.
//
//   A = U S V^H;   X := A, Y := I;   X := X W, Y := Y W until every two columns of X are orthogonal; x_j = s_j u_j
//
// The places of the exchange are threads (pair_threads.h). An odd k gets one more column, of zeros, which is in no
// result. warp_jacobi.h does the same in a warp, and says what both share.
// Exchanged columns need not change registers. The second of a pair leaves after an even step, to the pair before; the
// first leaves after an odd step, to the pair behind. Each goes through a shuffle or, between warps, through the mail
// (with two mailboxes, used in turn, that is one barrier a step). Or a column stays where it is in memory that the
// block shares, and its number (`home`) moves. Without Y, s_j = |x_j| d_j.
//
// The code is that of one thread of a block (core/team.h), whole warps.
//
// Bits are a function of the matrix and of Shape. Cost and accuracy: as jacobi_vectors.h; without Y the errors of d add
// up, one unit a rotation at most. A matrix without convergence ends after max_sweeps, as NOT_CONVERGED.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PLACED_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PLACED_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PLACED_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PLACED_JACOBI_H_
#endif

#include "engine/algorithms/blocks/pair_threads.h"
#include "engine/algorithms/lanes/jacobi_vectors.h"

SVD_KERNEL_BEGIN

// Where the columns of X or Y are.
enum class ColumnStorage { kNone, kRegisters, kMemory };

// kRows: of a column in a thread. k <= kHeight. kLeft: the columns of X are results, without Y, too.
template <class Element_, int kRows_, int kSplit_, ColumnStorage kX_, ColumnStorage kY_,
          bool kLeft_ = kY_ != ColumnStorage::kNone>
struct PlacedShape {
  using Element = Element_;
  using T = typename Element::Scalar;
  static constexpr int kRows = kRows_, kSplit = kSplit_, kHeight = kRows * kSplit;
  static constexpr ColumnStorage kX = kX_, kY = kY_;
  static constexpr bool kLeft = kLeft_;
  static_assert(kX != ColumnStorage::kNone && 32 % kSplit == 0);
  static constexpr int kXRegisters = kX == ColumnStorage::kRegisters ? kRows : 0;
  static constexpr int kYRegisters = kY == ColumnStorage::kRegisters ? kRows : 0;
  static constexpr bool kHasHome = kX == ColumnStorage::kMemory || kY == ColumnStorage::kMemory;
  // Columns in memory follow each other at this distance in elements, so that all begin in the same bank, whatever
  // places they have. The pairs of a warp read different banks at once, because every other pair takes its rows in
  // another order (PlacedJacobi::ordered). x(c, i) is the same row in all pairs.
  static constexpr int kLeadingDimension = kHeight;
  static constexpr int kPairBytes = kSplit * static_cast<int>(sizeof(Element)), kBankBytes = 128;
  static constexpr int kRowOrders = kHasHome && kPairBytes < kBankBytes ? kBankBytes / kPairBytes : 1;
  static_assert(kRowOrders == 1 || (kRowOrders == 2 && kRows % 2 == 0 && kX == ColumnStorage::kRegisters));
  // Numbers of a column that move: its elements in registers, its scale, its home.
  static constexpr int kMail = (kXRegisters + kYRegisters) * Element::kComponents + 2 + kHasHome;

  static SVD_HD constexpr int threads(int k) { return ((k + 1) / 2 * kSplit + 31) / 32 * 32; }
  static SVD_HD constexpr int columns(int k) { return 2 * threads(k) / kSplit; }
  // Mailboxes, used in turn; one, and another barrier, where there is little room beside Y (163 KiB on sm_80).
  static constexpr int kBoxes = kXRegisters > 0 && kY == ColumnStorage::kMemory ? 1 : 2;
  static SVD_HD constexpr int mail_numbers(int k) { return kBoxes * (threads(k) / 32) * kMail * kSplit; }
  static SVD_HD constexpr int matrix_elements(int k) { return columns(k) * kLeadingDimension; }
};

// Memory that the threads of a block share.
template <class Shape>
struct PlacedMemory {
  typename Shape::T* mail;     // mail_numbers(k)
  typename Shape::T* values;   // columns(k); the floor, until there are values
  typename Shape::T* parts;    // threads(k) / 32
  typename Shape::Element* x;  // matrix_elements(k) where X is in memory
  typename Shape::Element* y;  // the same of Y
};

// A column in a place.
template <class Shape>
struct PlacedColumn {
  using E = typename Shape::Element;
  using T = typename E::Scalar;
  E x[Shape::kXRegisters > 0 ? Shape::kXRegisters : 1], y[Shape::kYRegisters > 0 ? Shape::kYRegisters : 1];
  ColumnScale<typename E::Lane> scale;
  T home;  // its number in memory, an integer
};

template <class Threads, class Shape>
class PlacedJacobi : public PairThreads<Threads, typename Shape::Element, Shape::kRows, Shape::kSplit, 2> {
 public:
  using E = typename Shape::Element;
  using T = typename E::Scalar;
  using L = typename E::Lane;
  using Column = PlacedColumn<Shape>;
  using Base = PairThreads<Threads, E, Shape::kRows, Shape::kSplit, 2>;
  using Base::exchanged;
  using Base::threads;

  SVD_HD PlacedJacobi(const Threads& of, const PlacedMemory<Shape>& memory, int k)
      : Base(of), memory_(memory), k_(k), box_(0) {}

  // source(i, j): element (i, j) of A, column j of which stands for 2^given[j] times it (null: zero). results.value(r,
  // s), results.x(i, r, u_ir, finite) and results.y get what has number r in descending order; of a matrix that is not
  // finite NaN is to be written. Returns the status, to every thread.
  template <class Source, class Results>
  SVD_HD MatrixStatus run(const Source& source, const T* given, T tolerance, int max_sweeps, const Results& results) {
    const L largest(FloatTraits<T>::kLargest);
    const int place = 2 * pair();
    load(p_, place, source, given);
    load(q_, place + 1, source, given);
    const bool bad = !any_of((magnitude_of(p_) <= largest) & (magnitude_of(q_) <= largest));
    const bool finite = !threads().any(bad);
    scale_once(p_, place, finite);
    scale_once(q_, place + 1, finite);
    find_floor(source);
    tol_square_ = L(tolerance) * L(tolerance);
    const bool unfinished = sweeps(max_sweeps);
    scale_columns();
    const L s_p = normalize(View{this, &p_}), s_q = normalize(View{this, &q_});
    const bool in_range = any_of((s_p <= largest) & (s_q <= largest));
    const bool out_of_range = threads().any(!in_range);
    if (part() == 0) {
      memory_.values[place] = is_added(p_) ? T(-1) : s_p.v;
      memory_.values[place + 1] = is_added(q_) ? T(-1) : s_q.v;
    }
    threads().sync();
    store(p_, place, s_p, finite, results);
    store(q_, place + 1, s_q, finite, results);
    threads().sync();  // the memory is written again
    return status_of(finite, !out_of_range, unfinished);
  }

  // The steps of odd_even_sweep().
  SVD_HD bool rotate_even() { return rotate(pair() < pairs()); }
  SVD_HD bool rotate_odd() { return rotate(pair() < pairs() - 1); }
  // From even to odd steps: the columns have changed places, so the second of a pair, in its first place now, leaves.
  SVD_HD void to_odd() {
    const int last = pairs() - 1, source = pair() < last ? pair() + 1 : pair() == last ? 0 : pair();
    T* const box = next_box();
    if (pair() % kPairsOfWarp == 0) post(q_, box);
    threads().sync();
    receive(q_, source, source / kPairsOfWarp == warp(), box);
  }
  // And back. In the last pair nothing has changed places. Its second column is that of place 0, which pair 0 gets, and
  // its first one is that of the last place.
  SVD_HD void to_even() {
    const int last = pairs() - 1, source = pair() > last ? pair() : pair() > 0 ? pair() - 1 : last;
    T* const box = next_box();
    if (pair() == last) {
      post(q_, box);
      q_ = p_;
    } else if (pair() < last && pair() % kPairsOfWarp == kPairsOfWarp - 1) {
      post(p_, box);
    }
    threads().sync();
    receive(p_, source, source / kPairsOfWarp == warp() && pair() != 0, box);
  }

 private:
  static constexpr int kRows = Shape::kRows, kSplit = Shape::kSplit, kPairsOfWarp = 32 / kSplit;
  static constexpr int kMailOfWarp = Shape::kMail * kSplit;
  // The exponent of a column that is there for an even number of them: no other column can have it.
  static constexpr T kAdded = -8 * FloatTraits<T>::kBias;
  static constexpr bool kHasY = Shape::kY != ColumnStorage::kNone;
  static constexpr bool kXMoves = Shape::kX == ColumnStorage::kRegisters;
  static constexpr bool kYMoves = Shape::kY == ColumnStorage::kRegisters;

  static SVD_HD bool is_added(const Column& c) { return c.scale.exponent.v == kAdded; }

  SVD_HD E& x(Column& c, int i) const {
    if constexpr (kXMoves) {
      return c.x[i];
    } else {
      return memory_.x[in_memory(c, i)];
    }
  }
  SVD_HD E& y(Column& c, int i) const {
    if constexpr (kYMoves) {
      return c.y[i];
    } else {
      return memory_.y[in_memory(c, i)];
    }
  }

  SVD_HD int in_memory(const Column& c, int i) const {
    return static_cast<int>(c.home) * Shape::kLeadingDimension + ordered(i) * kSplit + part();
  }
  // Every other pair takes two rows in turns the other way round: one of two numbers added to i costs two registers.
  SVD_HD int ordered(int i) const { return i + (i % 2 == 0 ? row_order() : -row_order()); }
  SVD_HD int row_order() const { return pair() % Shape::kRowOrders; }
  // Which row x(c, i) is, and y(c, i).
  SVD_HD int row_of_x(int i) const { return i * kSplit + part(); }
  SVD_HD int row_of_y(int i) const { return (kYMoves ? i : ordered(i)) * kSplit + part(); }

  // Not members: what is made of a thread's number costs less than a register.
  SVD_HD int pairs() const { return (k_ + 1) / 2; }
  SVD_HD int pair() const { return threads().index() / kSplit; }
  SVD_HD int part() const { return threads().index() % kSplit; }
  SVD_HD int warp() const { return threads().index() / 32; }
  SVD_HD int lane() const { return threads().index() % 32; }

  // --- sums and maxima over the threads of a pair ----------------------------------------------------

  SVD_HD L square_of_x(Column& c) const {
    return Base::square_of([&](int i) SVD_LAMBDA { return x(c, i); });
  }
  SVD_HD L square_of_y(Column& c) const {
    return Base::square_of([&](int i) SVD_LAMBDA { return y(c, i); });
  }
  SVD_HD E product_of_pair() {
    return Base::product_of([&](int i) SVD_LAMBDA { return x(p_, i); }, [&](int i) SVD_LAMBDA { return x(q_, i); });
  }
  // The largest magnitude in a column; NaN or infinite where there is one.
  SVD_HD L magnitude_of(Column& c) const {
    L largest(0);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) largest = raise_to_any_magnitude(largest, x(c, i));
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) largest = at_least_magnitude(exchanged(largest, d), largest);
    return largest;
  }
  SVD_HD L largest_of_block(L v) const {
    SVD_UNROLL for (int d = kSplit; d < 32; d *= 2) v = larger(exchanged(v, d), v);
    if (lane() == 0) memory_.parts[warp()] = v.v;
    threads().sync();
    for (int w = 0; w < threads().count() / 32; ++w) v = larger(L(memory_.parts[w]), v);
    threads().sync();
    return v;
  }

  // --- columns -----------------------------------------------------------------------------------------

  template <class Source>
  SVD_HD void load(Column& c, int place, const Source& source, const T* given) {
    c.home = static_cast<T>(place);
    c.scale.square = L(FloatTraits<T>::kScaleSquare);
    c.scale.exponent = L(place >= k_ ? kAdded : given == nullptr ? T(0) : given[place]);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      x(c, i) = row_of_x(i) < k_ && place < k_ ? source(row_of_x(i), place) : zero_element<E>();
      if constexpr (kHasY) {
        E unit = zero_element<E>();
        if (row_of_y(i) == place && place < k_) unit.re = L(1);
        y(c, i) = unit;
      }
    }
  }
  // As scale_matrix<true>: what is not finite goes on as zero. values[place] becomes what the column was divided by.
  SVD_HD void scale_once(Column& c, int place, bool finite) {
    if (!finite) {
      clear(c);
      c.scale.exponent = L(is_added(c) ? kAdded : T(0));
    }
    const L e = binary_exponent(magnitude_of(c));
    const auto scale = make_pow2(-e);
    c.scale.exponent = e + c.scale.exponent;
    if (part() == 0) memory_.values[place] = e.v;
    SVD_UNROLL for (int i = 0; i < kRows; ++i) x(c, i) = scaled(x(c, i), scale);
  }
  SVD_HD void clear(Column& c) { SVD_UNROLL for (int i = 0; i < kRows; ++i) x(c, i) = zero_element<E>(); }
  SVD_HD void clear_dependent() {
    const L square_p = square_of_x(p_), square_q = square_of_x(q_);
    const L highest = largest_of_block(larger(exponent_of(square_p, p_.scale), exponent_of(square_q, q_.scale)));
    if (any_of(is_dependent(k_, square_p, p_.scale, highest))) clear(p_);
    if (any_of(is_dependent(k_, square_q, q_.scale, highest))) clear(q_);
  }
  // The floor, which is kept where the values will be: a register would be one too many. So would be a row of X at a
  // time, whose columns are in registers: the source has it, too, and values[j] what column j was divided by.
  template <class Source>
  SVD_HD void find_floor(const Source& source) {
    threads().sync();
    const L of_p = exponent_unless_zero(magnitude_of(p_), p_.scale.exponent);
    const L of_q = exponent_unless_zero(magnitude_of(q_), q_.scale.exponent);
    const L least_column = -largest_of_block(-smaller(of_p, of_q));
    L least_row = exponent_unless_zero(L(0), L(0));
    for (int row = pair(); row < pair() + k_; row += pairs())
      least_row = smaller(exponent_of_row(row, source), least_row);
    const L floor = floor_above(least_column, -largest_of_block(-least_row));
    if (threads().index() == 0) memory_.values[0] = floor.v;
    threads().sync();
  }
  // The exponent of a row of X at the start; without such a row, the one that exponent_unless_zero() gives zeros.
  template <class Source>
  SVD_HD L exponent_of_row(int row, const Source& source) const {
    const L none = exponent_unless_zero(L(0), L(0));
    L exponent = -none;
    for (int j = part(); row < k_ && j < k_; j += kSplit) {
      const L m = raise_to_magnitude(L(0), source(row, j));
      const L e = binary_exponent(m) - L(memory_.values[j]);
      exponent = larger(select(m > L(0), e, -none), exponent);
    }
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) exponent = larger(exchanged(exponent, d), exponent);
    return select(exponent > -none, exponent, none);
  }
  // For the steps of scaled_column.h.
  struct View {
    using Element = E;
    static constexpr bool kHasV = kHasY, kKeepsX = Shape::kLeft, kHasBeyond = true;
    PlacedJacobi* jacobi;
    Column* column;
    SVD_HD ColumnScale<L>& scale() const { return column->scale; }
    template <class F>
    SVD_HD void each_x(F f) const {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) f(jacobi->x(*column, i));
    }
    template <class F>
    SVD_HD void each_v(F f) const {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) f(jacobi->y(*column, i));
    }
    SVD_HD L square_of_x() const { return jacobi->square_of_x(*column); }
    SVD_HD L square_of_v() const { return jacobi->square_of_y(*column); }
    SVD_HD L largest_of_x() const { return jacobi->magnitude_of(*column); }
  };
  SVD_HD void scale_columns() {
    scale_for_sweep(View{this, &p_}, true, L(memory_.values[0]));
    scale_for_sweep(View{this, &q_}, true, L(memory_.values[0]));
  }

  // --- sweeps ------------------------------------------------------------------------------------------

  // Whether the pair was not orthogonal. Threads without a pair take part in its sums alone.
  SVD_HD bool rotate(bool exists) {
    const L alpha = square_of_x(p_), beta = square_of_x(q_);
    const E g = product_of_pair();
    const bool wanted = exists && any_of(exceeds_cosine(add_square(L(0), g), alpha, beta, tol_square_));
    if (!threads().any_of_warp(wanted)) return false;
    const auto u = pair_update(alpha, beta, g, p_.scale, q_.scale, tol_square_, L::mask(exists));
    const auto turn = [](E& p, E& q, const E& a, const E& b) SVD_LAMBDA {
      const E new_p = subtract_product(p, q, a);
      q = subtract_product(q, p, b);
      p = new_p;
    };
    SVD_UNROLL for (int i = 0; i < kRows; ++i) turn(x(p_, i), x(q_, i), u.a, u.b);
    if constexpr (kHasY) SVD_UNROLL for (int i = 0; i < kRows; ++i) turn(y(p_, i), y(q_, i), u.v_a, u.v_b);
    p_.scale.square = p_.scale.square * u.shrink;
    q_.scale.square = q_.scale.square * u.shrink;
    return wanted;
  }

  SVD_HD T* next_box() {
    const int boxes = threads().count() / 32;
    T* const box = memory_.mail + box_ * boxes * kMailOfWarp + part();
    box_ = (box_ + 1) % Shape::kBoxes;
    return box;
  }
  SVD_HD void post(Column& c, T* box) const {
    for_each_number(c, [&](T& number, int n) SVD_LAMBDA { box[warp() * kMailOfWarp + n * kSplit] = number; });
  }
  // c becomes what it is in pair `source`: of this warp, where it is near, or what that one's warp has posted.
  SVD_HD void receive(Column& c, int source, bool near, const T* box) const {
    const int source_lane = near ? source % kPairsOfWarp * kSplit + part() : lane();
    const T* const from = box + source / kPairsOfWarp * kMailOfWarp;
    for_each_number(c, [&](T& number, int n) SVD_LAMBDA {
      const T shuffled = threads().from_lane(number, source_lane);
      number = near ? shuffled : from[n * kSplit];
    });
    if constexpr (Shape::kBoxes == 1) threads().sync();  // the box is written again
  }
  // f(number of c that moves, its index < kMail)
  template <class F>
  SVD_HD void for_each_number(Column& c, F f) const {
    constexpr int kStep = E::kComponents;
    SVD_UNROLL for (int i = 0; i < Shape::kXRegisters; ++i) each_component(c.x[i], i * kStep, f);
    SVD_UNROLL for (int i = 0; i < Shape::kYRegisters; ++i) each_component(c.y[i], (Shape::kXRegisters + i) * kStep, f);
    constexpr int kFirst = (Shape::kXRegisters + Shape::kYRegisters) * kStep;
    f(c.scale.exponent.v, kFirst);
    f(c.scale.square.v, kFirst + 1);
    if constexpr (Shape::kHasHome) f(c.home, kFirst + 2);
  }
  template <class F>
  static SVD_HD void each_component(E& x, int n, F& f) {
    f(x.re.v, n);
    if constexpr (E::kComplex) f(x.im.v, n + 1);
  }

  // Returns whether it did not converge.
  SVD_HD bool sweeps(int max_sweeps) {
    return sweep_until_orthogonal(k_ > 1, max_sweeps, [&](int sweep, bool) SVD_LAMBDA {
      if (sweep > 0) clear_dependent();
      scale_columns();
      return threads().any(odd_even_sweep(*this, 2 * pairs(), 0));
    });
  }

  // --- results -----------------------------------------------------------------------------------------

  // The number of a place in descending order; equal values in the order of their places.
  SVD_HD int rank_of(int place, L s) const {
    int before = 0;
    for (int j = part(); j < 2 * pairs(); j += kSplit) {
      const T other = memory_.values[j];
      if (j < place ? other >= s.v : j > place && other > s.v) ++before;
    }
    L sum(static_cast<T>(before));
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) sum = sum + exchanged(sum, d);
    return static_cast<int>(sum.v);
  }
  template <class Results>
  SVD_HD void store(Column& c, int place, L s, bool finite, const Results& results) {
    const int r = rank_of(place, s);
    if (is_added(c)) return;
    if (part() == 0) results.value(r, finite ? s.v : FloatTraits<T>::nan());
    if constexpr (Shape::kLeft) {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) {
        if (row_of_x(i) < k_) results.x(row_of_x(i), r, x(c, i), finite);
        if constexpr (kHasY) {
          if (row_of_y(i) < k_) results.y(row_of_y(i), r, y(c, i), finite);
        }
      }
    }
  }

  const PlacedMemory<Shape> memory_;
  const int k_;
  int box_;
  L tol_square_;
  Column p_, q_;
};

SVD_KERNEL_END

#endif
