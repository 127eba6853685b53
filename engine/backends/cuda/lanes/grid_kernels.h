// BIDIAGONAL of matrices too large for one thread's registers: a few threads of a warp have one in theirs.
//
//   grid_bidiagonalize_kernel   A -> q, e (Between)
// finish_kernel.h has the rest. The recurrences of dqds cannot be shared by threads.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_

#include "engine/algorithms/blocks/bidiagonalize_in_registers.h"
#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// The threads of a k x k matrix, k <= K.
template <class E, int K>
struct BidiagonalGrid {
  static constexpr int kThreads = grid_threads(K * K * static_cast<int>(sizeof(E)), sizeof(typename E::Scalar));
  static constexpr int C = kThreads >= 16 ? 4 : 2, R = kThreads / C;
  static constexpr bool kFits = K % R == 0;             // else a matrix takes the next K
  static constexpr int kTeams = kGridBlock / kThreads;  // of a block
  using Algorithm = scalar::BidiagonalizeInRegisters<WarpPart<kThreads>, E, K, R, C>;
};

template <class E, int K>
__global__ void __launch_bounds__(kGridBlock)
    grid_bidiagonalize_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using Grid = BidiagonalGrid<E, K>;
  using Algorithm = typename Grid::Algorithm;
  using T = typename E::Scalar;
  const WarpPart<Grid::kThreads> threads;
  const int k = call.k;
  const Algorithm algorithm(threads, k);
  const int64_t number =
      static_cast<int64_t>(blockIdx.x) * Grid::kTeams + static_cast<int>(threadIdx.x) / Grid::kThreads;
  // A team without a matrix computes the last one, too: all threads of a warp exchange what they have.
  const int64_t m = number < call.count ? number : call.count - 1;
  const bool writes = number < call.count && threads.index() == 0;

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
  const auto diagonal = [&](int j, Lane<T> x) {
    if (writes) to.q[j * call.count + m] = x.v;
  };
  const auto superdiagonal = [&](int j, Lane<T> x) {
    if (writes) to.e[j * call.count + m] = x.v;
  };
  algorithm.run(a, diagonal, superdiagonal);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_GRID_KERNELS_H_
