// BIDIAGONAL of matrices too large for one thread's registers: 4 to 64 threads have one in theirs.
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
struct BidiagonalGrid {
  using T = typename E::Scalar;
  static constexpr int kThreads = grid_threads(K * K * static_cast<int>(sizeof(E)), sizeof(T));
  static constexpr bool kIsBlock = kThreads >= 64;
  static constexpr int R = kThreads == 256 ? 16 : kThreads >= 32 ? 8 : kThreads >= 8 ? 4 : 2, C = kThreads / R;
  static constexpr bool kFits = K % R == 0 && kThreads <= 256;  // else a matrix takes the next K
  static constexpr int kBlock = kIsBlock ? kThreads : kGridBlock, kTeams = kBlock / kThreads;
  static constexpr int kMail = kIsBlock ? K / R * E::kComponents : 0;
  using Threads = std::conditional_t<kIsBlock, SeveralWarps<T, kThreads, kMail>, WarpPart<kIsBlock ? 32 : kThreads>>;
  using Algorithm = scalar::BidiagonalizeInRegisters<Threads, E, K, R, C>;

  static __device__ __forceinline__ Threads threads() {
    if constexpr (kIsBlock) {
      __shared__ T mail[2 * kThreads * kMail];
      return Threads(mail);
    } else {
      return {};
    }
  }
};

// One matrix by the threads of a grid. One thread calls diagonal(m, j, x) and superdiagonal(m, j, x) for matrix m.
// reflectors_of(m, is_own): as BidiagonalizeInRegisters takes them; nothing may be written if m is not the team's own.
template <class E, int K, class Diagonal, class Superdiagonal, class ReflectorsOf>
__device__ __forceinline__ void grid_bidiagonalize(const SquareCall<typename E::Scalar>& call,
                                                   const Between<typename E::Scalar>& to, Diagonal diagonal,
                                                   Superdiagonal superdiagonal, ReflectorsOf reflectors_of) {
  using Grid = BidiagonalGrid<E, K>;
  using Algorithm = typename Grid::Algorithm;
  using T = typename E::Scalar;
  const int k = call.k;
  Algorithm algorithm(Grid::threads(), k);
  const int64_t number =
      static_cast<int64_t>(blockIdx.x) * Grid::kTeams + static_cast<int>(threadIdx.x) / Grid::kThreads;
  // A team without a matrix computes the last one, too: all threads of a warp exchange what they have.
  const int64_t m = number < call.count ? number : call.count - 1;
  const bool writes = number < call.count && threadIdx.x % Grid::kThreads == 0;

  E a[Algorithm::kCols][Algorithm::kRows];
  const E* const from = reinterpret_cast<const E*>(call.a) + m * k * k;
  const int row_stride = call.row_major ? k : 1, col_stride = call.row_major ? 1 : k;
  SVD_UNROLL for (int c = 0; c < Algorithm::kCols; ++c) {
    SVD_UNROLL for (int r = 0; r < Algorithm::kRows; ++r) {
      const int row = algorithm.row(r), col = algorithm.col(c);
      const bool is_inside = row < k && col < k;
      a[c][r] = is_inside ? from[row * row_stride + col * col_stride] : scalar::zero_element<E>();
    }
  }
  Lane<T> exponent;
  const bool finite = algorithm.scale(a, &exponent);
  if (writes) {
    to.exponent[m] = exponent.v + (call.exponents == nullptr ? T(0) : call.exponents[m * k]);
    to.state[m] = T(finite ? kOkState : kNonFiniteState);
  }
  algorithm.run(
      a,
      [&](int j, Lane<T> x) {
        if (writes) diagonal(m, j, x);
      },
      [&](int j, Lane<T> x) {
        if (writes) superdiagonal(m, j, x);
      },
      reflectors_of(m, number < call.count));
}

template <class E, int K>
__global__ void __launch_bounds__(BidiagonalGrid<E, K>::kBlock)
    grid_bidiagonalize_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using T = typename E::Scalar;
  const auto diagonal = [&](int64_t m, int j, Lane<T> x) { to.q[j * call.count + m] = x.v; };
  const auto superdiagonal = [&](int64_t m, int j, Lane<T> x) { to.e[j * call.count + m] = x.v; };
  grid_bidiagonalize<E, K>(call, to, diagonal, superdiagonal, [](int64_t, bool) { return scalar::NoReflectors(); });
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_
