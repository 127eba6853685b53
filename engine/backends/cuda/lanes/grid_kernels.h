// BIDIAGONAL of matrices too large for one thread's registers: 4 to 256 threads have one in theirs.
//
//   grid_bidiagonalize_kernel   A -> q, e (Between)
// finish_kernel.h has the rest. The recurrences of dqds cannot be shared by threads.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_

#include <type_traits>

#include "engine/algorithms/blocks/bidiagonalize_in_registers.h"
#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// The threads of a k x k matrix, k <= K: some of a warp, or two or eight warps, which are a block.
template <class E, int K>
struct GridOfThreads {
  using T = typename E::Scalar;
  static constexpr int kThreads = grid_threads(K * K * static_cast<int>(sizeof(E)), sizeof(T));
  static constexpr bool kIsBlock = kThreads >= 64;
  static constexpr int R = kThreads == 256 ? 16 : kThreads >= 32 ? 8 : kThreads >= 8 ? 4 : 2, C = kThreads / R;
  static constexpr bool kFits = K % R == 0;  // else a matrix takes the next K
  static constexpr int kBlock = kIsBlock ? kThreads : kGridBlock, kTeams = kBlock / kThreads;
  static constexpr int kMail = kIsBlock ? K / R * E::kComponents : 0;
  static constexpr int kSharedBytes = 2 * kThreads * kMail * static_cast<int>(sizeof(T));
  // Columns of a thread that registers have no room for.
  static constexpr int elsewhere() {
    int columns = 0;
    while ((K / C - columns) * (K / R) * static_cast<int>(sizeof(E)) > grid_registers(sizeof(T))) ++columns;
    return columns;
  }
  static constexpr int kElsewhere = elsewhere();
  // The planner knows, too.
  static constexpr DType kType = E::kComplex && sizeof(T) == 8 ? DType::kC128 : DType::kF64;
  static_assert((kElsewhere == 0) == (K <= largest_in_registers(kType)));
  // The smallest matrices have as much memory for vectors.
  static_assert(kElsewhere * (K / R) * kThreads <= (K - grid_sizes(K)) * (K - grid_sizes(K)));
  using Threads = std::conditional_t<kIsBlock, SeveralWarps<T, kThreads, kMail>, WarpPart<kIsBlock ? 32 : kThreads>>;

  static __device__ __forceinline__ Threads threads() {
    if constexpr (kIsBlock) {
      extern __shared__ __align__(16) unsigned char shared_bytes[];
      return Threads(reinterpret_cast<T*>(shared_bytes));
    } else {
      return {};
    }
  }
};

// The matrix of a grid's threads, and the algorithm A of algorithms/blocks/register_grid.h that they have for it. The
// compiler inlines no large lambdas, so kernels call A themselves.
template <template <class, class, int, int, int> class A, class E, int K>
struct MatrixOfGrid {
  using Grid = GridOfThreads<E, K>;
  using T = typename E::Scalar;
  using Algorithm = A<typename Grid::Threads, E, K, Grid::R, Grid::C>;
  using Part = scalar::PartOfMatrix<E, Algorithm::kCols, Algorithm::kRows, Grid::kElsewhere, Grid::kThreads>;

  __device__ __forceinline__ explicit MatrixOfGrid(const SquareCall<T>& call) : algorithm(Grid::threads(), call.k) {
    const int64_t number =
        static_cast<int64_t>(blockIdx.x) * Grid::kTeams + static_cast<int>(threadIdx.x) / Grid::kThreads;
    is_own = number < call.count;
    m = is_own ? number : call.count - 1;
  }
  __device__ __forceinline__ bool is_first_thread() const { return threadIdx.x % Grid::kThreads == 0; }

  // element(row, col): of matrix m. Scales it.
  template <class Element>
  __device__ __forceinline__ void load(const SquareCall<T>& call, const Between<T>& to, Element element, Part& a) {
    SVD_UNROLL for (int c = 0; c < Algorithm::kCols; ++c) {
      SVD_UNROLL for (int r = 0; r < Algorithm::kRows; ++r) {
        const int row = algorithm.row(r), col = algorithm.col(c);
        const bool is_inside = row < call.k && col < call.k;
        a[c][r] = is_inside ? element(row, col) : scalar::zero_element<E>();
      }
    }
    Lane<T> exponent;
    const bool finite = algorithm.scale(a, &exponent);
    if (is_own && is_first_thread()) {
      to.exponent[m] = exponent.v + (call.exponents == nullptr ? T(0) : call.exponents[m * call.k]);
      to.state[m] = T(finite ? kOkState : kNonFiniteState);
    }
  }

  Algorithm algorithm;
  int64_t m;
  bool is_own;  // else the team has none, and computes the last one: all threads of a warp exchange what they have
};

// Bidiagonalization. One thread calls diagonal(m, j, x) and superdiagonal(m, j, x) for matrix m.
// reflectors_of(m, is_own): as BidiagonalizeInRegisters takes them; nothing may be written if m is not the team's own.
// elsewhere: k k elements a matrix for what registers have no room for.
template <class E, int K, class Diagonal, class Superdiagonal, class ReflectorsOf>
__device__ __forceinline__ void grid_bidiagonalize(const SquareCall<typename E::Scalar>& call,
                                                   const Between<typename E::Scalar>& to, E* elsewhere,
                                                   Diagonal diagonal, Superdiagonal superdiagonal,
                                                   ReflectorsOf reflectors_of) {
  using T = typename E::Scalar;
  using Matrix = MatrixOfGrid<scalar::BidiagonalizeInRegisters, E, K>;
  const int k = call.k, row_stride = call.row_major ? k : 1, col_stride = call.row_major ? 1 : k;
  Matrix matrix(call);
  const int64_t m = matrix.m;
  const E* const from = reinterpret_cast<const E*>(call.a) + m * k * k;
  typename Matrix::Part a(elsewhere + m * k * k + threadIdx.x);
  matrix.load(
      call, to, [&](int row, int col) { return from[row * row_stride + col * col_stride]; }, a);
  const bool writes = matrix.is_own && matrix.is_first_thread();
  matrix.algorithm.run(
      a,
      [&](int j, Lane<T> x) {
        if (writes) diagonal(m, j, x);
      },
      [&](int j, Lane<T> x) {
        if (writes) superdiagonal(m, j, x);
      },
      reflectors_of(m, matrix.is_own));
}

template <class E, int K>
__global__ void __launch_bounds__(GridOfThreads<E, K>::kBlock)
    grid_bidiagonalize_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using T = typename E::Scalar;
  const auto diagonal = [&](int64_t m, int j, Lane<T> x) { to.q[j * call.count + m] = x.v; };
  const auto superdiagonal = [&](int64_t m, int j, Lane<T> x) { to.e[j * call.count + m] = x.v; };
  static_assert(GridOfThreads<E, K>::kElsewhere == 0);
  grid_bidiagonalize<E, K>(call, to, static_cast<E*>(nullptr), diagonal, superdiagonal,
                           [](int64_t, bool) { return scalar::NoReflectors(); });
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_
