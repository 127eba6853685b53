// U, S and V of k x k matrices by bidiagonalization, 33 <= k <= 512:
//
//   reduce_kernel        A = Q B P^H, k <= 128    algorithms/blocks/bidiagonalize_in_registers.h, a grid of threads
//   reduce_in_memory_kernel
//                        the same beyond          algorithms/blocks/bidiagonalize_in_memory.h, a block or a cluster
//   (row_kernels.h       B = U_B S V_B^T          algorithms/lanes/golub_kahan.h, and rows of U and V)
//   bisect_kernel        S alone                  algorithms/lanes/bisected_value.h, a thread a value
//   finish_kernel        S in order               lanes/finish_kernel.h
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_

#include "engine/algorithms/blocks/bidiagonalize_in_memory.h"
#include "engine/algorithms/lanes/bisected_value.h"
#include "engine/algorithms/lanes/golub_kahan.h"
#include "engine/backends/cuda/by_rows/bidiagonal_launch.h"
#include "engine/backends/cuda/by_rows/reduction_launch.h"
#include "engine/backends/cuda/by_rows/row_kernels.h"
#include "engine/backends/cuda/by_rows/window_kernels.h"
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
    if (writes && side.reflectors != nullptr && i < pitch) store_element(h, side.reflectors + (m * k + j) * pitch + i);
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

template <class E, int K, class Threads>
using BidiagonalInMemory = InMemory<scalar::BidiagonalizeInMemory, E, K, Threads>;

template <class E, int K, class Threads>
__global__ void __launch_bounds__(BidiagonalInMemory<E, K, Threads>::kThreads / blocks_of_matrix<Threads>(), 1)
    reduce_in_memory_kernel(const SquareCall<typename E::Scalar> call, const SweptMemory<E, 2> memory) {
  using T = typename E::Scalar;
  using Algorithm = BidiagonalInMemory<E, K, Threads>;
  using Whole = typename Algorithm::Whole;
  const int k = call.k;
  const int64_t m = blockIdx.x / blocks_of_matrix<Threads>();
  const Threads threads;
  Algorithm algorithm(threads, shared_of<Algorithm, Threads>(memory, m), k);
  Whole* const a = reinterpret_cast<Whole*>(memory.sides[0].rows + m * k * k);
  Lane<T> exponent;
  const bool finite = algorithm.load(reinterpret_cast<const Whole*>(call.a) + m * k * k, call.row_major, a, &exponent);
  if (threads.index() == 0) memory.start(call, m, exponent, finite);
  algorithm.run(a, ReflectorsInMemory<E>{memory, m, k, scalar::padded_row(k), true});
}

// As launch_in_memory() takes them.
struct BidiagonalKernels {
  template <class E, int K, class Threads>
  using Algorithm = BidiagonalInMemory<E, K, Threads>;
  template <class E, int K, class Threads>
  static constexpr auto kernel = reduce_in_memory_kernel<E, K, Threads>;
};

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

// Values in descending order, where no vectors are wanted.
template <class E>
__global__ void __launch_bounds__(kBisectBlock) bisect_kernel(int k, const SweptMemory<E, 2> memory) {
  using L = typename E::Lane;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  L* const squares = reinterpret_cast<L*>(shared_bytes);
  const auto blocks = static_cast<int>(blocks_for(k, kBisectBlock)), thread = static_cast<int>(threadIdx.x);
  const int64_t m = blockIdx.x / blocks;
  for (int x = thread; x < 2 * k - 1; x += kBisectBlock) {
    squares[x] = scalar::add_square(L(0), load_element(memory.sides[x % 2].phases + m * k + x / 2));
  }
  __syncthreads();
  const int j = static_cast<int>(blockIdx.x) % blocks * kBisectBlock + thread;
  if (j < k) memory.d[m * k + k - 1 - j] = scalar::BisectedValue<L>(k, squares).value(j);
}

// --- launching -----------------------------------------------------------------------------------------------------

template <class E, int K>
void launch_reduce(Launch* launch, const SquareCall<typename E::Scalar>& call, const SweptMemory<E, 2>& memory) {
  if constexpr (K <= kLargestInGrid) {
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

// Matrices that registers have no room for: those whose rows shared memory has no room for, either. k <= K.
static_assert(are_rows_in_shared(kLargestInGrid) && !are_rows_in_shared(kLargestInGrid + 1));
template <int K, class E>
void decompose_in_memory(Launch* launch, const VectorsCall<E>& call, const SweptMemory<E, 2>& memory, int first_side,
                         int sides) {
  using T = typename E::Scalar;
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  launch_in_memory<BidiagonalKernels, E, K>(launch, square.count, square, memory);
  if (sides > 0) {
    launch_windows<K, BidiagonalSweeps<E>>(launch, square, memory, first_side, sides);
  } else {
    launch->operator()<bisect_kernel<E>>(static_cast<unsigned>(square.count * blocks_for(k, kBisectBlock)),
                                         kBisectBlock, (2 * k - 1) * static_cast<int>(sizeof(T)), k, memory);
  }
  launch_order(launch, call, memory, memory.d, first_side, sides);
}

template <class E>
void decompose_part(Launch* launch, const VectorsCall<E>& call, const SweptMemory<E, 2>& memory) {
  using T = typename E::Scalar;
  constexpr int kLeast = static_cast<int>(kLargestReproducible) + grid_sizes(static_cast<int>(kLargestReproducible));
  const SquareCall<T>& square = call.square;
  const int first_side = call.x.data != nullptr ? 0 : 1;
  const int sides = (call.x.data != nullptr ? 1 : 0) + (call.y.data != nullptr ? 1 : 0);
  if (!are_rows_in_shared(square.k)) {
    constexpr int kMost = static_cast<int>(kLargestInMemory);
    return square.k <= kMost / 2 ? decompose_in_memory<kMost / 2>(launch, call, memory, first_side, sides)
                                 : decompose_in_memory<kMost>(launch, call, memory, first_side, sides);
  }
  launch_reduce<E, kLeast>(launch, square, memory);
  launch_vectors<BidiagonalSweeps<E>>(launch, call, memory, first_side, sides);
  const int slot = finish_slot<T, Method::kBisection, 0>(square.k) * static_cast<int>(sizeof(T));
  const int threads = finish_block(slot);
  launch->operator()<finish_kernel<T, Method::kBisection, 0>>(blocks_for(square.count, threads), threads,
                                                              threads * slot, square, memory.between);
}

template <class E>
int64_t BidiagonalLaunch<E>::workspace_bytes(int k, int64_t count, bool with_vectors) {
  return swept_workspace_bytes<SweptMemory<E, 2>>(k, count, with_vectors);
}

template <class E>
void BidiagonalLaunch<E>::decompose(Launch* launch, const VectorsCall<E>& call, void* workspace) {
  const int k = call.square.k;
  const bool with_vectors = call.x.data != nullptr || call.y.data != nullptr;
  const int64_t count = call.square.count, room = at_once<SweptMemory<E, 2>>(k, count, with_vectors);
  Carver carver(workspace);
  const SweptMemory<E, 2> memory(k, room, with_vectors, &carver);
  const int64_t step = matrices_of_part(launch, k, room, count);
  for (int64_t m = 0; m < count; m += step) {
    decompose_part(launch, part_of(call, m, std::min(step, count - m)), memory);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_BIDIAGONAL_KERNELS_H_
