// JACOBI with vectors (algorithms/lanes/jacobi_vectors.h) for k x k matrices.
//
//   lane_vectors_kernel    k <= 4: a thread a matrix, both matrices in its registers
//   team_vectors_kernel    k <= 32: a team of threads a matrix, a thread or two to four for each pair of columns, which
//                          are in registers; after each step one column moves to the neighbours
//
// The places of the odd-even exchange are threads. A column's rows are dealt to the kSplit threads of a pair in turn,
// which is how sums are dealt to partial sums (core/reduce.h).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_KERNELS_H_

#include "engine/algorithms/lanes/definite_jacobi.h"
#include "engine/algorithms/lanes/jacobi_vectors.h"
#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/backends/cuda/lanes/element_access.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// Where the columns of X or Y go: element (i, r) of matrix m to data[m * matrix_stride + i * row_stride + r *
// col_stride], r < columns, conjugated if it says so. Null: they are not wanted.
template <class E>
struct Columns {
  E* data;
  int64_t matrix_stride, row_stride, col_stride;
  int columns;
  bool conjugate;
};

template <class E>
struct VectorsCall {
  SquareCall<typename E::Scalar> square;  // values: all k a matrix
  Columns<E> x, y;
};

// As results are written: +0 for every zero, NaN for what is not finite.
template <class E>
__device__ __forceinline__ E canonical(E x, bool conjugate, bool finite) {
  using T = typename E::Scalar;
  using L = Lane<T>;
  const L nan(FloatTraits<T>::nan());
  x.re = finite ? x.re + L(T(0)) : nan;
  if constexpr (E::kComplex) x.im = finite ? (conjugate ? -x.im : x.im) + L(T(0)) : nan;
  return x;
}

// --- a thread a matrix -----------------------------------------------------------------------------------

template <class E, int K>
struct LaneVectorsShape {
  using T = typename E::Scalar;
  static constexpr int kMatrix = K * K * E::kComponents;
  static constexpr int kSlot = kMatrix | 1;
  static constexpr int kBlock = lane_block(kSlot * static_cast<int>(sizeof(T)));
  static constexpr int kSharedBytes = kBlock * kSlot * static_cast<int>(sizeof(T));
};

// A warp's columns through its slots, so that they leave in one run: what the layouts of k x k matrices are.
template <class E, int K>
__device__ __forceinline__ void store_lane_columns(const E* a, const Lane<typename E::Scalar>* rank, bool finite,
                                                   const Columns<E>& to, int64_t first, int n, int lane,
                                                   typename E::Scalar* slots) {
  using T = typename E::Scalar;
  using Shape = LaneVectorsShape<E, K>;
  if (to.data == nullptr) return;
  const int columns = to.columns, size = K * columns * E::kComponents;
  __syncwarp();
  if (lane < n) {
    T* const slot = slots + lane * Shape::kSlot;
    SVD_UNROLL for (int j = 0; j < K; ++j) {
      const int r = static_cast<int>(rank[j].v);
      if (r >= columns) continue;
      SVD_UNROLL for (int i = 0; i < K; ++i) {
        const E x = canonical(a[j * K + i], to.conjugate, finite);
        T* const at =
            slot + (i * static_cast<int>(to.row_stride) + r * static_cast<int>(to.col_stride)) * E::kComponents;
        at[0] = x.re.v;
        if constexpr (E::kComplex) at[1] = x.im.v;
      }
    }
  }
  __syncwarp();
  T* const out = reinterpret_cast<T*>(to.data + first * to.matrix_stride);
  if (columns == K) {
    SVD_UNROLL for (int x = 0; x < Shape::kMatrix; ++x) {
      const int number = x * 32 + lane;
      if (number < n * Shape::kMatrix)
        out[number] = slots[number + number / Shape::kMatrix * (Shape::kSlot - Shape::kMatrix)];
    }
  } else {
    for (int number = lane; number < n * size; number += 32) {
      out[number] = slots[number / size * Shape::kSlot + number % size];
    }
  }
}

// A warp's values, K a matrix, through its slots to call.values.
template <class E, int K>
__device__ __forceinline__ void store_lane_values(const Lane<typename E::Scalar>* s,
                                                  const Lane<typename E::Scalar>* rank, bool finite,
                                                  const SquareCall<typename E::Scalar>& call, int64_t first, int n,
                                                  int lane, typename E::Scalar* slots) {
  __syncwarp();
  if (lane < n) {
    SVD_UNROLL for (int j = 0; j < K; ++j) {
      slots[lane * (K | 1) + static_cast<int>(rank[j].v)] = finite ? s[j].v : FloatTraits<typename E::Scalar>::nan();
    }
  }
  __syncwarp();
  SVD_UNROLL for (int x = 0; x < K; ++x) {
    const int number = x * 32 + lane;
    if (number < n * K) call.values[first * K + number] = slots[number / K * (K | 1) + number % K];
  }
}

template <class E, int K>
__global__ void __launch_bounds__(LaneVectorsShape<E, K>::kBlock) lane_vectors_kernel(const VectorsCall<E> call) {
  using Shape = LaneVectorsShape<E, K>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T* const slots = reinterpret_cast<T*>(shared_bytes) + static_cast<int>(threadIdx.x) / 32 * 32 * Shape::kSlot;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock + static_cast<int>(threadIdx.x) / 32 * 32;
  const int64_t left = call.square.count - first;
  if (left <= 0) return;
  const int n = left < 32 ? static_cast<int>(left) : 32;
  load_slots<Shape::kMatrix, Shape::kSlot>(call.square.a + first * Shape::kMatrix, n * Shape::kMatrix, lane, slots);
  Lane<T> s[K], rank[K];
  E x[K * K], y[K * K];
  bool finite = false;
  if (lane < n) {
    const int64_t m = first + lane;
    load_registers<E, K, 1>(slots + lane * Shape::kSlot, call.square.row_major, x);
    const auto* const given =
        reinterpret_cast<const Lane<T>*>(call.square.exponents == nullptr ? nullptr : call.square.exponents + m * K);
    scalar::ColumnScale<Lane<T>> scales[K];
    const Lane<T> status =
        scalar::jacobi_vectors(scalar::MatrixView<E>{x, K}, scalar::MatrixView<E>{y, K}, scalar::FixedSize<K>(), given,
                               Lane<T>(call.square.tolerance), call.square.max_sweeps, scales, s, rank);
    finite = static_cast<int>(status.v) != static_cast<int>(MatrixStatus::kNonFinite);
    record_status(call.square, m, static_cast<int>(status.v));
  }
  store_lane_columns<E, K>(x, rank, finite, call.x, first, n, lane, slots);
  store_lane_columns<E, K>(y, rank, finite, call.y, first, n, lane, slots);
  store_lane_values<E, K>(s, rank, finite, call.square, first, n, lane, slots);
}

// --- a team a matrix ---------------------------------------------------------------------------------------

// K: places; kSplit: threads for each pair of places.
template <class E, int K, int kSplit>
struct VectorsTeam {
  using T = typename E::Scalar;
  using L = Lane<T>;
  static constexpr int kThreads = K / 2 * kSplit;
  static constexpr int kRows = K / kSplit;  // of each column in a thread: row i of the thread is i * kSplit + part
  static_assert(kThreads <= 32 && 8 % kSplit == 0 && K % kSplit == 0);

  int k, pair, part;
  WarpThreads<kThreads> threads;

  __device__ explicit VectorsTeam(int size)
      : k(size),
        pair(static_cast<int>(threadIdx.x) % kThreads / kSplit),
        part(static_cast<int>(threadIdx.x) % kSplit) {}

  __device__ __forceinline__ bool any(bool m) const { return threads.any(m); }
  __device__ __forceinline__ T from(T x, int pair_number) const {
    return threads.from_lane(x, pair_number * kSplit + part);
  }
  __device__ __forceinline__ E from(E x, int pair_number) const {
    x.re.v = from(x.re.v, pair_number);
    if constexpr (E::kComplex) x.im.v = from(x.im.v, pair_number);
    return x;
  }
  // The rest of the tree of core/reduce.h, over the threads of a pair.
  template <class Sum>
  __device__ __forceinline__ Sum across(Sum s) const {
    if constexpr (kSplit >= 4) s = s + exchanged(s, 2);
    if constexpr (kSplit >= 2) s = s + exchanged(s, 1);
    return s;
  }
  __device__ __forceinline__ L exchanged(L x, int distance) const { return L(threads.exchanged(x.v, distance)); }
  __device__ __forceinline__ E exchanged(E x, int distance) const {
    x.re = exchanged(x.re, distance);
    if constexpr (E::kComplex) x.im = exchanged(x.im, distance);
    return x;
  }
  // A thread's partial sums: row i of the thread goes to number i % kPartials.
  static constexpr int kPartials = K <= 8 ? 1 : 8 / kSplit;
  template <class Sum>
  __device__ __forceinline__ Sum joined(const Sum (&s)[kPartials]) const {
    if constexpr (K <= 8) return s[0];
    if constexpr (kPartials == 8) return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    if constexpr (kPartials == 4) return across((s[0] + s[2]) + (s[1] + s[3]));
    if constexpr (kPartials == 2) return across(s[0] + s[1]);
  }
  template <class Sum, class Add>
  __device__ __forceinline__ Sum sum(const Sum& zero, Add add) const {
    Sum s[kPartials];
    SVD_UNROLL for (int p = 0; p < kPartials; ++p) s[p] = zero;
    SVD_UNROLL for (int i = 0; i < kRows; ++i) s[i % kPartials] = add(s[i % kPartials], i);
    return joined(s);
  }
  __device__ __forceinline__ L square_of(const E* x) const {
    return sum(L(T(0)), [&](L s, int i) { return scalar::add_square(s, x[i]); });
  }
  __device__ __forceinline__ E product_of(const E* x, const E* y) const {
    return sum(scalar::zero_element<E>(), [&](const E& s, int i) { return scalar::add_product(s, x[i], y[i]); });
  }
  __device__ __forceinline__ L largest_of(const E* x) const {
    L largest(T(0));
    SVD_UNROLL for (int i = 0; i < kRows; ++i) largest = scalar::raise_to_magnitude(largest, x[i]);
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) largest = at_least(exchanged(largest, d), largest);
    return largest;
  }
};

// A column in a place: of X and, where it is wanted, of Y.
template <class E, int kRows, bool kHasY>
struct PlacedColumn {
  E x[kRows], y[kHasY ? kRows : 1];
  scalar::ColumnScale<Lane<typename E::Scalar>> scale;
};

// Without Y: the columns of a definite matrix (definite_jacobi.h), of whose scales d^2 alone counts.
template <class E, int K, int kSplit, bool kHasY = true>
struct VectorsTask {
  using Team = VectorsTeam<E, K, kSplit>;
  using T = typename E::Scalar;
  using L = Lane<T>;
  using Column = PlacedColumn<E, Team::kRows, kHasY>;
  using Run = ElementRun<E, Team::kRows>;

  static constexpr bool kHasFloor = K > kLargestWithoutFloor;

  Team team;
  L tol_square;
  Column p, q;
  L floor;  // where kHasFloor

  // Column `place` of the matrix. Returns whether it is finite.
  __device__ __forceinline__ bool load(Column& column, int place, const SquareCall<T>& call, int64_t m) {
    const E* const from = reinterpret_cast<const E*>(call.a) + m * team.k * team.k;
    const int row_step = call.row_major ? team.k : 1, col_step = call.row_major ? 1 : team.k;
    L largest(T(0));
    // A whole column lies in one run, or its elements are read one by one.
    const bool run = kSplit == 1 && team.k == K && !call.row_major && Run::begins_at(from);
    if (run) Run::load(from + place * K, column.x);
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      const int row = i * kSplit + team.part;
      const bool inside = row < team.k && place < team.k;
      if (!run)
        column.x[i] = inside ? load_element(from + row * row_step + place * col_step) : scalar::zero_element<E>();
      largest = scalar::raise_to_any_magnitude(largest, column.x[i]);
      column.y[i] = scalar::zero_element<E>();
      if (inside && row == place) column.y[i].re = L(T(1));
    }
    column.scale.square = L(FloatTraits<T>::kScaleSquare);
    column.scale.exponent = L(call.exponents == nullptr || place >= team.k ? T(0) : call.exponents[m * team.k + place]);
    return (largest <= L(FloatTraits<T>::kLargest)).m;
  }

  // As scale_matrix<true>: what is not finite goes on as zero.
  __device__ __forceinline__ void scale_once(Column& column, bool finite) {
    if (!finite) {
      SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::zero_element<E>();
    }
    const L e = scalar::binary_exponent(team.largest_of(column.x));
    const auto scale = scalar::make_pow2(-e);
    column.scale.exponent = e + column.scale.exponent;
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::scaled(column.x[i], scale);
  }

  __device__ __forceinline__ void clear_dependent() {
    const L square_p = team.square_of(p.x), square_q = team.square_of(q.x);
    L highest = scalar::larger(scalar::exponent_of(square_p, p.scale), scalar::exponent_of(square_q, q.scale));
    SVD_UNROLL for (int d = kSplit; d < Team::kThreads; d *= 2) highest =
        scalar::larger(team.exchanged(highest, d), highest);
    const bool dependent_p = scalar::is_dependent(team.k, square_p, p.scale, highest).m;
    const bool dependent_q = scalar::is_dependent(team.k, square_q, q.scale, highest).m;
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      p.x[i] = dependent_p ? scalar::zero_element<E>() : p.x[i];
      q.x[i] = dependent_q ? scalar::zero_element<E>() : q.x[i];
    }
  }

  // As floor_of().
  __device__ __forceinline__ void find_floor() {
    L column = scalar::smaller(scalar::exponent_unless_zero(team.largest_of(p.x), p.scale.exponent),
                               scalar::exponent_unless_zero(team.largest_of(q.x), q.scale.exponent));
    L row = scalar::exponent_unless_zero(L(T(0)), L(T(0)));
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      L largest = scalar::raise_to_magnitude(scalar::raise_to_magnitude(L(T(0)), p.x[i]), q.x[i]);
      SVD_UNROLL for (int d = kSplit; d < Team::kThreads; d *= 2) largest =
          scalar::larger(team.exchanged(largest, d), largest);
      row = scalar::smaller(scalar::exponent_unless_zero(largest, scalar::binary_exponent(largest)), row);
    }
    SVD_UNROLL for (int d = kSplit; d < Team::kThreads; d *= 2) column =
        scalar::smaller(team.exchanged(column, d), column);
    SVD_UNROLL for (int d = 1; d < kSplit; d *= 2) row = scalar::smaller(team.exchanged(row, d), row);
    floor = scalar::floor_above(column, row);
  }

  // The scaling before each sweep, and after the last one, too.
  __device__ __forceinline__ void normalize_columns() {
    normalize_column(p);
    normalize_column(q);
  }
  __device__ __forceinline__ void normalize_column(Column& column) {
    const L largest = team.largest_of(column.x);
    scalar::SweepScale<L> scale;
    if constexpr (kHasFloor) {
      scale = scalar::sweep_scale(largest, column.scale, floor);
    } else {
      scale = scalar::sweep_scale(largest, column.scale);
    }
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::scaled(column.x[i], scale.x);
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.y[i] = scalar::scaled(column.y[i], scale.v);
  }
  __device__ __forceinline__ void fold(Column& column) {
    const L by = scalar::fold_scale(column.scale);
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::scaled(column.x[i], by);
  }
  __device__ __forceinline__ void begin_sweep(int sweep) {
    if constexpr (kHasY) {
      if (sweep > 0) clear_dependent();
      normalize_columns();
    } else if (sweep > 0) {
      fold(p);
      fold(q);
    }
  }

  // Whether the pair was not orthogonal. Threads without a pair take part in its sums alone.
  __device__ __forceinline__ bool rotate(bool exists) {
    const scalar::ScalarMask active{true};
    if (kSplit == 1 && !exists) return false;
    const L alpha = team.square_of(p.x), beta = team.square_of(q.x);
    const E g = team.product_of(p.x, q.x);
    const auto turn = [&](auto& of_p, auto& of_q, const E& a, const E& b) {
      SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) scalar::update_and_exchange(of_p[i], of_q[i], a, b, active);
    };
    if constexpr (kHasY) {
      const auto u = scalar::pair_update(alpha, beta, g, p.scale, q.scale, tol_square, active);
      if (!exists) return false;
      turn(p.x, q.x, u.x_a, u.x_b);
      turn(p.y, q.y, u.v_a, u.v_b);
      scalar::shrink_and_exchange(p.scale, q.scale, u.shrink, active);
      return u.wanted.m;
    } else {
      const auto u = scalar::definite_pair(alpha, beta, g, p.scale.square, q.scale.square, tol_square, active);
      if (!exists) return false;
      turn(p.x, q.x, u.a, u.b);
      const L square_p = p.scale.square * u.shrink;
      p.scale.square = q.scale.square * u.shrink;
      q.scale.square = square_p;
      return u.wanted.m;
    }
  }

  // From even to odd steps and back.
  __device__ __forceinline__ void to_odd() {
    const int next = team.pair + 1 < K / 2 ? team.pair + 1 : 0;
    move(p, q, next);
  }
  __device__ __forceinline__ void to_even() {
    const int previous = team.pair > 0 ? team.pair - 1 : K / 2 - 1;
    move(q, p, previous);
  }
  // `leaving` goes to a neighbour, `staying` takes its place, and what comes from the other neighbour takes that one's.
  __device__ __forceinline__ void move(Column& leaving, Column& staying, int source) {
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      const E x = team.from(leaving.x[i], source);
      leaving.x[i] = staying.x[i];
      staying.x[i] = x;
      if constexpr (kHasY) {
        const E y = team.from(leaving.y[i], source);
        leaving.y[i] = staying.y[i];
        staying.y[i] = y;
      }
    }
    L exponent = staying.scale.exponent;
    if constexpr (kHasY) exponent = L(team.from(leaving.scale.exponent.v, source));
    const L square(team.from(leaving.scale.square.v, source));
    leaving.scale = staying.scale;
    staying.scale = {exponent, square};
  }

  // Returns whether it did not converge.
  __device__ __forceinline__ bool sweeps(int max_sweeps) {
    bool active = team.k > 1;
    for (int sweep = 0; sweep < max_sweeps && active; ++sweep) {
      begin_sweep(sweep);
      bool rotated = false;
      for (int step = kHasFloor ? scalar::first_step(team.k, sweep) : 0; step < team.k; step += 2) {
        if (!kHasFloor || step >= 0) rotated = rotate(2 * team.pair + 1 < team.k) || rotated;
        if (step + 1 == team.k) break;
        to_odd();
        rotated = rotate(2 * team.pair + 2 < team.k) || rotated;
        to_even();
      }
      active = team.any(rotated);
    }
    return active;
  }
  // u_j, v_j in place; returns s_j.
  __device__ __forceinline__ L normalize(Column& column) {
    const L zero(T(0)), one(T(1));
    const L x_norm = sqrt(team.square_of(column.x)), y_norm = sqrt(team.square_of(column.y));
    const L x_inverse = one / select(x_norm > zero, x_norm, one), y_inverse = one / y_norm;
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::scaled(column.x[i], x_inverse);
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.y[i] = scalar::scaled(column.y[i], y_inverse);
    return scalar::finished_value(x_norm * y_inverse, column.scale.exponent);
  }

  __device__ __forceinline__ int rank(L s, int place, L s_p, L s_q) const {
    int before = 0;
    for (int c = 0; 2 * c < team.k; ++c) {
      const T first = team.from(s_p.v, c), second = team.from(s_q.v, c);
      if (2 * c < place ? first >= s.v : 2 * c > place && first > s.v) ++before;
      if (2 * c + 1 < team.k && (2 * c + 1 < place ? second >= s.v : 2 * c + 1 > place && second > s.v)) ++before;
    }
    return before;
  }

  __device__ __forceinline__ void store(E (&column)[Team::kRows], const Columns<E>& to, int64_t m, int r,
                                        bool finite) const {
    if (to.data == nullptr || r >= to.columns) return;
    E* const at = to.data + m * to.matrix_stride + r * to.col_stride;
    SVD_UNROLL for (E& x : column) x = canonical(x, to.conjugate, finite);
    if (kSplit == 1 && team.k == K && to.row_stride == 1 && to.col_stride == K && Run::begins_at(at)) {
      return Run::store(column, at);
    }
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      const int row = i * kSplit + team.part;
      if (row < team.k) store_element(column[i], at + row * to.row_stride);
    }
  }
};

template <class E, int K, int kSplit>
__global__ void __launch_bounds__(kVectorsBlock) team_vectors_kernel(const VectorsCall<E> call) {
  using Task = VectorsTask<E, K, kSplit>;
  using T = typename E::Scalar;
  using L = Lane<T>;
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * (kVectorsBlock / Task::Team::kThreads) +
                    static_cast<int>(threadIdx.x) / Task::Team::kThreads;
  if (m >= square.count) return;
  Task task{typename Task::Team(k), L(square.tolerance) * L(square.tolerance)};
  const int place_p = 2 * task.team.pair, place_q = place_p + 1;
  bool finite = task.load(task.p, place_p, square, m);
  finite = task.load(task.q, place_q, square, m) && finite;
  finite = !task.team.any(!finite);
  task.scale_once(task.p, finite);
  task.scale_once(task.q, finite);
  if constexpr (Task::kHasFloor) task.find_floor();
  const bool unfinished = task.sweeps(square.max_sweeps);
  task.normalize_columns();
  const L s_p = task.normalize(task.p), s_q = task.normalize(task.q);
  const L largest(FloatTraits<T>::kLargest);
  const bool out_of_range = task.team.any((place_p < k && !(s_p <= largest).m) || (place_q < k && !(s_q <= largest).m));
  const int r_p = task.rank(s_p, place_p, s_p, s_q), r_q = task.rank(s_q, place_q, s_p, s_q);
  if (task.team.pair == 0 && task.team.part == 0) {
    record_status(square, m, static_cast<int>(scalar::status_of(finite, !out_of_range, unfinished)));
  }
  if (place_p < k) {
    if (task.team.part == 0) square.values[m * k + r_p] = finite ? s_p.v : FloatTraits<T>::nan();
    task.store(task.p.x, call.x, m, r_p, finite);
    task.store(task.p.y, call.y, m, r_p, finite);
  }
  if (place_q < k) {
    if (task.team.part == 0) square.values[m * k + r_q] = finite ? s_q.v : FloatTraits<T>::nan();
    task.store(task.q.x, call.x, m, r_q, finite);
    task.store(task.q.y, call.y, m, r_q, finite);
  }
}

// The leading columns of X or Y from memory where they lie by columns, rows x all of a matrix, to where they are
// wanted.
template <class E>
__global__ void copy_columns_kernel(const E* from, int rows, int all, int64_t count, const Columns<E> to) {
  const int64_t each = static_cast<int64_t>(rows) * to.columns;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (number >= count * each) return;
  const int64_t m = number / each, at = number % each;
  const bool by_rows = to.col_stride == 1;
  const int64_t i = by_rows ? at / to.columns : at % rows, j = by_rows ? at % to.columns : at / rows;
  const E x = from[(m * all + j) * rows + i];
  bool finite = x.re.v == x.re.v;
  if constexpr (E::kComplex) finite = finite && x.im.v == x.im.v;
  to.data[m * to.matrix_stride + i * to.row_stride + j * to.col_stride] = canonical(x, to.conjugate, finite);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_KERNELS_H_
