// U, S and V of k x k matrices by bidiagonalization, 33 <= k <= 128:
//
//   reduce_kernel        A = Q B P^H              algorithms/blocks/bidiagonalize_in_registers.h, a grid of threads
//   (row_kernels.h       B = U_B S V_B^T          algorithms/lanes/golub_kahan.h, and rows of U and V)
//   finish_kernel        S in order               lanes/finish_kernel.h
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_

#include "engine/algorithms/lanes/golub_kahan.h"
#include "engine/backends/cuda/by_rows/bidiagonal_launch.h"
#include "engine/backends/cuda/by_rows/row_kernels.h"
#include "engine/backends/cuda/lanes/finish_kernel.h"
#include "engine/backends/cuda/lanes/grid_kernels.h"

namespace svdserve::cuda {

// --- A = Q B P^H ---------------------------------------------------------------------------------------------------

template <class E>
struct ReflectorsInMemory {
  using L = typename E::Lane;
  static constexpr bool kWanted = true;
  const SweptMemory<E, 2>& memory;
  int64_t m;
  int k, pitch;
  bool writes;

  __device__ __forceinline__ void left(int j, int i, const E& h) const { put(memory.sides[0], j, i, h); }
  __device__ __forceinline__ void right(int j, int i, const E& h) const { put(memory.sides[1], j, i, h); }
  __device__ __forceinline__ void left_end(int j, L g, const E& b) const { end(memory.sides[0], j, g, b); }
  __device__ __forceinline__ void right_end(int j, L g, const E& b) const { end(memory.sides[1], j, g, b); }

 private:
  __device__ __forceinline__ void put(const VectorSide<E>& side, int j, int i, const E& h) const {
    if (writes && i < pitch) store_element(h, side.reflectors + (m * k + j) * pitch + i);
  }
  __device__ __forceinline__ void end(const VectorSide<E>& side, int j, L g, const E& b) const {
    if (!writes) return;
    side.g[m * k + j] = g.v;
    store_element(b, side.phases + m * k + j);
  }
};

template <class E, int K>
__global__ void __launch_bounds__(GridOfThreads<E, K>::kBlock)
    reduce_kernel(const SquareCall<typename E::Scalar> call, const SweptMemory<E, 2> memory) {
  using L = typename E::Lane;
  const auto nothing = [](int64_t, int, L) {};
  E* const elsewhere = memory.sides[0].rows;  // which come later
  const int k = call.k, pitch = scalar::padded_row(k);
  grid_bidiagonalize<E, K>(call, memory.between, elsewhere, nothing, nothing, [&](int64_t m, bool is_own) {
    return ReflectorsInMemory<E>{memory, m, k, pitch, is_own};
  });
}

// --- B = U_B S V_B^T -----------------------------------------------------------------------------------------------

// As sweep_kernel takes them.
template <class E>
struct BidiagonalSweeps {
  static constexpr int kSides = 2;
  using L = typename E::Lane;
  template <class Threads>
  using Of = scalar::GolubKahan<L, Threads>;
  using Writer = scalar::RotationWriter<L>;

  static __device__ __forceinline__ L first(const SweptMemory<E, 2>& memory, int k, int64_t m, L* d, L* e) {
    return scalar::split_phases(k, memory.sides[0].phases + m * k, memory.sides[1].phases + m * k, d, e);
  }
  static __device__ __forceinline__ L value(L x) { return abs(x); }
};

// --- launching -----------------------------------------------------------------------------------------------------

template <class E, int K>
void launch_reduce(Launch* launch, const SquareCall<typename E::Scalar>& call, const SweptMemory<E, 2>& memory) {
  if constexpr (K <= kLargestReducedOnGpu) {
    using Grid = GridOfThreads<E, K>;
    if constexpr (Grid::kFits) {
      if (call.k <= K) {
        return launch->operator()<reduce_kernel<E, K>>(blocks_for(call.count, Grid::kTeams), Grid::kBlock,
                                                       Grid::kSharedBytes, call, memory);
      }
    }
    launch_reduce<E, K + grid_sizes(K)>(launch, call, memory);
  }
}

template <class E>
void decompose_part(Launch* launch, const VectorsCall<E>& call, const SweptMemory<E, 2>& memory) {
  using T = typename E::Scalar;
  constexpr int kLeast = static_cast<int>(kLargestReproducible) + grid_sizes(static_cast<int>(kLargestReproducible));
  const SquareCall<T>& square = call.square;
  const int first_side = call.x.data != nullptr ? 0 : 1;
  const int sides = (call.x.data != nullptr ? 1 : 0) + (call.y.data != nullptr ? 1 : 0);
  launch_reduce<E, kLeast>(launch, square, memory);
  launch_vectors<BidiagonalSweeps<E>>(launch, call, memory, first_side, sides);
  const int slot = finish_slot<T, Method::kBisection, 0>(square.k) * static_cast<int>(sizeof(T));
  const int threads = finish_block(slot);
  launch->operator()<finish_kernel<T, Method::kBisection, 0>>(blocks_for(square.count, threads), threads,
                                                              threads * slot, square, memory.between);
}

template <class E>
int64_t BidiagonalLaunch<E>::workspace_bytes(int k, int64_t count) {
  return swept_workspace_bytes<SweptMemory<E, 2>>(k, count);
}

template <class E>
void BidiagonalLaunch<E>::decompose(Launch* launch, const VectorsCall<E>& call, void* workspace) {
  const int k = call.square.k;
  const int64_t count = call.square.count, step = at_once<SweptMemory<E, 2>>(k, count);
  Carver carver(workspace);
  const SweptMemory<E, 2> memory(k, step, &carver);
  for (int64_t m = 0; m < count; m += step) {
    decompose_part(launch, part_of(call, m, std::min(step, count - m)), memory);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_
