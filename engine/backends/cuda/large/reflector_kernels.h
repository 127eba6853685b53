// The kernels of a QR factorization by panels of reflectors (algorithms/blocks/panel_reflectors.h). For each panel of N
// columns P, in place:
//
//   rows_kernel<kGram>       partial Gram matrices of P
//   add_parts_kernel         their sum
//   begin_panel_kernel       R_1, or the number of the panel that is not taken on
//   rows_kernel<kSolve>      P := P R_1^-1, and the partial Gram matrices of that
//   add_parts_kernel
//   end_panel_kernel         T, S R_2 and V_1
//   rows_kernel<kMultiply>   the rest of V
//
// At the end panel_triangles_kernel finds R of all panels.
//
// A panel that is not taken on stays as it is, as do those behind it: their T are zero.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTOR_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTOR_KERNELS_H_

#include <cstdint>

#include "engine/algorithms/blocks/panel_reflectors.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/matrix_unit.h"
#include "engine/backends/cuda/device/teams.h"

namespace svdserve::cuda {

// Columns of a panel: its matrices of that order have room in shared memory.
template <class E>
inline constexpr int kPanel = kIsComplex<E> ? 32 : 64;

inline constexpr int kRowThreads = 256;
inline constexpr int kRowsOfTile = 64;
inline constexpr int kGroup = 128;              // columns of panels that are applied together
inline constexpr int kMostParts = 128;          // of a Gram matrix: a function of the rows alone
inline constexpr int32_t kAllPanels = 1 << 30;  // the first panel that was not taken on, where all were
inline constexpr int32_t kBrokenPanel = -1;     // ... where one was lost, which no finite matrix does

// A panel of the matrix: m x width, its first row on the diagonal.
template <class E>
struct PanelCall {
  large::LargeView<E> p;
  int32_t index;
  int32_t* failed;  // the first panel that was not taken on
  E* parts;         // [kMostParts][N x N]
  E* gram;          // [N x N] by columns
  E* r1;            // [N x N] by rows
  E* rows;          // [N x N] by rows: what rows are solved with, then M
  E *t, *r;         // this panel's part of its group's, by columns with kGroup; what is above it in R, too
  int32_t before;   // columns of the group before this panel
};

enum class RowStep { kGram, kSolve, kMultiply };

template <class E>
struct RowTile {
  static constexpr int kLd = kRowsOfTile + 4, kTriangleLd = kPanel<E> + 4;
  static constexpr int kBytes = kPanel<E> * (kLd + kTriangleLd) * static_cast<int>(sizeof(E));
};

// Eight rows of the tile, a warp's, by the matrix units: x := x R^-1, or x M. A lane's entries x[b] are those of row g,
// columns 8 b + 2 t and 8 b + 2 t + 1. So they are operands, too, for the rows 8 a + 2 t (and + 1) of the triangle.
template <class E>
struct TileRows {
  static constexpr int kBlocks = kPanel<E> / 8, kTriangleLd = RowTile<E>::kTriangleLd;
  E x[kBlocks][2];
  int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;

  __device__ __forceinline__ E* place(E* rows, int b, int e) const {
    return rows + (8 * b + 2 * t + e) * RowTile<E>::kLd + static_cast<int>(threadIdx.x) / 32 * 8 + g;
  }
  __device__ __forceinline__ void load(E* rows) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      x[b][0] = *place(rows, b, 0);
      x[b][1] = *place(rows, b, 1);
    }
  }
  __device__ __forceinline__ void store(E* rows) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      *place(rows, b, 0) = x[b][0];
      *place(rows, b, 1) = x[b][1];
    }
  }
  // sum += by times the triangle's block (a, b)
  __device__ __forceinline__ void add_block(E (&sum)[2], E first, E second, const E* triangle, int a, int b) const {
    const E* const entry = triangle + (8 * a + 2 * t) * kTriangleLd + 8 * b + g;
    multiply_8x8x4(sum, first, entry[0]);
    multiply_8x8x4(sum, second, entry[kTriangleLd]);
  }
  __device__ __forceinline__ void solve(const E* triangle) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      E rest[2] = {x[b][0], x[b][1]}, solved[2] = {from_real<E>(0), from_real<E>(0)};
#pragma unroll
      for (int a = 0; a < b; ++a) add_block(rest, negative(x[a][0]), negative(x[a][1]), triangle, a, b);
      add_block(solved, rest[0], rest[1], triangle, b, b);
      x[b][0] = solved[0];
      x[b][1] = solved[1];
    }
  }
  __device__ __forceinline__ void multiply(const E* triangle) {
#pragma unroll
    for (int b = kBlocks - 1; b >= 0; --b) {
      E sum[2] = {from_real<E>(0), from_real<E>(0)};
#pragma unroll
      for (int a = 0; a <= b; ++a) add_block(sum, x[a][0], x[a][1], triangle, a, b);
      x[b][0] = sum[0];
      x[b][1] = sum[1];
    }
  }
};

struct MatrixUnit {
  template <class E>
  static __device__ __forceinline__ void multiply(const BlockThreads& /*threads*/, E (&d)[2], E a, E b) {
    multiply_8x8x4(d, a, b);
  }
};

// The tile's part of the Gram matrix, by the matrix units: each of eight warps has some tiles of 8 x 8.
template <class E>
struct GramTiles {
  static constexpr int kSide = kPanel<E> / 8, kWarps = kRowThreads / 32, kOwn = kSide * kSide / kWarps;
  E sum[kOwn][2];

  __device__ __forceinline__ GramTiles() {
#pragma unroll
    for (int u = 0; u < kOwn; ++u) sum[u][0] = sum[u][1] = from_real<E>(0);
  }
  static __device__ __forceinline__ int tile(int u) { return static_cast<int>(threadIdx.x) / 32 + kWarps * u; }
  __device__ __forceinline__ void add(const E* rows) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    for (int k = 0; k < kRowsOfTile; k += 4) {
#pragma unroll
      for (int u = 0; u < kOwn; ++u) {
        const E a = rows[(8 * (tile(u) % kSide) + g) * RowTile<E>::kLd + k + t];
        const E b = rows[(8 * (tile(u) / kSide) + g) * RowTile<E>::kLd + k + t];
        multiply_8x8x4(sum[u], conjugate(a), b);
      }
    }
  }
  __device__ __forceinline__ void store(E* gram) const {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int u = 0; u < kOwn; ++u) {
      const int i = 8 * (tile(u) % kSide) + g, j = 8 * (tile(u) / kSide) + 2 * t;
      gram[j * kPanel<E> + i] = sum[u][0];
      gram[(j + 1) * kPanel<E> + i] = sum[u][1];
    }
  }
};

template <class E, RowStep kStep>
__global__ void __launch_bounds__(kRowThreads, 1) rows_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>, kLd = RowTile<E>::kLd;
  if (*call.failed <= call.index) return;
  extern __shared__ __align__(16) unsigned char shared[];
  E* const rows = reinterpret_cast<E*>(shared);
  E* const triangle = rows + N * kLd;
  const large::LargeView<E> p = call.p;
  const auto thread = static_cast<int>(threadIdx.x);
  if constexpr (kStep != RowStep::kGram) {
    for (int e = thread; e < N * N; e += kRowThreads) {
      triangle[e / N * RowTile<E>::kTriangleLd + e % N] = call.rows[e];
    }
  }
  // The first rows of V are end_panel_kernel's.
  const int64_t begin = kStep == RowStep::kMultiply ? N : 0;
  const int64_t tiles = (p.rows - begin + kRowsOfTile - 1) / kRowsOfTile;
  [[maybe_unused]] GramTiles<E> gram;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = begin + tile * kRowsOfTile;
#pragma unroll
    for (int u = 0; u < N * kRowsOfTile / kRowThreads; ++u) {
      const int e = thread + u * kRowThreads, i = e % kRowsOfTile, j = e / kRowsOfTile;
      rows[j * kLd + i] = j < p.cols && first + i < p.rows ? p.data[j * p.ld + first + i] : from_real<E>(0);
    }
    __syncthreads();
    if constexpr (kStep != RowStep::kGram) {
      TileRows<E> own;
      own.load(rows);
      if constexpr (kStep == RowStep::kSolve) {
        own.solve(triangle);
      } else {
        own.multiply(triangle);
      }
      own.store(rows);
      __syncthreads();
      for (int e = thread; e < N * kRowsOfTile; e += kRowThreads) {
        const int i = e % kRowsOfTile, j = e / kRowsOfTile;
        if (j < p.cols && first + i < p.rows) p.data[j * p.ld + first + i] = rows[j * kLd + i];
      }
    }
    if constexpr (kStep != RowStep::kMultiply) gram.add(rows);
    __syncthreads();
  }
  if constexpr (kStep != RowStep::kMultiply) gram.store(call.parts + int64_t{blockIdx.x} * (N * N));
}

// gram := the sum of the parts in their order, by fours. Columns beyond the panel's are those of the identity.
template <class E>
__global__ void __launch_bounds__(kRowThreads) add_parts_kernel(PanelCall<E> call, int parts) {
  constexpr int N = kPanel<E>, kEntries = kRowThreads / 4;
  __shared__ E sums[kRowThreads];
  const int entry = static_cast<int>(blockIdx.x) * kEntries + static_cast<int>(threadIdx.x) % kEntries;
  E sum = from_real<E>(0);
#pragma unroll 8
  for (int part = static_cast<int>(threadIdx.x) / kEntries; part < parts; part += 4) {
    sum = plus_product(sum, call.parts[int64_t{part} * (N * N) + entry], from_real<E>(1));
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kEntries) return;
  for (int part = 1; part < 4; ++part) {
    sum = plus_product(sum, sums[part * kEntries + static_cast<int>(threadIdx.x)], from_real<E>(1));
  }
  call.gram[entry] = entry / N == entry % N && entry / N >= call.p.cols ? from_real<E>(1) : sum;
}

template <class E>
__global__ void __launch_bounds__(kSquareThreads<kPanel<E>>, 1) begin_panel_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>, kLd = PanelMemory<E, N>::kLd;
  if (*call.failed <= call.index) return;
  extern __shared__ __align__(16) unsigned char shared[];
  const PanelMemory<E, N> memory(shared);
  const BlockThreads threads;
  E* const r = memory.square[1];
  E* const inverse = memory.square[2];
  if (!factor_gram<MatrixUnit, N>(threads, call.gram, kMostPanelCondition, memory, r, inverse)) {
    if (threadIdx.x == 0) *call.failed = call.index;
    return;
  }
  solver_of<N>(threads, r, inverse, call.rows);
  each_entry<N>(threads, [&](int i, int k, int, int) { call.r1[i * N + k] = r[i * kLd + k]; });
}

// The `before` rows of the group above a panel, which are R's: out of the matrix into r, and zeros in their place, or
// back.
template <class E>
__device__ __forceinline__ void take_above(const large::LargeView<E>& p, E* r, int before, bool into) {
  for (int e = static_cast<int>(threadIdx.x); e < before * kPanel<E>; e += static_cast<int>(blockDim.x)) {
    const int i = e % before - before, j = e / before;
    if (j >= p.cols) break;
    E& entry = p.data[j * p.ld + i];
    if (into) {
      entry = r[j * kGroup + i];
    } else {
      r[j * kGroup + i] = entry;
      entry = from_real<E>(0);
    }
  }
}

// V_1 takes the place of the panel's first rows, with its ones and zeros; S R_2 waits in call.r.
template <class E>
__global__ void __launch_bounds__(kPanelThreads<kPanel<E>>, 1) end_panel_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>;
  extern __shared__ __align__(16) unsigned char shared[];
  const BlockThreads threads;
  if (*call.failed <= call.index) {
    each_entry<N>(threads, [&](int i, int k, int, int) { call.t[k * kGroup + i] = from_real<E>(0); });
    return;
  }
  const large::LargeView<E> p = call.p;
  const int rows = static_cast<int>(p.rows < N ? p.rows : N), cols = static_cast<int>(p.cols);
  const auto inside = [&](int i, int k) { return i < rows && k < cols; };
  const auto top = [&](int i, int k) { return inside(i, k) ? p.data[k * p.ld + i] : from_real<E>(0); };
  const auto store = [&](int i, int k, E x) {
    if (inside(i, k)) p.data[k * p.ld + i] = x;
  };
  if (!panel_reflectors<MatrixUnit, N>(threads, call.gram, PanelMemory<E, N>(shared), top, store, call.t, call.r,
                                       kGroup, call.rows)) {
    if (threadIdx.x == 0) *call.failed = kBrokenPanel;
    return;
  }
  take_above(p, call.r, call.before, false);
}

// Block b finds R of panel b. r1: of all panels; r: of all groups.
template <class E>
__global__ void __launch_bounds__(kSquareThreads<kPanel<E>>, 1) panel_triangles_kernel(const E* r1, E* r) {
  constexpr int N = kPanel<E>;
  const int64_t panel = blockIdx.x, at = panel * N, before = at % kGroup;
  triangle_of_panel<MatrixUnit, N>(BlockThreads(), r1 + panel * (N * N),
                                   r + at / kGroup * (kGroup * kGroup) + before * (kGroup + 1), kGroup);
}

// T of a panel whose reflectors a library made: V with its ones and zeros, tau.
template <class E>
__global__ void __launch_bounds__(kSquareThreads<kPanel<E>>, 1) given_panel_kernel(PanelCall<E> call, const E* tau) {
  constexpr int N = kPanel<E>;
  extern __shared__ __align__(16) unsigned char shared[];
  const PanelMemory<E, N> memory(shared);
  const BlockThreads threads;
  E* const t = memory.square[1];
  each_entry<N>(threads, [&](int i, int k, int, int) { memory.square[0][k * N + i] = call.gram[k * N + i]; });
  if (threadIdx.x < N) memory.signs[threadIdx.x] = threadIdx.x < call.p.cols ? tau[threadIdx.x] : from_real<E>(0);
  threads.sync();
  triangle_of_reflectors<N>(threads, memory.square[0], memory.signs, t, memory.pivots);
  each_entry<N>(threads, [&](int i, int k, int, int) { call.t[k * kGroup + i] = t[k * N + i]; });
}

// Block b exchanges R's columns of panel first + b, as far as they lie in the group's triangle.
template <class E>
__global__ void __launch_bounds__(kRowThreads) triangles_kernel(large::LargeView<E> a, E* r, int32_t first, bool into) {
  constexpr int N = kPanel<E>;
  const int64_t at = (int64_t{first} + blockIdx.x) * N;
  const int before = static_cast<int>(at % kGroup);
  const large::LargeView<E> p{a.data + at * (a.ld + 1), a.rows - at, a.cols - at < N ? a.cols - at : N, a.ld};
  E* const own = r + at / kGroup * (kGroup * kGroup) + before * (kGroup + 1);
  for (int e = static_cast<int>(threadIdx.x); e < N * N; e += kRowThreads) {
    const int i = e % N, j = e / N;
    if (i > j || j >= p.cols) continue;
    E& entry = p.data[j * p.ld + i];
    if (into) {
      entry = own[j * kGroup + i];
    } else {
      own[j * kGroup + i] = entry;
      entry = from_real<E>(i == j ? 1 : 0);
    }
  }
  take_above(p, own, before, into);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTOR_KERNELS_H_
