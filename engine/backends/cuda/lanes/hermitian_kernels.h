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
  bool tridiagonal;                       // the method; k <= kLargestTridiagonal
  bool upper;                             // the triangle that counts
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
struct HermitianTask : VectorsTask<E, K, kSplit, false> {
  using Base = VectorsTask<E, K, kSplit, false>;
  using Base::team;
  using typename Base::Column;
  using typename Base::L;
  using typename Base::T;
  using typename Base::Team;

  using Run = ElementRun<E, Team::kRows>;
  // Bytes of a block's shared memory, for N of each of its teams: columns of K rows.
  static constexpr int kTeams = kVectorsBlock / Team::kThreads;
  static constexpr int kSharedBytes = kTeams * K * K * static_cast<int>(sizeof(E));

  const E* matrix;
  int row_step, col_step;
  bool upper;
  E* n;  // N = 2^-e M
  L e;

  // shared: kSharedBytes of the block.
  __device__ __forceinline__ HermitianTask(const HermitianCall<E>& call, int64_t m, E* shared)
      : Base{Team(call.square.k), L(call.square.tolerance) * L(call.square.tolerance)},
        matrix(reinterpret_cast<const E*>(call.square.a) + m * call.square.k * call.square.k),
        row_step(call.square.row_major ? call.square.k : 1),
        col_step(call.square.row_major ? 1 : call.square.k),
        upper(call.upper),
        n(shared + static_cast<int>(threadIdx.x) / Team::kThreads * K * K),
        e(T(0)) {}

  // Rows of column `place` of M; zeros beyond it.
  __device__ __forceinline__ void load(E (&column)[Team::kRows], int place) const {
    const auto at = [&](int i, int j) { return load_element(matrix + i * row_step + j * col_step); };
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      const int row = i * kSplit + team.part;
      column[i] = row < team.k && place < team.k ? scalar::hermitian_element<E>(at, upper, row, place)
                                                 : scalar::zero_element<E>();
    }
  }
  __device__ __forceinline__ static L magnitude_of(const E (&column)[Team::kRows]) {
    L largest(T(0));
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) largest = scalar::raise_to_any_magnitude(largest, column[i]);
    return largest;
  }
  __device__ __forceinline__ void scale(E (&column)[Team::kRows], bool finite) const {
    const auto by = scalar::make_pow2(-e);
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      column[i] = finite ? scalar::scaled(column[i], by) : scalar::zero_element<E>();
    }
  }

  // The columns of both places become those of B. Returns whether M is finite.
  __device__ __forceinline__ bool load_shifted(int place_p, int place_q) {
    load(this->p.x, place_p);
    load(this->q.x, place_q);
    const L of_p = magnitude_of(this->p.x), of_q = magnitude_of(this->q.x), most(FloatTraits<T>::kLargest);
    const bool finite = !team.any(!((of_p <= most).m && (of_q <= most).m));
    L largest = scalar::larger(of_p, of_q);
    SVD_UNROLL for (int d = 1; d < Team::kThreads; d *= 2) largest =
        scalar::larger(team.exchanged(largest, d), largest);
    e = finite ? scalar::binary_exponent(largest) : L(T(0));
    scale(this->p.x, finite);
    scale(this->q.x, finite);
    keep(this->p.x, place_p);
    keep(this->q.x, place_q);
    team.threads.sync();
    const L of_columns[2] = {team.square_of(this->p.x), team.square_of(this->q.x)};
    const L square = scalar::sum_of(team.k, L(T(0)), [&](L sum, int j) {
      const L even(team.from(of_columns[0].v, j / 2)), odd(team.from(of_columns[1].v, j / 2));
      return sum + (j % 2 == 0 ? even : odd);
    });
    shift(this->p, place_p, scalar::hermitian_shift(square));
    shift(this->q, place_q, scalar::hermitian_shift(square));
    return finite;
  }
  // A column of N to shared memory, and back.
  __device__ __forceinline__ void keep(E (&column)[Team::kRows], int place) const {
    if constexpr (kSplit == 1) {
      Run::store(column, n + place * K);
    } else {
      SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) store_element(column[i], n + place * K + i * kSplit + team.part);
    }
  }
  __device__ __forceinline__ void kept(E (&column)[Team::kRows], int place) const {
    if constexpr (kSplit == 1) {
      Run::load(n + place * K, column);
    } else {
      SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column[i] = load_element(n + place * K + i * kSplit + team.part);
    }
  }
  __device__ __forceinline__ void shift(Column& column, int place, L by) const {
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) {
      if (i * kSplit + team.part == place && place < team.k) column.x[i].re = column.x[i].re + by;
    }
    column.scale = {L(T(0)), L(FloatTraits<T>::kScaleSquare)};
  }

  // u_j in place.
  __device__ __forceinline__ void make_unit(Column& column) const {
    const L norm = sqrt(team.square_of(column.x)), inverse = L(T(1)) / norm;
    SVD_UNROLL for (int i = 0; i < Team::kRows; ++i) column.x[i] = scalar::normalized(column.x[i], norm, inverse);
  }

  // The eigenvalues of N of both columns. All threads of a pair know row i of N u_j. The one that has row i of u_j
  // adds its part of the quotient.
  __device__ __forceinline__ void eigenvalues(L& of_p, L& of_q) const {
    L sums_p[Team::kPartials], sums_q[Team::kPartials];
    SVD_UNROLL for (int s = 0; s < Team::kPartials; ++s) sums_p[s] = sums_q[s] = L(T(0));
    for (int i = 0; i < team.k; ++i) {
      E row[Team::kRows];  // N is Hermitian: column i, conjugated by the product
      kept(row, i);
      const E with_p = team.product_of(row, this->p.x), with_q = team.product_of(row, this->q.x);
      SVD_UNROLL for (int r = 0; r < Team::kRows; ++r) {
        if (r * kSplit + team.part != i) continue;
        L &sum_p = sums_p[r % Team::kPartials], &sum_q = sums_q[r % Team::kPartials];
        sum_p = scalar::add_real_product(sum_p, this->p.x[r], with_p);
        sum_q = scalar::add_real_product(sum_q, this->q.x[r], with_q);
      }
    }
    of_p = team.joined(sums_p);
    of_q = team.joined(sums_q);
  }

  // The number of a place in ascending order; equal values in the order of their places.
  __device__ __forceinline__ int number_of(L lambda, int place, L of_p, L of_q) const {
    int before = 0;
    for (int j = 0; j < team.k; ++j) {
      const T even = team.from(of_p.v, j / 2), odd = team.from(of_q.v, j / 2), other = j % 2 == 0 ? even : odd;
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
  const int64_t m = static_cast<int64_t>(blockIdx.x) * (kVectorsBlock / Task::Team::kThreads) +
                    static_cast<int>(threadIdx.x) / Task::Team::kThreads;
  if (m >= square.count) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Task task(call, m, reinterpret_cast<E*>(shared_bytes));
  const int place_p = 2 * task.team.pair, place_q = place_p + 1;
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
      task.team.any((place_p < k && !(abs(of_p) <= most).m) || (place_q < k && !(abs(of_q) <= most).m));
  if (task.team.pair == 0 && task.team.part == 0) {
    record_status(square, m, static_cast<int>(scalar::status_of(finite, !out_of_range, unfinished)));
  }
  const auto store = [&](auto& column, int place, int r, L lambda) {
    if (place >= k) return;
    if (task.team.part == 0) square.values[m * k + r] = finite ? lambda.v : FloatTraits<T>::nan();
    task.store(column.x, call.u, m, r, finite);
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
  if (call.tridiagonal) return launch_lane_hermitian<E, 1, true>(launch, call);
  if (k <= kLargestLaneVectors) return launch_lane_hermitian<E, 1, false>(launch, call);
  if (k <= 8) return launch_team_hermitian<E, 8>(launch, call);
  k <= 16 ? launch_team_hermitian<E, 16>(launch, call) : launch_team_hermitian<E, 32>(launch, call);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_HERMITIAN_KERNELS_H_
