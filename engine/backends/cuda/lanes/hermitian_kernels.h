// Hermitian matrices, k <= 32, by JACOBI (algorithms/lanes/hermitian_eigen.h) or TRIDIAGONAL (tridiagonal_ql.h):
//
//   lane_hermitian_kernel    k <= 4, either method: a thread a matrix, U and M in its registers
//   team_hermitian_kernel    k <= 32: a team of threads a matrix, as in vectors_kernels.h, with columns of U alone in its
//                            registers; 2^-e M is in shared memory for the Rayleigh quotients
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_HERMITIAN_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_HERMITIAN_KERNELS_H_

#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/algorithms/lanes/tridiagonal_ql.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"

namespace svdserve::cuda {

template <class E>
struct HermitianCall {
  SquareCall<typename E::Scalar> square;  // values: all k a matrix
  Method method;
  bool upper;  // the triangle that counts
  Columns<E> u;
};

// The matrix of a thread, in m. Returns its status.
template <bool kTridiagonal, class E, int K>
__device__ __forceinline__ int decompose_hermitian(const HermitianCall<E>& call, E (&u)[K * K], E (&m)[K * K],
                                                   Lane<typename E::Scalar>* lambda, Lane<typename E::Scalar>* rank) {
  using L = Lane<typename E::Scalar>;
  using R = scalar::RealElement<L>;
  const scalar::MatrixView<E> x{u, K}, matrix{m, K};
  const scalar::FixedSize<K> k;
  if constexpr (kTridiagonal) {
    R z[K * K];
    return static_cast<int>(
        scalar::tridiagonal_eigen(x, matrix, scalar::MatrixView<R>{z, K}, k, call.upper, lambda, rank).v);
  } else {
    scalar::ColumnScale<L> scales[K];
    return static_cast<int>(scalar::hermitian_eigen(x, matrix, k, call.upper, L(call.square.tolerance),
                                                    call.square.max_sweeps, scales, lambda, rank)
                                .v);
  }
}

template <class E, int K, bool kTridiagonal>
__global__ void __launch_bounds__(LaneVectorsShape<E, K>::kBlock) lane_hermitian_kernel(const HermitianCall<E> call) {
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
  Lane<T> lambda[K], rank[K];
  E u[K * K], m[K * K];
  bool finite = false;
  if (lane < n) {
    load_registers<E, K, 1>(slots + lane * Shape::kSlot, call.square.row_major, m);
    const int status = decompose_hermitian<kTridiagonal, E, K>(call, u, m, lambda, rank);
    finite = status != static_cast<int>(MatrixStatus::kNonFinite);
    record_status(call.square, first + lane, status);
  }
  store_lane_columns<E, K>(u, rank, finite, call.u, first, n, lane, slots);
  store_lane_values<E, K>(lambda, rank, finite, call.square, first, n, lane, slots);
}

template <class E, int K, int kSplit>
struct HermitianTask : TeamJacobi<E, K, kSplit, false> {
  using Base = TeamJacobi<E, K, kSplit, false>;
  using Base::k;
  using Base::kPartials;
  using Base::kRows;
  using Base::kThreads;
  using Base::p;
  using Base::part;
  using Base::q;
  using Base::threads;
  using typename Base::Column;
  using typename Base::L;
  using typename Base::T;

  using Run = ElementRun<E, kRows>;
  // Bytes of a block's shared memory, for N of each of its teams: columns of K rows.
  static constexpr int kTeams = kVectorsBlock / kThreads;
  static constexpr int kSharedBytes = kTeams * K * K * static_cast<int>(sizeof(E));

  const E* matrix;
  int row_step, col_step;
  bool upper;
  E* n;  // N = 2^-e M
  L e;

  // shared: kSharedBytes of the block.
  __device__ __forceinline__ HermitianTask(const HermitianCall<E>& call, int64_t m, E* shared)
      : Base({}, call.square.k, call.square.tolerance),
        matrix(reinterpret_cast<const E*>(call.square.a) + m * call.square.k * call.square.k),
        row_step(call.square.row_major ? call.square.k : 1),
        col_step(call.square.row_major ? 1 : call.square.k),
        upper(call.upper),
        n(shared + static_cast<int>(threadIdx.x) / kThreads * K * K),
        e(T(0)) {}

  // Rows of column `place` of M; zeros beyond it.
  __device__ __forceinline__ void load(E (&column)[kRows], int place) const {
    const auto at = [&](int i, int j) { return load_element(matrix + i * row_step + j * col_step); };
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      const int row = i * kSplit + part();
      column[i] =
          row < k && place < k ? scalar::hermitian_element<E>(at, upper, row, place) : scalar::zero_element<E>();
    }
  }
  __device__ __forceinline__ static L magnitude_of(const E (&column)[kRows]) {
    L largest(T(0));
    SVD_UNROLL for (int i = 0; i < kRows; ++i) largest = scalar::raise_to_any_magnitude(largest, column[i]);
    return largest;
  }
  __device__ __forceinline__ void scale(E (&column)[kRows], bool finite) const {
    const auto by = scalar::make_pow2(-e);
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      column[i] = finite ? scalar::scaled(column[i], by) : scalar::zero_element<E>();
    }
  }

  // The columns of both places become those of B. Returns whether M is finite.
  __device__ __forceinline__ bool load_shifted(int place_p, int place_q) {
    load(p.x, place_p);
    load(q.x, place_q);
    const L of_p = magnitude_of(p.x), of_q = magnitude_of(q.x), most(FloatTraits<T>::kLargest);
    const bool finite = !threads().any(!((of_p <= most).m && (of_q <= most).m));
    L largest = scalar::larger(of_p, of_q);
    SVD_UNROLL for (int d = 1; d < kThreads; d *= 2) largest = scalar::larger(this->exchanged(largest, d), largest);
    e = finite ? scalar::binary_exponent(largest) : L(T(0));
    scale(p.x, finite);
    scale(q.x, finite);
    keep(p.x, place_p);
    keep(q.x, place_q);
    threads().sync();
    const L of_columns[2] = {this->square_of(p.x), this->square_of(q.x)};
    const L square = scalar::sum_of(k, L(T(0)), [&](L sum, int j) {
      const L even(this->from(of_columns[0].v, j / 2)), odd(this->from(of_columns[1].v, j / 2));
      return sum + (j % 2 == 0 ? even : odd);
    });
    shift(p, place_p, scalar::hermitian_shift(square));
    shift(q, place_q, scalar::hermitian_shift(square));
    return finite;
  }
  // A column of N to shared memory, where there is one, and back.
  __device__ __forceinline__ void keep(E (&column)[kRows], int place) const {
    if (2 * kThreads > K * kSplit && place >= K) return;
    if constexpr (kSplit == 1) {
      Run::store(column, n + place * K);
    } else {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) store_element(column[i], n + place * K + i * kSplit + part());
    }
  }
  __device__ __forceinline__ void kept(E (&column)[kRows], int place) const {
    if constexpr (kSplit == 1) {
      Run::load(n + place * K, column);
    } else {
      SVD_UNROLL for (int i = 0; i < kRows; ++i) column[i] = load_element(n + place * K + i * kSplit + part());
    }
  }
  __device__ __forceinline__ void shift(Column& column, int place, L by) const {
    SVD_UNROLL for (int i = 0; i < kRows; ++i) {
      if (i * kSplit + part() == place && place < k) column.x[i].re = column.x[i].re + by;
    }
    column.scale = {L(T(0)), L(FloatTraits<T>::kScaleSquare)};
  }

  // u_j in place.
  __device__ __forceinline__ void make_unit(Column& column) const {
    const L norm = sqrt(this->square_of(column.x)), inverse = L(T(1)) / norm;
    SVD_UNROLL for (int i = 0; i < kRows; ++i) column.x[i] = scalar::normalized(column.x[i], norm, inverse);
  }

  // The eigenvalues of N of both columns. All threads of a pair know row i of N u_j. The one that has row i of u_j
  // adds its part of the quotient.
  __device__ __forceinline__ void eigenvalues(L& of_p, L& of_q) const {
    L sums_p[kPartials], sums_q[kPartials];
    SVD_UNROLL for (int s = 0; s < kPartials; ++s) sums_p[s] = sums_q[s] = L(T(0));
    for (int i = 0; i < k; ++i) {
      E row[kRows];  // N is Hermitian: column i, conjugated by the product
      kept(row, i);
      const E with_p = this->product_of(row, p.x), with_q = this->product_of(row, q.x);
      SVD_UNROLL for (int r = 0; r < kRows; ++r) {
        if (r * kSplit + part() != i) continue;
        L &sum_p = sums_p[r % kPartials], &sum_q = sums_q[r % kPartials];
        sum_p = scalar::add_real_product(sum_p, p.x[r], with_p);
        sum_q = scalar::add_real_product(sum_q, q.x[r], with_q);
      }
    }
    of_p = this->joined(sums_p);
    of_q = this->joined(sums_q);
  }

  // The number of a place in ascending order; equal values in the order of their places.
  __device__ __forceinline__ int number_of(L lambda, int place, L of_p, L of_q) const {
    int before = 0;
    for (int j = 0; j < k; ++j) {
      const T even = this->from(of_p.v, j / 2), odd = this->from(of_q.v, j / 2), other = j % 2 == 0 ? even : odd;
      if (j < place ? other <= lambda.v : j > place && other < lambda.v) ++before;
    }
    return before;
  }
};

template <class E, int K, int kSplit>
__global__ void __launch_bounds__(kVectorsBlock) team_hermitian_kernel(const HermitianCall<E> call) {
  using Task = HermitianTask<E, K, kSplit>;
  using T = typename E::Scalar;
  using L = Lane<T>;
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * (kVectorsBlock / Task::kThreads) +
                    static_cast<int>(threadIdx.x) / Task::kThreads;
  if (m >= square.count) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Task task(call, m, reinterpret_cast<E*>(shared_bytes));
  const int place_p = 2 * task.pair(), place_q = place_p + 1;
  const bool finite = task.load_shifted(place_p, place_q);
  const bool unfinished = task.sweeps(square.max_sweeps);
  task.make_unit(task.p);
  task.make_unit(task.q);
  L of_p, of_q;
  task.eigenvalues(of_p, of_q);
  const int r_p = task.number_of(of_p, place_p, of_p, of_q), r_q = task.number_of(of_q, place_q, of_p, of_q);
  of_p = scalar::finished_eigenvalue(of_p, task.e);
  of_q = scalar::finished_eigenvalue(of_q, task.e);
  const L most(FloatTraits<T>::kLargest);
  const bool out_of_range =
      task.threads().any((place_p < k && !(abs(of_p) <= most).m) || (place_q < k && !(abs(of_q) <= most).m));
  if (task.threads().index() == 0) {
    record_status(square, m, static_cast<int>(scalar::status_of(finite, !out_of_range, unfinished)));
  }
  const auto store = [&](auto& column, int place, int r, L lambda) {
    if (place >= k) return;
    if (task.part() == 0) square.values[m * k + r] = finite ? lambda.v : FloatTraits<T>::nan();
    store_team_column<K, kSplit>(column.x, call.u, m, r, k, task.part(), finite);
  };
  store(task.p, place_p, r_p, of_p);
  store(task.q, place_q, r_q, of_q);
}

// --- launching -------------------------------------------------------------------------------------------

template <class E, int K, bool kTridiagonal>
void launch_lane_hermitian(Launch* launch, const HermitianCall<E>& call) {
  if constexpr (K <= kLargestLaneVectors) {
    if (call.square.k != K) return launch_lane_hermitian<E, K + 1, kTridiagonal>(launch, call);
    using Shape = LaneVectorsShape<E, K>;
    launch->operator()<lane_hermitian_kernel<E, K, kTridiagonal>>(blocks_for(call.square.count, Shape::kBlock),
                                                                  Shape::kBlock, Shape::kSharedBytes, call);
  }
}

template <class E, int K>
void launch_team_hermitian(Launch* launch, const HermitianCall<E>& call) {
  constexpr int kSplit = hermitian_split(K, sizeof(E));
  using Task = HermitianTask<E, K, kSplit>;
  launch->operator()<team_hermitian_kernel<E, K, kSplit>>(blocks_for(call.square.count, Task::kTeams), kVectorsBlock,
                                                          Task::kSharedBytes, call);
}

// Eigenvalues and eigenvectors, k <= kLargestReproducible.
template <class E>
void launch_hermitian(Launch* launch, const HermitianCall<E>& call) {
  static_assert(kLargestTridiagonal <= kLargestLaneVectors);
  const int k = call.square.k;
  if (call.method == Method::kTridiagonal) return launch_lane_hermitian<E, 1, true>(launch, call);
  if (k <= kLargestLaneVectors) return launch_lane_hermitian<E, 1, false>(launch, call);
  with_team_columns(k, [&]<int K>() { launch_team_hermitian<E, K>(launch, call); });
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_HERMITIAN_KERNELS_H_
