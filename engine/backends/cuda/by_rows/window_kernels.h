// Rows of vectors that do not fit a block's shared memory, k > 128. They stay in the device's memory, and take the
// rotations of a round as products (algorithms/lanes/rotation_windows.h):
//
//   apply_phases_kernel    rows times the phases, once                       elementwise
//   gather_kernel          W of each window of a round                       a warp a window
//   multiply_kernel        rows times all W                                  a warp 16 real rows, by matrix units
//   order_kernel           values in order, and the places of their vectors  a block a matrix
//   write_vectors_kernel   vectors in order, and their way out               a block 32 rows
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_WINDOW_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_WINDOW_KERNELS_H_

#include "engine/algorithms/lanes/rotation_windows.h"
#include "engine/backends/cuda/by_rows/row_kernels.h"
#include "engine/backends/cuda/device/matrix_unit.h"

namespace svdserve::cuda {

// --- phases --------------------------------------------------------------------------------------------------------

template <class E, int kSides>
__global__ void __launch_bounds__(kWindowBlock)
    apply_phases_kernel(int k, const SweptMemory<E, kSides> memory, int first_side) {
  const VectorSide<E>& side = memory.sides[first_side + static_cast<int>(blockIdx.y)];
  const int64_t m = blockIdx.x;
  E* const rows = side.rows + m * k * k;
  const E* const phases = side.phases + m * k;
  for (int x = static_cast<int>(threadIdx.x); x < k * k; x += kWindowBlock) {
    store_element(scalar::product_of(load_element(rows + x), load_element(phases + x / k)), rows + x);
  }
}

// --- W -------------------------------------------------------------------------------------------------------------

// The elements of W in the order in which threads of multiply_kernel take them: those of B(4 c + t, g) of
// device/matrix_unit.h for 16 rows and 8 columns, c two by two. The row of W behind 4 c + t is 8 (c / 2) + 2 t + c % 2. By
// that a thread's part of a product is its part of the next operand.
struct WindowOrder {
  static constexpr int kColumns = scalar::RotationWindow::kColumns, kElements = kColumns * kColumns;
  static constexpr int kChunks = kColumns / 16, kTiles = kColumns / 8;
  static_assert(kElements == kWindowElements);

  // Two elements: c = 0 and 1, or 2 and 3.
  static __device__ __forceinline__ int place(int chunk, int tile, int half, int lane) {
    return (((chunk * kTiles + tile) * 2 + half) * 32 + lane) * 2;
  }
  static __device__ __forceinline__ int row(int place) {
    const int c = place / 64 % 2 * 2 + place % 2, t = place / 2 % 4;
    return place / (128 * kTiles) * 16 + 8 * (c / 2) + 2 * t + c % 2;
  }
  static __device__ __forceinline__ int col(int place) { return place / 128 % kTiles * 8 + place / 8 % 8; }
};

// W of window `window` of a run of matrix m, by a warp. shared: as launch_windows() reserves.
template <class E>
__device__ __forceinline__ void gather(const scalar::RotationRun& run, int window, const int32_t* last,
                                       const scalar::PlaneRotation<Lane<typename E::Scalar>>* rotations,
                                       unsigned char* shared, double* to) {
  using T = typename E::Scalar;
  using Rows = RotatedRows<Real<T>>;
  using Slots = RotationSlots<T>;
  const int lane = static_cast<int>(threadIdx.x);
  const Rows x(WindowOrder::kColumns, shared + Slots::kBytes);
  for (int i = 0; i < WindowOrder::kColumns; ++i) {
    x(i) = {Lane<T>(T(i == lane ? 1 : 0)), Lane<T>(T(i == lane + kRowBlock ? 1 : 0))};
  }
  scalar::RotatedWindow<typename Rows::Pair, Slots> by(Slots(rotations + run.at.place, shared));
  by.rotate(
      run, window, [&](int group) { return last[run.at.group + group]; },
      [&](int i) -> typename Rows::Pair& { return x(i); });
  __syncwarp();
  for (int place = lane; place < WindowOrder::kElements; place += 32) {
    to[place] = x.element(WindowOrder::col(place), WindowOrder::row(place)).re.v;
  }
  __syncwarp();
}

// kGatherBlocks blocks a matrix and side, which share its windows.
template <class E, int kSides>
__global__ void __launch_bounds__(32)
    gather_kernel(int k, const SweptMemory<E, kSides> memory, int first_side, int round) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int64_t m = blockIdx.x / kGatherBlocks;
  const int groups = memory.groups[m];
  if (is_done_before(memory, m, round)) return;
  const VectorSide<E>& side = memory.sides[first_side + static_cast<int>(blockIdx.y)];
  const int32_t* const last = memory.last + m * memory.groups_most;
  const auto last_of = [&](int group) { return last[group]; };
  int number = static_cast<int>(blockIdx.x) % kGatherBlocks, begin = 0;  // of all windows; of the run's first
  for (scalar::RotationCursor at{0, 0}; at.group < groups;) {
    const scalar::RotationRun run(at, groups, last_of);
    for (; number < begin + run.windows(); number += kGatherBlocks) {
      gather<E>(run, run.first_window() + number - begin, last, side.rotations + m * rotation_capacity(k), shared_bytes,
                side.products + (m * most_windows(k) + number) * WindowOrder::kElements);
    }
    begin += run.windows();
    at = run.end(last_of);
  }
}

// --- rows times W --------------------------------------------------------------------------------------------------

// 16 real rows of a matrix, of which a warp has 64 columns: x := x W.
template <class T>
class MultipliedRows {
 public:
  // count: real rows of the matrix, in columns of so many numbers; `own`: the first row of the warp.
  __device__ MultipliedRows(T* rows, int k, int count, int own)
      : rows_(rows + own + lane() / 4), k_(k), count_(count), left_(count - own - lane() / 4) {}

  // The columns of block b, 32 b .. 32 b + 31: to the right half, or from one of the halves.
  __device__ __forceinline__ void load(int b, double (&to)[16]) const {
#pragma unroll
    for (int x = 0; x < 16; ++x) to[x] = is_there(b, x) ? static_cast<double>(*at(b, x)) : 0.0;
  }
  __device__ __forceinline__ void store(int b, const double (&from)[16]) const {
#pragma unroll
    for (int x = 0; x < 16; ++x) {
      if (is_there(b, x)) *at(b, x) = static_cast<T>(from[x]);
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // x = 4 tile + 2 h + e: row g + 8 h, column 8 tile + 2 t + e of the block.
  static __device__ __forceinline__ int column(int b, int x) {
    return scalar::RotationWindow::kHalf * b + x / 4 * 8 + lane() % 4 * 2 + x % 2;
  }
  __device__ __forceinline__ bool is_there(int b, int x) const { return x / 2 % 2 * 8 < left_ && column(b, x) < k_; }
  __device__ __forceinline__ T* at(int b, int x) const {
    return rows_ + static_cast<int64_t>(column(b, x)) * count_ + x / 2 % 2 * 8;
  }

  T* const rows_;
  const int k_, count_, left_;
};

// (left, right) := (left, right) W
__device__ __forceinline__ void multiply_window(const double* w, double (&left)[16], double (&right)[16]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  double sums[WindowOrder::kTiles][4];
#pragma unroll
  for (int tile = 0; tile < WindowOrder::kTiles; ++tile) {
#pragma unroll
    for (double& x : sums[tile]) x = 0;
  }
#pragma unroll
  for (int chunk = 0; chunk < WindowOrder::kChunks; ++chunk) {
    double a[8];
#pragma unroll
    for (int x = 0; x < 8; ++x) {
      const int c = x / 2, h = x % 2, from = (2 * (chunk % 2) + c / 2) * 4 + 2 * h + c % 2;
      a[x] = chunk < 2 ? left[from] : right[from];
    }
#pragma unroll
    for (int tile = 0; tile < WindowOrder::kTiles; ++tile) {
      double b[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const double2 v = *reinterpret_cast<const double2*>(w + WindowOrder::place(chunk, tile, half, lane));
        b[2 * half] = v.x;
        b[2 * half + 1] = v.y;
      }
      multiply_16x8x16(sums[tile], a, b);
    }
  }
#pragma unroll
  for (int x = 0; x < 16; ++x) {
    left[x] = sums[x / 4][x % 4];
    right[x] = sums[4 + x / 4][x % 4];
  }
}

// W of a window after the other, from the device's memory to shared memory: one is copied while another is used.
class WindowCopies {
 public:
  static constexpr int kBytes = 2 * WindowOrder::kElements * static_cast<int>(sizeof(double));

  __device__ WindowCopies(const double* from, int windows, void* shared)
      : from_(from), windows_(windows), shared_(static_cast<double*>(shared)) {
    ask();
  }
  // The next window's, until the next call. All threads of the block call it together.
  __device__ __forceinline__ const double* next() {
    __pipeline_wait_prior(0);
    __syncthreads();
    const double* const own = shared_ + (asked_ - 1) % 2 * WindowOrder::kElements;
    ask();
    return own;
  }

 private:
  __device__ __forceinline__ void ask() {
    if (asked_ < windows_) {
      const double* const from = from_ + static_cast<int64_t>(asked_) * WindowOrder::kElements;
      double* const to = shared_ + asked_ % 2 * WindowOrder::kElements;
      for (int x = 2 * static_cast<int>(threadIdx.x); x < WindowOrder::kElements; x += 2 * kWindowBlock) {
        __pipeline_memcpy_async(to + x, from + x, 16);
      }
    }
    __pipeline_commit();
    ++asked_;
  }

  const double* const from_;
  const int windows_;
  double* const shared_;
  int asked_ = 0;
};

template <class E, int kSides>
__global__ void __launch_bounds__(kWindowBlock, 1)
    multiply_kernel(int k, const SweptMemory<E, kSides> memory, int first_side, int round) {
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int count = k * E::kComponents, strips = window_strips(k, E::kComponents), windows = most_windows(k);
  const int64_t m = blockIdx.x / strips;
  if (is_done_before(memory, m, round)) return;
  const VectorSide<E>& side = memory.sides[first_side + static_cast<int>(blockIdx.y)];
  const int own = static_cast<int>(blockIdx.x) % strips * kWindowRows + static_cast<int>(threadIdx.x) / 32 * 16;
  const MultipliedRows<T> rows(reinterpret_cast<T*>(side.rows + m * k * k), k, count, own);
  WindowCopies copies(side.products + m * windows * WindowOrder::kElements, windows, shared_bytes);
  const int32_t* const last = memory.last + m * memory.groups_most;
  const auto last_of = [&](int group) { return last[group]; };
  const int groups = memory.groups[m];
  for (scalar::RotationCursor at{0, 0}; at.group < groups;) {
    const scalar::RotationRun run(at, groups, last_of);
    const int first = run.first_window(), end = first + run.windows();
    double left[16], right[16], next[16];
    // Nothing is left of block 0.
    if (first > 0) {
      rows.load(first - 1, left);
    } else {
#pragma unroll
      for (double& x : left) x = 0;
    }
    rows.load(first, next);
    for (int b = first; b < end; ++b) {
#pragma unroll
      for (int x = 0; x < 16; ++x) right[x] = next[x];
      const double* const w = copies.next();
      if (b + 1 < end) rows.load(b + 1, next);
      multiply_window(w, left, right);
      if (b > 0) rows.store(b - 1, left);
#pragma unroll
      for (int x = 0; x < 16; ++x) left[x] = right[x];
    }
    rows.store(end - 1, left);
    at = run.end(last_of);
  }
}

// --- results -------------------------------------------------------------------------------------------------------

// found: k a matrix, in no order. Singular values are their moduli, the largest first; eigenvalues are ascending.
template <class E, int kSides>
__global__ void __launch_bounds__(kWindowBlock)
    order_kernel(const SquareCall<typename E::Scalar> call, const SweptMemory<E, kSides> memory,
                 const Lane<typename E::Scalar>* found) {
  using T = typename E::Scalar;
  using L = Lane<T>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  L* const d = reinterpret_cast<L*>(shared_bytes);
  const int64_t m = blockIdx.x;
  const int k = call.k, thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < k; i += kWindowBlock) d[i] = found[m * k + i];
  __syncthreads();
  const int state = static_cast<int>(memory.between.state[m]);
  const auto scale = scalar::make_pow2(L(memory.between.exponent[m]));
  bool in_range = true;
  for (int i = thread; i < k; i += kWindowBlock) {
    const int place = kSides == 2 ? scalar::place_of(k, i, d) : scalar::ascending_place_of(k, i, d);
    const L value = (kSides == 2 ? abs(d[i]) : d[i]) * scale + L(0);
    in_range = in_range && (abs(value) <= L(FloatTraits<T>::kLargest)).m;
    memory.places[m * k + i] = place;
    call.values[m * k + place] = state == kNonFiniteState ? FloatTraits<T>::nan() : value.v;
  }
  in_range = __syncthreads_and(in_range) != 0;
  if (thread > 0) return;
  record_status(call, m,
                static_cast<int>(scalar::status_of(state != kNonFiniteState, in_range, state == kNotConvergedState)));
}

// Vectors in the order of values, 32 rows a block.
template <class E, int kSides>
__global__ void __launch_bounds__(kWindowBlock)
    write_vectors_kernel(const VectorsCall<E> call, const SweptMemory<E, kSides> memory, int first_side) {
  using T = typename E::Scalar;
  constexpr int kTile = 32;
  __shared__ E tile[kTile][kTile + 1];
  const int k = call.square.k, x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const RowsOfBlock<E, kTile> rows(k, memory, first_side);
  const int64_t m = rows.matrix;
  const Columns<E>& to = rows.is_left ? call.x : call.y;
  E* const data = to.data + m * to.matrix_stride + rows.first * to.row_stride;
  const bool finite = static_cast<int>(memory.between.state[m]) != kNonFiniteState;
  for (int begin = 0; begin < k; begin += kTile) {
    __syncthreads();
    for (int i = y; i < kTile && begin + i < k; i += kWindowBlock / kTile) {
      if (x < rows.count) tile[i][x] = load_element(rows.in_memory + (begin + i) * k + x);
    }
    __syncthreads();
    for (int z = y; z < kTile; z += kWindowBlock / kTile) {
      const bool along_rows = to.row_stride == 1;
      const int i = along_rows ? z : x, r = along_rows ? x : z;
      if (begin + i >= k || r >= rows.count) continue;
      const int place = memory.places[m * k + begin + i];
      if (place >= to.columns) continue;
      const Lane<T> sign(rows.is_left && memory.d[m * k + begin + i].v < 0 ? -1 : 1);
      store_element(canonical(scaled(tile[i][r], sign), to.conjugate, finite),
                    data + r * to.row_stride + place * to.col_stride);
    }
  }
}

// --- launching -----------------------------------------------------------------------------------------------------

// A matrix a block, of which each thread makes a sweep. k <= K.
template <int K, class Sweeps, class E>
void launch_sweeps_at_once(Launch* launch, const SquareCall<typename E::Scalar>& call,
                           const SweptMemory<E, Sweeps::kSides>& memory, int round, bool is_last) {
  const int slot = sweep_slot(call.k) * static_cast<int>(sizeof(typename E::Scalar));
  launch->operator()<sweep_kernel<E, Sweeps, WarpThreads<sweeps_at_once(K)>>>(
      static_cast<unsigned>(call.count), sweeps_at_once(K), slot, call, memory, round, is_last);
}

// Rows of Q, then sweeps, their windows, and rows times these, for the sides from first_side on. k <= K.
template <int K, class Sweeps, class E>
void launch_windows(Launch* launch, const SquareCall<typename E::Scalar>& call,
                    const SweptMemory<E, Sweeps::kSides>& memory, int first_side, int sides) {
  using T = typename E::Scalar;
  constexpr int kSides = Sweeps::kSides;
  const int k = call.k, rounds = rotation_rounds(k);
  const auto blocks = [&](int64_t of_matrix) {
    return dim3(static_cast<unsigned>(call.count * of_matrix), static_cast<unsigned>(sides));
  };
  launch_reflect<K>(launch, k, call.count, memory, first_side, sides);
  for (int round = 0; round < rounds; ++round) {
    launch_sweeps_at_once<K, Sweeps>(launch, call, memory, round, round + 1 == rounds);
    if (round == 0) {
      launch->operator()<apply_phases_kernel<E, kSides>>(blocks(1), kWindowBlock, 0, k, memory, first_side);
    }
    const int row_bytes = RotatedRows<Real<T>>::shared_bytes(WindowOrder::kColumns);
    launch->operator()<gather_kernel<E, kSides>>(blocks(kGatherBlocks), 32, RotationSlots<T>::kBytes + row_bytes, k,
                                                 memory, first_side, round);
    launch->operator()<multiply_kernel<E, kSides>>(blocks(window_strips(k, E::kComponents)), kWindowBlock,
                                                   WindowCopies::kBytes, k, memory, first_side, round);
  }
}

// found: as order_kernel takes them.
template <class E, int kSides>
void launch_order(Launch* launch, const VectorsCall<E>& call, const SweptMemory<E, kSides>& memory,
                  const Lane<typename E::Scalar>* found, int first_side, int sides) {
  const int k = call.square.k;
  const int64_t count = call.square.count;
  launch->operator()<order_kernel<E, kSides>>(static_cast<unsigned>(count), kWindowBlock,
                                              k * static_cast<int>(sizeof(typename E::Scalar)), call.square, memory,
                                              found);
  if (sides == 0) return;
  launch->operator()<write_vectors_kernel<E, kSides>>(RowsOfBlock<E, 32>::grid(k, count, sides), kWindowBlock, 0, call,
                                                      memory, first_side);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_WINDOW_KERNELS_H_
