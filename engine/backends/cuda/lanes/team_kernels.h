// JACOBI of matrices too large for one thread's registers: a team of threads has one in shared memory.
//
//   jacobi_kernel   A -> s, exponents (Between)
// finish_kernel.h has the rest.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_TEAM_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_TEAM_KERNELS_H_

#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// A team's part of shared memory: the matrix by columns, and vectors of k numbers. Columns have an odd length, so that
// rows and columns are read without bank conflicts.
template <class E>
struct TeamStorage {
  using T = typename E::Scalar;
  static constexpr int kVectors = 3;
  SVD_HD static int leading_dimension(int rows) { return rows | 1; }
  // In numbers; even, so that double stays aligned whatever follows.
  SVD_HD static int size(int rows, int k) {
    return (leading_dimension(rows) * k * E::kComponents + kVectors * k + 1) / 2 * 2;
  }

  E* matrix;
  Lane<T>* vectors;
  __device__ TeamStorage(T* shared, int team, int rows, int k)
      : matrix(reinterpret_cast<E*>(shared + static_cast<size_t>(team) * size(rows, k))),
        vectors(reinterpret_cast<Lane<T>*>(matrix + leading_dimension(rows) * k)) {}
};

// rows x k elements, natural storage to columns in shared memory. Neighbouring threads read neighbouring elements.
template <class E, class Team>
__device__ __forceinline__ void load_matrix(const Team& team, const E* __restrict__ from, int rows, int k,
                                            int64_t row_stride, int64_t col_stride, scalar::MatrixView<E> a,
                                            int threads) {
  const bool by_rows = col_stride == 1;
  const int inner = by_rows ? k : rows, total = rows * k;
  int i = team.rank() / inner, j = team.rank() % inner;  // position in the outer and the inner direction
  const int step_outer = threads / inner, step_inner = threads % inner;
  for (int x = team.rank(); x < total; x += threads) {
    const int row = by_rows ? i : j, col = by_rows ? j : i;
    a(row, col) = from[row * row_stride + col * col_stride];
    i += step_outer;
    j += step_inner;
    if (j >= inner) {
      j -= inner;
      ++i;
    }
  }
  team.sync();
}

// Threads of a block of teams, so that several blocks share a multiprocessor where a team's memory allows it.
inline int team_block(int threads, int team_bytes) {
  int block = kTeamBlock;
  while (block > 32 && block / threads * team_bytes > kTeamBlockBytes) block /= 2;
  return block;
}

template <class E, int kThreads>
struct TeamKernel {
  using T = typename E::Scalar;
  using Team = WarpTeam<kThreads>;

  static __device__ int in_block() { return static_cast<int>(threadIdx.x) / kThreads; }
  // Which matrix, tile or pair the team works on.
  static __device__ int64_t number() {
    return static_cast<int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) / kThreads) + in_block();
  }
  static int team_bytes(int rows, int k) { return TeamStorage<E>::size(rows, k) * static_cast<int>(sizeof(T)); }
};

// Matrix m of a call. Returns the exponents of its columns, or null.
template <class E, class Team>
__device__ __forceinline__ const Lane<typename E::Scalar>* load_square(const Team& team,
                                                                       const SquareCall<typename E::Scalar>& call,
                                                                       int64_t m, scalar::MatrixView<E> a,
                                                                       int threads) {
  const int k = call.k;
  const E* const from = reinterpret_cast<const E*>(call.a) + m * k * k;
  load_matrix(team, from, k, k, call.row_major ? k : 1, call.row_major ? 1 : k, a, threads);
  return reinterpret_cast<const Lane<typename E::Scalar>*>(call.exponents == nullptr ? nullptr
                                                                                     : call.exponents + m * k);
}

template <class E, int kThreads>
__global__ void __launch_bounds__(kTeamBlock)
    jacobi_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using Kernel = TeamKernel<E, kThreads>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const typename Kernel::Team team;
  const int k = call.k;
  const int64_t m = Kernel::number();
  if (m >= call.count) return;
  const TeamStorage<E> storage(reinterpret_cast<T*>(shared_bytes), Kernel::in_block(), k, k);
  const scalar::MatrixView<E> a{storage.matrix, TeamStorage<E>::leading_dimension(k)};
  Lane<T>* const exponents = storage.vectors;
  Lane<T>* const s = exponents + k;
  const Lane<T>* const given = load_square(team, call, m, a, kThreads);
  const auto outcome = scalar::scaled_jacobi(team, a, scalar::RuntimeSize{k}, given, exponents, Lane<T>(call.tolerance),
                                             call.max_sweeps, s);
  for (int i = team.rank(); i < k; i += kThreads) {
    to.q[i * call.count + m] = s[i].v;
    to.e[i * call.count + m] = exponents[i].v;
  }
  if (team.rank() == 0) {
    to.state[m] = T(!outcome.finite.m ? kNonFiniteState : outcome.unfinished.m ? kNotConvergedState : kOkState);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_TEAM_KERNELS_H_
