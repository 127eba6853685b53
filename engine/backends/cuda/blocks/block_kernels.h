// Kernels of one thread block a matrix, 33 <= k <= 128:
//
//   placed_jacobi_kernel   U, S, V of k x k matrices          algorithms/blocks/placed_jacobi.h
//   block_reduce_kernel    triangles of matrices with m != n  algorithms/blocks/block_qr.h
//   block_expand_kernel    X = Q X_k
//   shift_kernel, quotients_kernel    before and behind singular vectors: Hermitian matrices   blocks/hermitian_stages.h
//
// Columns of X and Y are in registers as long as there is room. Y of k > 64 is in shared memory (f64, c64). Both are in
// the workspace where nothing else holds them (c128, k > 64). Workspace is for the blocks that run at once.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_KERNELS_H_

#include <algorithm>

#include "engine/algorithms/blocks/block_qr.h"
#include "engine/algorithms/blocks/hermitian_stages.h"
#include "engine/algorithms/blocks/placed_jacobi.h"
#include "engine/backends/cuda/blocks/block_launch.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/planner.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

using scalar::ColumnStorage;

// The shape for k <= 64 or k <= 128.
template <class E, bool kLarge, PlacedParts kParts>
struct PlacedShapeOf {
  static constexpr int kBytes = static_cast<int>(sizeof(E));
  static constexpr int kSplit = kBytes == 16 && !kLarge ? 16 : 8, kRows = (kLarge ? 128 : 64) / kSplit;
  static constexpr ColumnStorage kX = kBytes == 16 && kLarge ? ColumnStorage::kMemory : ColumnStorage::kRegisters;
  static constexpr ColumnStorage kY = kParts != PlacedParts::kBoth ? ColumnStorage::kNone
                                      : kLarge && kBytes >= 8      ? ColumnStorage::kMemory
                                                                   : ColumnStorage::kRegisters;
  using Shape = scalar::PlacedShape<E, kRows, kSplit, kX, kY, kParts != PlacedParts::kValues>;
  static constexpr int kThreads = Shape::threads(kLarge ? 128 : 64);
  // Blocks that should share a multiprocessor: the compiler keeps to the registers that leaves.
  static constexpr int kBlocks = kThreads <= 256 ? 2 : 1;
  static constexpr bool kInWorkspace = kX == ColumnStorage::kMemory;
  static constexpr bool kYInShared = kY == ColumnStorage::kMemory && !kInWorkspace;

  // Y first: elements are aligned as the numbers are not more than they.
  static constexpr int shared_bytes(int k) {
    // A number a warp, in fours: the compiler reads as many at once, and throws away what is beyond the last.
    const int warps = (Shape::threads(k) / 32 + 3) / 4 * 4;
    const int numbers = Shape::mail_numbers(k) + Shape::columns(k) + warps;
    return (kYInShared ? Shape::matrix_elements(k) * kBytes : 0) +
           numbers * static_cast<int>(sizeof(typename E::Scalar));
  }
  static constexpr int64_t workspace_elements(int k) {
    return kInWorkspace ? (kParts == PlacedParts::kBoth ? 2 : 1) * static_cast<int64_t>(Shape::matrix_elements(k)) : 0;
  }
};

template <class E>
struct PlacedResults {
  using T = typename E::Scalar;
  const VectorsCall<E>& call;
  int64_t m;
  __device__ __forceinline__ void value(int r, T s) const { call.square.values[m * call.square.k + r] = s; }
  __device__ __forceinline__ void x(int i, int r, const E& u, bool finite) const { put(call.x, i, r, u, finite); }
  __device__ __forceinline__ void y(int i, int r, const E& v, bool finite) const { put(call.y, i, r, v, finite); }
  __device__ __forceinline__ void put(const Columns<E>& to, int i, int r, const E& z, bool finite) const {
    if (to.data == nullptr || r >= to.columns) return;
    store_element(canonical(z, to.conjugate, finite),
                  to.data + m * to.matrix_stride + i * to.row_stride + r * to.col_stride);
  }
};

template <class E, bool kLarge, PlacedParts kParts>
__global__ void __launch_bounds__(PlacedShapeOf<E, kLarge, kParts>::kThreads, PlacedShapeOf<E, kLarge, kParts>::kBlocks)
    placed_jacobi_kernel(const VectorsCall<E> call, E* const workspace) {
  using Sizes = PlacedShapeOf<E, kLarge, kParts>;
  using Shape = typename Sizes::Shape;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  E* const mine = workspace + blockIdx.x * Sizes::workspace_elements(k);
  E* const y_shared = reinterpret_cast<E*>(shared_bytes);
  T* const mail = reinterpret_cast<T*>(y_shared + (Sizes::kYInShared ? Shape::matrix_elements(k) : 0));
  T* const values = mail + Shape::mail_numbers(k);
  const scalar::PlacedMemory<Shape> memory{mail, values, values + Shape::columns(k), mine,
                                           Sizes::kInWorkspace ? mine + Shape::matrix_elements(k) : y_shared};
  const BlockThreads threads;
  const int row_step = square.row_major ? k : 1, col_step = square.row_major ? 1 : k;
  for (int64_t m = blockIdx.x; m < square.count; m += gridDim.x) {
    scalar::PlacedJacobi<BlockThreads, Shape> jacobi(threads, memory, k);
    const E* const a = reinterpret_cast<const E*>(square.a) + m * k * k;
    const auto source = [&](int i, int j) { return a[i * row_step + j * col_step]; };
    const T* const given = square.exponents == nullptr ? nullptr : square.exponents + m * k;
    const MatrixStatus status =
        jacobi.run(source, given, square.tolerance, square.max_sweeps, PlacedResults<E>{call, m});
    if (threads.index() == 0) record_status(square, m, static_cast<int>(status));
  }
}

// The QR of matrix m by this block. f(qr).
template <class E, class F>
__device__ __forceinline__ void with_block_qr(const TallCall<typename E::Scalar>& call, int64_t m, F f) {
  using L = typename E::Lane;
  using Shape = scalar::BlockQrShape<E>;
  // Numbers, since elements have constructors.
  __shared__ __align__(16) typename E::Scalar mail[Shape::mail(kLargestInLanes) * E::kComponents];
  const int rows = static_cast<int>(call.long_side), k = call.k, steps = Shape::tiles(rows) * k;
  E* const u = reinterpret_cast<E*>(call.factors);
  const scalar::BlockFactor<E> factor{u == nullptr ? nullptr : u + m * steps * Shape::kHeight,
                                      reinterpret_cast<E*>(call.heads) + m * steps,
                                      reinterpret_cast<L*>(call.g) + m * steps};
  f(scalar::BlockQr<BlockThreads, E>(BlockThreads(), reinterpret_cast<E*>(mail), rows, k, factor));
}

template <class E>
__global__ void __launch_bounds__(scalar::BlockQrShape<E>::threads(kLargestInLanes), block_qr_blocks(sizeof(E)))
    block_reduce_kernel(const TallCall<typename E::Scalar> call) {
  const int64_t m = blockIdx.x;
  const int k = call.k;
  const E* const a = reinterpret_cast<const E*>(call.a) + m * call.long_side * k;
  const auto source = [&](int i, int j) { return load_element(a + i * call.row_stride + j * call.col_stride); };
  with_block_qr<E>(call, m, [&](const auto& qr) {
    qr.reduce(source, call.exponents + m * k, reinterpret_cast<E*>(call.triangles) + m * k * k);
  });
}

template <class E>
__global__ void __launch_bounds__(scalar::BlockQrShape<E>::threads(kLargestInLanes), block_qr_blocks(sizeof(E)))
    block_expand_kernel(const TallCall<typename E::Scalar> call, const Columns<E> to, int columns) {
  const int64_t m = blockIdx.x;
  const int k = call.k;
  E* const x = to.data + m * to.matrix_stride;
  const bool finite = call.exponents[m * k] == call.exponents[m * k];
  const auto put = [&](int i, int c, const E& z) {
    store_element(canonical(z, to.conjugate, finite), x + i * to.row_stride + c * to.col_stride);
  };
  with_block_qr<E>(call, m,
                   [&](const auto& qr) { qr.expand(reinterpret_cast<E*>(call.triangles) + m * k * k, columns, put); });
}

// --- Hermitian matrices --------------------------------------------------------------------------------------------

// The parts of the workspace: those of all matrices, of the blocks that run at once, and of placed_jacobi_kernel.
template <class E>
struct HermitianMemory {
  using T = typename E::Scalar;

  HermitianMemory(int k, int64_t count, Carver* carver)
      : blocks(std::min(count, kHermitianBlocks)),
        b(carver->take<E>(count * k * k)),
        u(carver->take<E>(count * k * k)),
        numbers(carver->take<T>(count * scalar::ShiftedHermitian<E>::numbers(k))),
        values(carver->take<T>(count * k)),
        scratch(carver->take<T>(blocks * scratch_numbers(k))) {}

  static __host__ __device__ int64_t scratch_numbers(int k) { return static_cast<int64_t>(k) * (k + 2); }
  __device__ scalar::ShiftedHermitian<E> matrix(int k, int64_t m) const {
    T* const own = numbers + m * scalar::ShiftedHermitian<E>::numbers(k);
    return {b + m * k * k, own, own + k, k};
  }

  int64_t blocks;
  E *b, *u;
  T *numbers, *values, *scratch;
};

template <class E>
__global__ void __launch_bounds__(kFinishBlockTeam)
    shift_kernel(const HermitianCall<E> call, const HermitianMemory<E> memory) {
  const SquareCall<typename E::Scalar>& square = call.square;
  const int k = square.k;
  const BlockTeam<> team;
  for (int64_t m = blockIdx.x; m < square.count; m += gridDim.x) {
    const auto* const a = reinterpret_cast<const char*>(reinterpret_cast<const E*>(square.a) + m * k * k);
    const scalar::OperandMatrix<E> operand{
        {a, square.row_major ? k : 1, square.row_major ? 1 : k, false}, true, call.upper};
    scalar::shift_hermitian(team, operand, memory.matrix(k, m),
                            memory.scratch + blockIdx.x * HermitianMemory<E>::scratch_numbers(k));
    team.sync();  // the scratch is written again
  }
}

template <class E>
__global__ void __launch_bounds__(kFinishBlockTeam)
    quotients_kernel(const HermitianCall<E> call, const HermitianMemory<E> memory) {
  using T = typename E::Scalar;
  const SquareCall<T>& square = call.square;
  const int k = square.k;
  const BlockTeam<> team;
  for (int64_t m = blockIdx.x; m < square.count; m += gridDim.x) {
    const bool finite = memory.values[m * k] == memory.values[m * k];
    const auto value = [&](int r, T lambda) { square.values[m * k + r] = lambda; };
    const auto vector = [&](int i, int r, const E& x) {
      if (call.u.data == nullptr) return;
      store_element(canonical(x, call.u.conjugate, finite),
                    call.u.data + m * call.u.matrix_stride + i * call.u.row_stride + r * call.u.col_stride);
    };
    if (finite) {
      const bool in_range = scalar::hermitian_quotients(
          team, memory.matrix(k, m), memory.u + m * k * k,
          memory.scratch + blockIdx.x * HermitianMemory<E>::scratch_numbers(k), value, vector);
      const bool ok = square.statuses == nullptr || square.statuses[m] == static_cast<uint8_t>(MatrixStatus::kOk);
      if (!in_range && ok && threadIdx.x == 0) record_status(square, m, static_cast<int>(MatrixStatus::kOutOfRange));
    } else {
      team.for_each(0, k, [&](int j) { value(j, FloatTraits<T>::nan()); });
      team.for_each(0, k * k, [&](int x) { vector(x % k, x / k, scalar::zero_element<E>()); });
    }
    team.sync();  // the scratch is written again
  }
}

// --- launching -----------------------------------------------------------------------------------------------------

// Blocks of a launch: one a matrix, or as many as have workspace.
template <class Sizes>
constexpr int64_t placed_blocks(int64_t count) {
  return Sizes::kInWorkspace ? std::min(count, kWorkspaceBlocks) : count;
}

// f(Sizes) for the shape of k.
template <class E, bool kLarge, class F>
auto with_placed_parts(PlacedParts parts, F f) {
  if (parts == PlacedParts::kValues) return f(PlacedShapeOf<E, kLarge, PlacedParts::kValues>());
  if (parts == PlacedParts::kLeft) return f(PlacedShapeOf<E, kLarge, PlacedParts::kLeft>());
  return f(PlacedShapeOf<E, kLarge, PlacedParts::kBoth>());
}
template <class E, class F>
auto with_placed_shape(int k, PlacedParts parts, F f) {
  return k <= 64 ? with_placed_parts<E, false>(parts, f) : with_placed_parts<E, true>(parts, f);
}

template <class E, bool kLarge, PlacedParts kParts>
void launch_placed(Launch* launch, PlacedShapeOf<E, kLarge, kParts>, const VectorsCall<E>& call, E* workspace) {
  using Sizes = PlacedShapeOf<E, kLarge, kParts>;
  const int k = call.square.k;
  launch->operator()<placed_jacobi_kernel<E, kLarge, kParts>>(
      static_cast<unsigned>(placed_blocks<Sizes>(call.square.count)), Sizes::Shape::threads(k), Sizes::shared_bytes(k),
      call, workspace);
}

template <class E>
int64_t BlockLaunch<E>::workspace_bytes(int k, PlacedParts parts, int64_t count) {
  return with_placed_shape<E>(k, parts, [&](auto sizes) {
    using Sizes = decltype(sizes);
    return placed_blocks<Sizes>(count) * Sizes::workspace_elements(k) * static_cast<int64_t>(sizeof(E));
  });
}

template <class E>
void BlockLaunch<E>::decompose(Launch* launch, const VectorsCall<E>& call, PlacedParts parts, void* workspace) {
  with_placed_shape<E>(call.square.k, parts,
                       [&](auto sizes) { launch_placed(launch, sizes, call, static_cast<E*>(workspace)); });
}

template <class E>
int64_t BlockLaunch<E>::hermitian_workspace_bytes(int k, int64_t count) {
  Carver carver(nullptr);
  (void)HermitianMemory<E>(k, count, &carver);
  return static_cast<int64_t>(carver.used()) + workspace_bytes(k, PlacedParts::kLeft, count);
}

template <class E>
void BlockLaunch<E>::hermitian(Launch* launch, const HermitianCall<E>& call, void* workspace) {
  const int k = call.square.k;
  Carver carver(workspace);
  const HermitianMemory<E> memory(k, call.square.count, &carver);
  const auto blocks = static_cast<unsigned>(memory.blocks);
  launch->operator()<shift_kernel<E>>(blocks, kFinishBlockTeam, 0, call, memory);
  VectorsCall<E> vectors{call.square, {memory.u, k * k, 1, k, k, false}, {}};
  vectors.square.a = reinterpret_cast<const T*>(memory.b);
  vectors.square.row_major = false;
  vectors.square.values = memory.values;
  decompose(launch, vectors, PlacedParts::kLeft, static_cast<char*>(workspace) + carver.used());
  launch->operator()<quotients_kernel<E>>(blocks, kFinishBlockTeam, 0, call, memory);
}

template <class E>
void BlockLaunch<E>::reduce(Launch* launch, const TallCall<T>& call) {
  const auto blocks = static_cast<unsigned>(call.count);
  launch->operator()<scan_kernel<E>>(blocks, 256, 0, call);
  launch->operator()<block_reduce_kernel<E>>(blocks, scalar::BlockQrShape<E>::threads(call.k), 0, call);
}

template <class E>
void BlockLaunch<E>::expand(Launch* launch, const TallCall<T>& call, const Columns<E>& to) {
  launch->operator()<block_expand_kernel<E>>(static_cast<unsigned>(call.count),
                                             scalar::BlockQrShape<E>::threads(call.k), 0, call, to,
                                             std::min(to.columns, call.k));
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_KERNELS_H_
