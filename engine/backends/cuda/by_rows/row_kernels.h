// The part of the decompositions of this folder that is alike: rows of vectors, and the sweeps that rotate them.
//
//   reflect_rows_kernel  rows of Q                       algorithms/blocks/vector_rows.h, some threads a row
//   sweep_kernel         values, and rotations           algorithms/lanes/grouped_sweeps.h, a thread a matrix or more
//   rotate_rows_kernel   rows of vectors, a thread each or two, and their way out
//
// Sweeps and rotations take turns: rotations have room for a part of a matrix's. A round without work costs two launches.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_ROW_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_ROW_KERNELS_H_

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/lanes/grouped_sweeps.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/backends/cuda/lanes/element_access.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// One side of matrices that are decomposed at once: U or V. Arrays have a part for each matrix. There are no reflectors,
// rotations and products where nothing is rotated.
template <class E>
struct VectorSide {
  using T = typename E::Scalar;
  E* reflectors = nullptr;                              // k a matrix, of padded_row(k) elements each
  T* g = nullptr;                                       // k
  E* phases = nullptr;                                  // k; before the first sweep the diagonal or superdiagonal of B
  E* rows = nullptr;                                    // k x k: element i of row r at i * k + r
  scalar::PlaneRotation<Lane<T>>* rotations = nullptr;  // rotation_capacity(k), of this round
  double* products = nullptr;                           // their windows, most_windows(k) (window_kernels.h)

  VectorSide() = default;
  VectorSide(int k, int64_t count, bool rotates, Carver* carver)
      : g(carver->take<T>(count * k)), phases(carver->take<E>(count * k)), rows(carver->take<E>(count * k * k)) {
    if (!rotates) return;
    reflectors = carver->take<E>(count * k * scalar::padded_row(k));
    rotations = carver->take<scalar::PlaneRotation<Lane<T>>>(count * rotation_capacity(k));
    products = carver->take<double>(count * most_windows(k) * kWindowElements);
  }
};

// Matrices that are decomposed at once, with vectors of one side or of two: U and V. Arrays have a part for each matrix.
template <class E, int kSides_>
struct SweptMemory {
  using T = typename E::Scalar;
  static constexpr int kSides = kSides_;
  static int most_groups(int k) { return rotation_capacity(k) / scalar::RotationGroup::rotations(1) + 1; }

  VectorSide<E> sides[kSides];
  Between<T> between;  // q: the values; e is not used
  Lane<T>*d, *e;       // k: the matrix while it is swept, and its bound behind e
  int groups_most;
  int32_t* last;              // groups_most: the last column of each group of this round
  int32_t* groups;            // 1: of this round
  scalar::SweepState* state;  // 1: where sweeps go on
  int32_t* round;             // 1: in which it was done, or kOpen
  int32_t* places;            // k: of the vectors in the order of values; of rows in memory alone
  E* reduction;               // kReductionElements: what blocks share that reduce a matrix together

  static constexpr int32_t kOpen = -1;

  // Values alone are bisected where rows are in memory, and rotations find the others.
  SweptMemory(int k, int64_t count, bool with_vectors, Carver* carver)
      : sides(),
        between{carver->take<T>(count * k), nullptr, carver->take<T>(count), carver->take<T>(count)},
        d(carver->take<Lane<T>>(count * k)),
        e(carver->take<Lane<T>>(count * (k + 1))),
        groups_most(most_groups(k)),
        last(carver->take<int32_t>(count * groups_most)),
        groups(carver->take<int32_t>(count)),
        state(carver->take<scalar::SweepState>(count)),
        round(carver->take<int32_t>(count)),
        places(carver->take<int32_t>(are_rows_in_shared(k) ? 0 : count * k)),
        reduction(carver->take<E>(has_reduction_clusters(k) ? count * kReductionElements : 0)) {
    for (VectorSide<E>& side : sides) side = VectorSide<E>(k, count, with_vectors || are_rows_in_shared(k), carver);
  }

  // Matrix m was scaled by 2^-exponent, by one thread.
  __device__ __forceinline__ void start(const SquareCall<T>& call, int64_t m, Lane<T> exponent, bool finite) const {
    between.exponent[m] = exponent.v + (call.exponents == nullptr ? T(0) : call.exponents[m * call.k]);
    between.state[m] = T(finite ? kOkState : kNonFiniteState);
  }
};

// Whether matrix m was done before this round.
template <class Memory>
__device__ __forceinline__ bool is_done_before(const Memory& memory, int64_t m, int round) {
  const int done = memory.round[m];
  return done != Memory::kOpen && done < round;
}

// --- a thread a matrix, or several ---------------------------------------------------------------------------------

// Numbers of shared memory that a matrix has, an odd number.
constexpr int sweep_slot(int k) { return 2 * k | 1; }

// Sweeps: class with
//   kSides, Of<Threads>, Writer   of lanes/grouped_sweeps.h: sides of rotations, the sweeps, and where they write
//   first(memory, k, m, d, e)   d and e of matrix m, without its phases, by one thread; returns its largest number
//   value(x)                    the value of an element of the diagonal that is left
// Threads: of a matrix, neighbours in a block.
template <class E, class Sweeps, class Threads>
__global__ void __launch_bounds__(32)
    sweep_kernel(const SquareCall<typename E::Scalar> call, const SweptMemory<E, Sweeps::kSides> memory, int round,
                 bool is_last) {
  constexpr int32_t kOpen = SweptMemory<E, Sweeps::kSides>::kOpen;
  using T = typename E::Scalar;
  using L = Lane<T>;
  const Threads threads;
  const int in_block = static_cast<int>(threadIdx.x) / Threads::count(), thread = threads.index();
  const int64_t m = static_cast<int64_t>(blockIdx.x) * (blockDim.x / Threads::count()) + in_block;
  if (m >= call.count || (round > 0 && memory.round[m] != kOpen)) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int k = call.k, capacity = rotation_capacity(k);
  L* const d = reinterpret_cast<L*>(shared_bytes) + in_block * sweep_slot(k);
  L* const e = d + k;
  L *const d_kept = memory.d + m * k, *const e_kept = memory.e + m * (k + 1);
  if (round > 0) {
    for (int i = thread; i < k; i += Threads::count()) {
      d[i] = d_kept[i];
      e[i] = e_kept[i];
    }
  } else if (thread == 0) {
    e_kept[k] = L(FloatTraits<T>::kUnitRoundoff) * Sweeps::first(memory, k, m, d, e);
  }
  threads.sync();
  typename Sweeps::Writer to({memory.sides[0].rotations + m * capacity,
                              memory.sides[Sweeps::kSides - 1].rotations + m * capacity,
                              memory.last + m * memory.groups_most, capacity});
  typename Sweeps::template Of<Threads> sweeps(threads, {d, e, e_kept[k]});
  const scalar::SweepState state = sweeps.run(round == 0 ? scalar::SweepState{k - 1, 0} : memory.state[m], &to);
  const int high = state.high;
  threads.sync();
  if (thread == 0) {
    memory.state[m] = state;
    memory.groups[m] = to.groups();
    memory.round[m] = high == 0 ? round : kOpen;
    if (high > 0 && is_last) memory.between.state[m] = T(kNotConvergedState);
  }
  const bool ends = high == 0 || is_last;
  for (int i = thread; i < k; i += Threads::count()) {
    d_kept[i] = d[i];
    e_kept[i] = e[i];
    if (ends) memory.between.q[i * call.count + m] = Sweeps::value(d[i]).v;
  }
}

// --- rows ----------------------------------------------------------------------------------------------------------

// The part of a matrix that a block has: kRows rows at most, of one side. Block x of the grid has a part of a matrix, y a
// side.
template <class E, int kRows>
struct RowsOfBlock {
  static __host__ __device__ int blocks(int k) { return (k + kRows - 1) / kRows; }
  static dim3 grid(int k, int64_t matrices, int sides) {
    return {static_cast<unsigned>(matrices * blocks(k)), static_cast<unsigned>(sides)};
  }

  template <int kSides>
  __device__ RowsOfBlock(int k, const SweptMemory<E, kSides>& memory, int first_side)
      : matrix(blockIdx.x / blocks(k)),
        first(static_cast<int>(blockIdx.x) % blocks(k) * kRows),
        count(min(kRows, k - first)),
        is_left(kSides == 2 && first_side + static_cast<int>(blockIdx.y) == 0),
        side(is_left ? memory.sides[0] : memory.sides[kSides - 1]),
        in_memory(side.rows + matrix * k * k + first) {}

  const int64_t matrix;
  const int first, count;
  const bool is_left;
  const VectorSide<E>& side;
  E* const in_memory;  // element i of row r at i * k + r
};

// Rows of up to K elements. Each of some threads has reflect_bytes() of a reflector, and as much of a row or two.
template <class E, int K>
struct ReflectShape {
  static constexpr int kSteps = reflect_bytes(sizeof(E), K) / (static_cast<int>(sizeof(E)) * scalar::kRowStep);
  static constexpr int kThreads = K / (kSteps * scalar::kRowStep), kTeams = kReflectBlock / kThreads;
  using Rows = RowsOfBlock<E, kTeams*(E::kComplex ? 1 : 2)>;
};

template <class E, int kSides, int K>
__global__ void __launch_bounds__(kReflectBlock, reflect_blocks(E::kComplex, sizeof(E), K))
    reflect_rows_kernel(int k, const SweptMemory<E, kSides> memory, int first_side) {
  using L = typename E::Lane;
  using Shape = ReflectShape<E, K>;
  using Threads = WarpThreads<Shape::kThreads>;
  const typename Shape::Rows rows(k, memory, first_side);
  const int r = static_cast<int>(threadIdx.x) / Shape::kThreads, second = r + Shape::kTeams;
  const int first = rows.is_left ? 0 : 1, pitch = scalar::padded_row(k);
  const E* const reflectors = rows.side.reflectors + rows.matrix * k * pitch;
  const auto* const g = rows.side.g + rows.matrix * k;
  scalar::ReflectedRow<E, Threads, Shape::kSteps> row(Threads(), rows.first + r, rows.first + second);
  const auto read = [&](int j, int i, E(&to)[scalar::kRowStep]) {
    ElementRun<E, scalar::kRowStep>::load(reflectors + j * pitch + i, to);
  };
  row.reflect(k, k - first, first, read, [&](int j) { return L(g[j]); });
  row.for_each([&](int i, const auto* x) {
    if (i >= k) return;
    if constexpr (E::kComplex) {
      if (r < rows.count) store_element(*x, rows.in_memory + i * k + r);
    } else {
      if (r < rows.count) store_element(E{x->re}, rows.in_memory + i * k + r);
      if (second < rows.count) store_element(E{x->im}, rows.in_memory + i * k + second);
    }
  });
}

// Rows of a block that are rotated, in shared memory. Each rotation of doubles is 512 bytes for the 32 threads: 4 cycles of
// a multiprocessor, where the operations of a row take 2. So a thread has two rows where they are real, as the two parts of
// complex elements, which rotate alike.
template <class E>
class RotatedRows {
 public:
  using Pair = Complex<typename E::Scalar>;
  static constexpr int kRows = kRowBlock * (E::kComplex ? 1 : 2);

  static int shared_bytes(int k) {
    return k * (kPitch * static_cast<int>(sizeof(Pair)) + static_cast<int>(sizeof(int)));
  }
  __device__ RotatedRows(int k, unsigned char* shared)
      : pairs_(reinterpret_cast<Pair*>(shared)), places_(reinterpret_cast<int*>(pairs_ + k * kPitch)) {}

  // Element i of the thread's row or rows.
  __device__ __forceinline__ Pair& operator()(int i) const { return pairs_[i * kPitch + threadIdx.x]; }
  // The same from the elements of both rows, and from that of one complex row.
  static __device__ __forceinline__ Pair pair_of(const E& first, const E& second) {
    if constexpr (E::kComplex) {
      return first;
    } else {
      return {first.re, second.re};
    }
  }
  // Element i of row r of the block.
  __device__ __forceinline__ E element(int i, int r) const {
    const Pair& pair = pairs_[i * kPitch + r % kRowBlock];
    if constexpr (E::kComplex) {
      return pair;
    } else {
      return {r < kRowBlock ? pair.re : pair.im};
    }
  }
  // The place of column i in the order of values.
  __device__ __forceinline__ int& place(int i) const { return places_[i]; }

 private:
  static constexpr int kPitch = kRowBlock + 1;

  Pair* const pairs_;
  int* const places_;
};

// The columns of these rows that are wanted: in descending order of singular values, or in ascending order of eigenvalues.
template <int kSides, class E, class Rows>
__device__ __forceinline__ void write_rows(const RotatedRows<E>& x, const Rows& rows, int k,
                                           const Lane<typename E::Scalar>* d, bool finite, const Columns<E>& to) {
  using T = typename E::Scalar;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < k; i += kRowBlock) {
    x.place(i) = kSides == 2 ? scalar::place_of(k, i, d) : scalar::ascending_place_of(k, i, d);
  }
  __syncwarp();
  E* const data = to.data + rows.matrix * to.matrix_stride + rows.first * to.row_stride;
  const auto put = [&](int i, int r) {
    const int place = x.place(i);
    if (place >= to.columns) return;
    const Lane<T> sign(rows.is_left && d[i].v < 0 ? -1 : 1);
    store_element(canonical(scaled(x.element(i, r), sign), to.conjugate, finite),
                  data + r * to.row_stride + place * to.col_stride);
  };
  if (to.row_stride == 1) {
    for (int i = 0; i < k; ++i) {
      for (int r = lane; r < rows.count; r += kRowBlock) put(i, r);
    }
  } else {
    for (int r = 0; r < rows.count; ++r) {
      for (int i = lane; i < k; i += kRowBlock) put(i, r);
    }
  }
}

// Pieces of the rotations of one side of a matrix, as RowRotations asks for them. They come from the device's memory to
// slots in shared memory, which takes longer than some steps. The threads of a warp copy 16 bytes each.
template <class T>
class RotationSlots {
 public:
  using Rotation = scalar::PlaneRotation<Lane<T>>;
  using Piece = scalar::RotationPiece<Lane<T>>;
  static constexpr int kSlots = 8, kBytes = kSlots * static_cast<int>(sizeof(Piece));

  __device__ RotationSlots(const Rotation* from, void* shared) : from_(from), slots_(static_cast<Piece*>(shared)) {}

  __device__ __forceinline__ void ask(int slot, int place, int steps) const {
    constexpr int kOfVector = 16 / static_cast<int>(sizeof(Rotation)), kSteps = scalar::RotationGroup::kPieceSteps;
    const int first = static_cast<int>(threadIdx.x) * kOfVector, sweep = first / kSteps, step = first % kSteps;
    if (sweep < scalar::RotationGroup::kSweeps) {
      __pipeline_memcpy_async(&slots_[slot].of[sweep][step], from_ + place + sweep * steps + step, 16);
    }
    __pipeline_commit();
  }
  __device__ __forceinline__ void ask_nothing() const { __pipeline_commit(); }
  __device__ __forceinline__ void take(int slot, Piece* to) const {
    __pipeline_wait_prior(kSlots - 2);
    __syncwarp();
    *to = slots_[slot];
  }

 private:
  const Rotation* const from_;
  Piece* const slots_;
};

// call: x for the left side, y for the other, or for the only one.
template <class E, int kSides>
__global__ void __launch_bounds__(kRowBlock, kRotateBlocks)
    rotate_rows_kernel(const VectorsCall<E> call, const SweptMemory<E, kSides> memory, int first_side, int round,
                       bool is_last) {
  constexpr int32_t kOpen = SweptMemory<E, kSides>::kOpen;
  using T = typename E::Scalar;
  using Slots = RotationSlots<T>;
  using Pair = typename RotatedRows<E>::Pair;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int k = call.square.k, lane = static_cast<int>(threadIdx.x);
  const RowsOfBlock<E, RotatedRows<E>::kRows> rows(k, memory, first_side);
  const RotatedRows<E> x(k, shared_bytes + Slots::kBytes);
  const int64_t m = rows.matrix;
  const int done = memory.round[m];
  if (done != kOpen && done < round) return;
  // A thread without a row takes the last one, too.
  E* const first = rows.in_memory + min(lane, rows.count - 1);
  E* const second = rows.in_memory + min(lane + kRowBlock, rows.count - 1);
  SVD_ROW_LOOP for (int i = 0; i < k; ++i) {
    const E phase = load_element(rows.side.phases + m * k + i), y = load_element(first + i * k);
    const E z = E::kComplex ? y : load_element(second + i * k);
    x(i) = round == 0 ? x.pair_of(scalar::product_of(y, phase), scalar::product_of(z, phase)) : x.pair_of(y, z);
  }
  const int32_t* const last = memory.last + m * memory.groups_most;
  scalar::RowRotations<Pair, Slots> by(Slots(rows.side.rotations + m * rotation_capacity(k), shared_bytes));
  by.rotate(
      memory.groups[m], [&](int group) { return last[group]; }, [&](int i) -> Pair& { return x(i); });
  __syncwarp();
  if (done != kOpen || is_last) {
    const bool finite = static_cast<int>(memory.between.state[m]) != kNonFiniteState;
    write_rows<kSides>(x, rows, k, memory.d + m * k, finite, rows.is_left ? call.x : call.y);
  } else {
    for (int r = lane; r < rows.count; r += kRowBlock) {
      for (int i = 0; i < k; ++i) store_element(x.element(i, r), rows.in_memory + i * k + r);
    }
  }
}

// --- launching -----------------------------------------------------------------------------------------------------

// The call for `count` matrices from m on.
template <class E>
VectorsCall<E> part_of(const VectorsCall<E>& call, int64_t m, int64_t count) {
  using T = typename E::Scalar;
  VectorsCall<E> part = call;
  SquareCall<T>& square = part.square;
  const int64_t k = square.k;
  square.count = count;
  square.a += m * k * k * E::kComponents;
  if (square.exponents != nullptr) square.exponents += m * k;
  square.values += m * k;
  if (square.statuses != nullptr) square.statuses += m;
  if (part.x.data != nullptr) part.x.data += m * part.x.matrix_stride;
  if (part.y.data != nullptr) part.y.data += m * part.y.matrix_stride;
  return part;
}

template <int K, class E, int kSides>
void launch_reflect(Launch* launch, int k, int64_t count, const SweptMemory<E, kSides>& memory, int first_side,
                    int sides) {
  launch->operator()<reflect_rows_kernel<E, kSides, K>>(ReflectShape<E, K>::Rows::grid(k, count, sides), kReflectBlock,
                                                        0, k, memory, first_side);
}

template <class Sweeps, class E>
void launch_sweeps(Launch* launch, const SquareCall<typename E::Scalar>& call,
                   const SweptMemory<E, Sweeps::kSides>& memory, int round, bool is_last) {
  const int slot = sweep_slot(call.k) * static_cast<int>(sizeof(typename E::Scalar));
  if constexpr (scalar::knows_shifts_ahead<typename E::Scalar>()) {
    using Threads = WarpThreads<scalar::RotationGroup::kSweeps>;
    if (call.count < kSweptAlone) {
      return launch->operator()<sweep_kernel<E, Sweeps, Threads>>(call.count, Threads::count(), slot, call, memory,
                                                                  round, is_last);
    }
  }
  const int block = sweep_block(call.count);
  launch->operator()<sweep_kernel<E, Sweeps, scalar::OneThread>>(blocks_for(call.count, block), block, block * slot,
                                                                 call, memory, round, is_last);
}

// Rows of Q, then sweeps and the rotations of rows in turns, for the sides from first_side on.
template <class Sweeps, class E>
void launch_vectors(Launch* launch, const VectorsCall<E>& call, const SweptMemory<E, Sweeps::kSides>& memory,
                    int first_side, int sides) {
  using T = typename E::Scalar;
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  if (sides > 0) {
    k <= 64 ? launch_reflect<64>(launch, k, square.count, memory, first_side, sides)
            : launch_reflect<128>(launch, k, square.count, memory, first_side, sides);
  }
  const int rounds = rotation_rounds(k);
  for (int round = 0; round < rounds; ++round) {
    const bool is_last = round + 1 == rounds;
    launch_sweeps<Sweeps>(launch, square, memory, round, is_last);
    if (sides == 0) continue;
    launch->operator()<rotate_rows_kernel<E, Sweeps::kSides>>(
        RowsOfBlock<E, RotatedRows<E>::kRows>::grid(k, square.count, sides), kRowBlock,
        RotationSlots<T>::kBytes + RotatedRows<E>::shared_bytes(k), call, memory, first_side, round, is_last);
  }
}

// Matrices that are decomposed at once.
template <class Memory>
int64_t at_once(int k, int64_t count, bool with_vectors) {
  Carver one(nullptr);
  (void)Memory(k, 1, with_vectors, &one);
  return std::clamp<int64_t>(by_rows_bytes(k) / static_cast<int64_t>(one.used()), 1, count);
}
template <class Memory>
int64_t swept_workspace_bytes(int k, int64_t count, bool with_vectors) {
  Carver carver(nullptr);
  (void)Memory(k, at_once<Memory>(k, count, with_vectors), with_vectors, &carver);
  return static_cast<int64_t>(carver.used());
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_ROW_KERNELS_H_
