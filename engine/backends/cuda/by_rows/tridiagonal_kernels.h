// Eigenvalues and eigenvectors of Hermitian k x k matrices by tridiagonalization, 33 <= k <= 512:
//
//   reduce_hermitian_kernel   A = Q T Q^H, k <= 128   algorithms/blocks/tridiagonalize_in_registers.h, a grid of threads
//   reduce_hermitian_in_memory_kernel
//                             the same beyond         algorithms/blocks/tridiagonalize_in_memory.h, a block or a cluster
//   (row_kernels.h            T = W L W^T             algorithms/lanes/tridiagonal_qr.h, and rows of U)
//   bisect_eigenvalues_kernel L alone, k > 128        algorithms/lanes/bisected_eigenvalue.h, a thread a value
//   eigenvalues_kernel        L in order, k <= 128    a warp a matrix
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_KERNELS_H_

#include "engine/algorithms/blocks/tridiagonalize_in_memory.h"
#include "engine/algorithms/blocks/tridiagonalize_in_registers.h"
#include "engine/algorithms/lanes/bisected_eigenvalue.h"
#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/algorithms/lanes/tridiagonal_qr.h"
#include "engine/backends/cuda/by_rows/reduction_launch.h"
#include "engine/backends/cuda/by_rows/row_kernels.h"
#include "engine/backends/cuda/by_rows/tridiagonal_launch.h"
#include "engine/backends/cuda/by_rows/window_kernels.h"
#include "engine/backends/cuda/lanes/grid_kernels.h"
#include "engine/core/hermitian.h"

namespace svdserve::cuda {

// --- A = Q T Q^H ---------------------------------------------------------------------------------------------------

// As the reductions take it. kMayBeAbsent: whether there may be no memory for reflectors. Where it is always there, a test
// would take registers that reductions need: 64x64 c128 had 0.93 of its rate (BENCHMARKS.md).
template <class E, bool kMayBeAbsent>
struct TridiagonalInMemory {
  using L = typename E::Lane;
  const SweptMemory<E, 1>& memory;
  int64_t m;
  int k, pitch;
  bool writes, is_first;  // the matrix is the team's own; this is the team's first thread

  __device__ __forceinline__ void diagonal(int j, L x) const {
    if (writes && is_first) memory.d[m * k + j] = x;
  }
  __device__ __forceinline__ void off_diagonal(int j, L g, const E& x) const {
    if (!writes || !is_first) return;
    memory.sides[0].g[m * k + j] = g.v;
    store_element(x, memory.sides[0].phases + m * k + j);
  }
  __device__ __forceinline__ void reflector(int j, int i, const E& h) const {
    E* const to = memory.sides[0].reflectors;
    if (writes && (!kMayBeAbsent || to != nullptr) && i < pitch) store_element(h, to + (m * k + j) * pitch + i);
  }
};

template <class E, int K>
__global__ void __launch_bounds__(GridOfThreads<E, K>::kBlock)
    reduce_hermitian_kernel(const HermitianCall<E> call, const SweptMemory<E, 1> memory) {
  using Matrix = MatrixOfGrid<scalar::TridiagonalizeInRegisters, E, K>;
  const int k = call.square.k, pitch = scalar::padded_row(k);
  const int row_stride = call.square.row_major ? k : 1, col_stride = call.square.row_major ? 1 : k;
  Matrix matrix(call.square);
  const int64_t m = matrix.m;
  const E* const from = reinterpret_cast<const E*>(call.square.a) + m * k * k;
  const auto at = [&](int i, int j) { return from[i * row_stride + j * col_stride]; };
  typename Matrix::Part a(memory.sides[0].rows + m * k * k + threadIdx.x);  // rows come later
  matrix.load(
      call.square, memory.between,
      [&](int row, int col) { return scalar::hermitian_element<E>(at, call.upper, row, col); }, a);
  matrix.algorithm.run(a, TridiagonalInMemory<E, false>{memory, m, k, pitch, matrix.is_own, matrix.is_first_thread()});
}

template <class E, int K, class Threads>
using HermitianInMemory = InMemory<scalar::TridiagonalizeInMemory, E, K, Threads>;

template <class E, int K, class Threads>
__global__ void __launch_bounds__(HermitianInMemory<E, K, Threads>::kThreads / blocks_of_matrix<Threads>(), 1)
    reduce_hermitian_in_memory_kernel(const HermitianCall<E> call, const SweptMemory<E, 1> memory) {
  using Algorithm = HermitianInMemory<E, K, Threads>;
  using Whole = typename Algorithm::Whole;
  const int k = call.square.k;
  const int64_t m = blockIdx.x / blocks_of_matrix<Threads>();
  const Threads threads;
  Algorithm algorithm(threads, shared_of<Algorithm, Threads>(memory, m), k);
  Whole* const a = reinterpret_cast<Whole*>(memory.sides[0].rows + m * k * k);
  Lane<typename E::Scalar> exponent;
  const bool finite = algorithm.load(reinterpret_cast<const Whole*>(call.square.a) + m * k * k, call.square.row_major,
                                     call.upper, a, &exponent);
  if (threads.index() == 0) memory.start(call.square, m, exponent, finite);
  algorithm.run(a, TridiagonalInMemory<E, true>{memory, m, k, scalar::padded_row(k), true, true});
}

// As launch_in_memory() takes them.
struct HermitianKernels {
  template <class E, int K, class Threads>
  using Algorithm = HermitianInMemory<E, K, Threads>;
  template <class E, int K, class Threads>
  static constexpr auto kernel = reduce_hermitian_in_memory_kernel<E, K, Threads>;
};

// --- T = W L W^T ---------------------------------------------------------------------------------------------------

// As sweep_kernel takes them.
template <class E>
struct TridiagonalSweeps {
  static constexpr int kSides = 1;
  using L = typename E::Lane;
  template <class Threads>
  using Of = scalar::TridiagonalQr<L, Threads>;
  using Writer = scalar::RotationWriter<L, false>;

  static __device__ __forceinline__ L first(const SweptMemory<E, 1>& memory, int k, int64_t m, L* d, L* e) {
    for (int i = 0; i < k; ++i) d[i] = memory.d[m * k + i];
    return scalar::split_hermitian_phases(k, memory.sides[0].phases + m * k, d, e);
  }
  static __device__ __forceinline__ L value(L x) { return x; }
};

// Eigenvalues in ascending order to memory.e, k a matrix, where no vectors are wanted.
template <class E>
__global__ void __launch_bounds__(kBisectBlock) bisect_eigenvalues_kernel(int k, const SweptMemory<E, 1> memory) {
  using L = typename E::Lane;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  L *const diagonal = reinterpret_cast<L*>(shared_bytes), *const squares = diagonal + k;
  const auto blocks = static_cast<int>(blocks_for(k, kBisectBlock)), thread = static_cast<int>(threadIdx.x);
  const int64_t m = blockIdx.x / blocks;
  for (int i = thread; i < k; i += kBisectBlock) {
    diagonal[i] = memory.d[m * k + i];
    if (i + 1 < k) squares[i] = scalar::add_square(L(0), load_element(memory.sides[0].phases + m * k + i));
  }
  __syncthreads();
  const int j = static_cast<int>(blockIdx.x) % blocks * kBisectBlock + thread;
  if (j < k) memory.e[m * k + j] = scalar::BisectedEigenvalue<L>(k, diagonal, squares).value(j);
}

// A warp a matrix.
template <class E>
__global__ void __launch_bounds__(kFinishBlock)
    eigenvalues_kernel(const SquareCall<typename E::Scalar> call, const SweptMemory<E, 1> memory) {
  using T = typename E::Scalar;
  using L = Lane<T>;
  const int64_t m = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (m >= call.count) return;
  const int k = call.k, lane = static_cast<int>(threadIdx.x) % 32;
  const int state = static_cast<int>(memory.between.state[m]);
  const L* const d = memory.d + m * k;
  const L e(memory.between.exponent[m]);
  bool in_range = true;
  for (int i = lane; i < k; i += 32) {
    const L lambda = scalar::finished_eigenvalue(d[i], e);
    in_range = in_range && (abs(lambda) <= L(FloatTraits<T>::kLargest)).m;
    call.values[m * k + scalar::ascending_place_of(k, i, d)] =
        state == kNonFiniteState ? FloatTraits<T>::nan() : lambda.v;
  }
  in_range = __all_sync(~0u, in_range) != 0;
  const L status = scalar::status_of<L>(scalar::ScalarMask{state != kNonFiniteState}, scalar::ScalarMask{in_range},
                                        scalar::ScalarMask{state == kNotConvergedState});
  if (lane == 0) record_status(call, m, static_cast<int>(status.v));
}

// --- launching -----------------------------------------------------------------------------------------------------

template <class E, int K>
void launch_reduce_hermitian(Launch* launch, const HermitianCall<E>& call, const SweptMemory<E, 1>& memory) {
  if constexpr (K <= kLargestInGrid) {
    using Grid = GridOfThreads<E, K>;
    if constexpr (Grid::kFits) {
      if (call.square.k <= K) {
        return launch->operator()<reduce_hermitian_kernel<E, K>>(blocks_for(call.square.count, Grid::kTeams),
                                                                 Grid::kBlock, Grid::kSharedBytes, call, memory);
      }
    }
    launch_reduce_hermitian<E, K + grid_sizes(K)>(launch, call, memory);
  }
}

// Matrices that registers have no room for: those whose rows shared memory has no room for, either. k <= K.
template <int K, class E>
void decompose_hermitian_in_memory(Launch* launch, const HermitianCall<E>& call, const VectorsCall<E>& vectors,
                                   const SweptMemory<E, 1>& memory, int sides) {
  const SquareCall<typename E::Scalar>& square = call.square;
  const int k = square.k;
  launch_in_memory<HermitianKernels, E, K>(launch, square.count, call, memory);
  if (sides > 0) {
    launch_windows<K, TridiagonalSweeps<E>>(launch, square, memory, 0, sides);
  } else {
    launch->operator()<bisect_eigenvalues_kernel<E>>(static_cast<unsigned>(square.count * blocks_for(k, kBisectBlock)),
                                                     kBisectBlock, 2 * k * static_cast<int>(sizeof(typename E::Scalar)),
                                                     k, memory);
  }
  launch_order(launch, vectors, memory, sides > 0 ? memory.d : memory.e, 0, sides);
}

template <class E>
void decompose_hermitian_part(Launch* launch, const HermitianCall<E>& call, const SweptMemory<E, 1>& memory) {
  constexpr int kLeast = static_cast<int>(kLargestReproducible) + grid_sizes(static_cast<int>(kLargestReproducible));
  constexpr int kMost = static_cast<int>(kLargestInMemory);
  const VectorsCall<E> vectors{call.square, {}, call.u};
  const int sides = call.u.data != nullptr ? 1 : 0;
  if (!are_rows_in_shared(call.square.k)) {
    return call.square.k <= kMost / 2 ? decompose_hermitian_in_memory<kMost / 2>(launch, call, vectors, memory, sides)
                                      : decompose_hermitian_in_memory<kMost>(launch, call, vectors, memory, sides);
  }
  launch_reduce_hermitian<E, kLeast>(launch, call, memory);
  launch_vectors<TridiagonalSweeps<E>>(launch, vectors, memory, 0, sides);
  launch->operator()<eigenvalues_kernel<E>>(blocks_for(32 * call.square.count, kFinishBlock), kFinishBlock, 0,
                                            call.square, memory);
}

template <class E>
int64_t TridiagonalLaunch<E>::workspace_bytes(int k, int64_t count, bool with_vectors) {
  return swept_workspace_bytes<SweptMemory<E, 1>>(k, count, with_vectors);
}

template <class E>
void TridiagonalLaunch<E>::decompose(Launch* launch, const HermitianCall<E>& call, void* workspace) {
  const int k = call.square.k;
  const bool with_vectors = call.u.data != nullptr;
  const int64_t count = call.square.count, room = at_once<SweptMemory<E, 1>>(k, count, with_vectors);
  Carver carver(workspace);
  const SweptMemory<E, 1> memory(k, room, with_vectors, &carver);
  const int64_t step = matrices_of_part(launch, k, room, count);
  for (int64_t m = 0; m < count; m += step) {
    HermitianCall<E> part = call;
    const VectorsCall<E> vectors = part_of(VectorsCall<E>{call.square, {}, call.u}, m, std::min(step, count - m));
    part.square = vectors.square;
    part.u = vectors.y;
    decompose_hermitian_part(launch, part, memory);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_TRIDIAGONAL_KERNELS_H_
