// JACOBI with vectors (algorithms/lanes/jacobi_vectors.h) for k x k matrices.
//
//   lane_vectors_kernel    k <= 4: a thread a matrix, both matrices in its registers
//   team_vectors_kernel    k <= 32: a team of threads a matrix, a thread or two for each pair of columns, which are in
//                          registers, those of Y in shared memory where they gain by it (algorithms/blocks/warp_jacobi.h)
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_KERNELS_H_

#include "engine/algorithms/blocks/warp_jacobi.h"
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

template <class E, int K, int kSplit, bool kHasY = true, class YMemory = void>
using TeamJacobi = scalar::WarpJacobi<WarpThreads<scalar::warp_team(K, kSplit)>, E, K, kSplit, kHasY, YMemory>;

// f.template operator()<K>() for the least K of a team that k columns fit, kLargestLaneVectors < k <= kLargestReproducible.
template <class F>
void with_team_columns(int k, F f) {
  if (k <= 6) return f.template operator()<6>();
  if (k <= 8) return f.template operator()<8>();
  if (k <= 12) return f.template operator()<12>();
  if (k <= 16) return f.template operator()<16>();
  k <= 24 ? f.template operator()<24>() : f.template operator()<32>();
}

// A thread's rows part, kSplit + part, .. of a column to `to`, as column r of matrix m.
template <int K, int kSplit, class E, int kRows>
__device__ __forceinline__ void store_team_column(E (&column)[kRows], const Columns<E>& to, int64_t m, int r, int k,
                                                  int part, bool finite) {
  using Run = ElementRun<E, kRows>;
  if (to.data == nullptr || r >= to.columns) return;
  E* const at = to.data + m * to.matrix_stride + r * to.col_stride;
  SVD_UNROLL for (E& x : column) x = canonical(x, to.conjugate, finite);
  if (kSplit == 1 && k == K && to.row_stride == 1 && to.col_stride == K && Run::begins_at(at)) {
    return Run::store(column, at);
  }
  SVD_UNROLL for (int i = 0; i < kRows; ++i) {
    const int row = i * kSplit + part;
    if (row < k) store_element(column[i], at + row * to.row_stride);
  }
}

// Columns of matrix m, as WarpJacobi wants them.
template <class E, int K, int kSplit>
struct TeamSource {
  using Run = ElementRun<E, K / kSplit>;
  const E* from;
  int k, row_step, col_step, part;

  __device__ __forceinline__ void operator()(E (&x)[K / kSplit], int place) const {
    // A whole column lies in one run, or its elements are read one by one. Threads beyond the pairs have no column.
    const bool run = kSplit == 1 && k == K && place < K && row_step == 1 && Run::begins_at(from);
    if (run) return Run::load(from + place * K, x);
    SVD_UNROLL for (int i = 0; i < K / kSplit; ++i) {
      const int row = i * kSplit + part;
      const bool inside = row < k && place < k;
      x[i] = inside ? load_element(from + row * row_step + place * col_step) : scalar::zero_element<E>();
    }
  }
};

template <class E, int K, int kSplit>
struct TeamResults {
  using T = typename E::Scalar;
  const VectorsCall<E>& call;
  int64_t m;
  int part;
  __device__ __forceinline__ void value(int r, T s) const { call.square.values[m * call.square.k + r] = s; }
  __device__ __forceinline__ void columns(E (&x)[K / kSplit], E (&y)[K / kSplit], int r, bool finite) const {
    store_team_column<K, kSplit>(x, call.x, m, r, call.square.k, part, finite);
    store_team_column<K, kSplit>(y, call.y, m, r, call.square.k, part, finite);
  }
};

// A team's Y in shared memory.
template <class E>
struct SharedElements {
  E* all;
  __device__ __forceinline__ E load(int i) const { return load_element(all + i); }
  __device__ __forceinline__ void store(int i, const E& x) const { store_element(x, all + i); }
};

template <class E, int K, int kSplit>
struct TeamVectors {
  static constexpr bool kInShared = are_vectors_in_shared(K, E::kComplex, sizeof(E));
  using Jacobi = TeamJacobi<E, K, kSplit, true, std::conditional_t<kInShared, SharedElements<E>, void>>;
  static constexpr int kTeams = kVectorsBlock / Jacobi::kThreads;
  // Teams of a warp begin at different banks.
  static constexpr int kElements = K * K + Jacobi::kThreads % 32;
  static constexpr int kSharedBytes = kInShared ? kTeams * kElements * static_cast<int>(sizeof(E)) : 0;
};

template <class E, int K, int kSplit>
__global__ void __launch_bounds__(kVectorsBlock) team_vectors_kernel(const VectorsCall<E> call) {
  using Team = TeamVectors<E, K, kSplit>;
  using Jacobi = typename Team::Jacobi;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const SquareCall<typename E::Scalar>& square = call.square;
  const int k = square.k;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * (kVectorsBlock / Jacobi::kThreads) +
                    static_cast<int>(threadIdx.x) / Jacobi::kThreads;
  if (m >= square.count) return;
  typename Jacobi::Memory y{};
  if constexpr (Jacobi::kYInMemory) {
    y.all = reinterpret_cast<E*>(shared_bytes) + static_cast<int>(threadIdx.x) / Jacobi::kThreads * Team::kElements;
  }
  Jacobi jacobi({}, k, square.tolerance, y);
  const TeamSource<E, K, kSplit> source{reinterpret_cast<const E*>(square.a) + m * k * k, k, square.row_major ? k : 1,
                                        square.row_major ? 1 : k, jacobi.part()};
  const auto* const given = square.exponents == nullptr ? nullptr : square.exponents + m * k;
  const MatrixStatus status =
      jacobi.run(source, given, square.max_sweeps, TeamResults<E, K, kSplit>{call, m, jacobi.part()});
  if (jacobi.threads().index() == 0) record_status(square, m, static_cast<int>(status));
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
