// The kernels of a QR factorization by panels of reflectors (algorithms/blocks/panel_reflectors.h). For each panel of N
// columns P, in place:
//
//   rows_kernel<kGram>       partial Gram matrices of P
//   add_parts_kernel         their sum
//   begin_panel_kernel       R_1, or the number of the panel that is not taken on
//   rows_kernel<kSolve>      P := P R_1^-1, and the partial Gram matrices of that
//   add_parts_kernel
//   end_panel_kernel         T, R and V_1
//   rows_kernel<kMultiply>   the rest of V
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

inline constexpr int kPanelThreads = 256;
inline constexpr int kRowsOfTile = 64;
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
  E* r1;            // [N x N] by rows, then N reciprocals
  E* m;             // [N x N] by rows; room for N more
  E* t;             // [N x N] by columns; of this panel
  E* r;             // [N x N] by columns; of this panel
};

enum class RowStep { kGram, kSolve, kMultiply };

template <class E>
struct RowTile {
  static constexpr int kLd = kRowsOfTile + 4;
  static constexpr int kBytes = (kPanel<E> * kLd + kPanel<E> * (kPanel<E> + 1)) * static_cast<int>(sizeof(E));
};

// The tile's part of the Gram matrix, by the matrix units: each of eight warps has some tiles of 8 x 8.
template <class E>
struct GramTiles {
  static constexpr int kSide = kPanel<E> / 8, kWarps = kPanelThreads / 32, kOwn = kSide * kSide / kWarps;
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
__global__ void __launch_bounds__(kPanelThreads, 1) rows_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>, kLd = RowTile<E>::kLd;
  if (*call.failed <= call.index) return;
  extern __shared__ __align__(16) unsigned char shared[];
  E* const rows = reinterpret_cast<E*>(shared);
  E* const triangle = rows + N * kLd;  // by rows, then reciprocals
  const large::LargeView<E> p = call.p;
  const auto thread = static_cast<int>(threadIdx.x);
  if constexpr (kStep != RowStep::kGram) {
    const E* const from = kStep == RowStep::kSolve ? call.r1 : call.m;
    for (int e = thread; e < N * N + N; e += kPanelThreads) triangle[e] = from[e];
  }
  // The first rows of V are end_panel_kernel's.
  const int64_t begin = kStep == RowStep::kMultiply ? N : 0;
  const int64_t tiles = (p.rows - begin + kRowsOfTile - 1) / kRowsOfTile;
  [[maybe_unused]] GramTiles<E> gram;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = begin + tile * kRowsOfTile;
    for (int e = thread; e < N * kRowsOfTile; e += kPanelThreads) {
      const int i = e % kRowsOfTile, j = e / kRowsOfTile;
      rows[j * kLd + i] = j < p.cols && first + i < p.rows ? p.data[j * p.ld + first + i] : from_real<E>(0);
    }
    __syncthreads();
    if constexpr (kStep != RowStep::kGram) {
      if (thread < kRowsOfTile) {
        E x[N];
#pragma unroll
        for (int j = 0; j < N; ++j) x[j] = rows[j * kLd + thread];
        if constexpr (kStep == RowStep::kSolve) {
          solve_row(x, RowTriangle<E>{triangle, triangle + N * N});
        } else {
          multiply_row(x, triangle);
        }
        const bool inside = first + thread < p.rows;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          rows[j * kLd + thread] = x[j];
          if (inside && j < p.cols) p.data[j * p.ld + first + thread] = x[j];
        }
      }
      __syncthreads();
    }
    if constexpr (kStep != RowStep::kMultiply) gram.add(rows);
    __syncthreads();
  }
  if constexpr (kStep != RowStep::kMultiply) gram.store(call.parts + int64_t{blockIdx.x} * (N * N));
}

// gram := the sum of the parts in their order, by fours. Columns beyond the panel's are those of the identity.
template <class E>
__global__ void __launch_bounds__(kPanelThreads) add_parts_kernel(PanelCall<E> call, int parts) {
  constexpr int N = kPanel<E>, kEntries = kPanelThreads / 4;
  __shared__ E sums[kPanelThreads];
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

// Shared memory of a panel's kernels.
template <class E>
struct PanelMemory {
  static constexpr int N = kPanel<E>, kSquare = N * N;
  static constexpr int kScratch = 6 * N;  // elements; the last 2 N hold norms and parts
  static constexpr int bytes(int squares) { return (squares * kSquare + kScratch) * static_cast<int>(sizeof(E)); }

  E* square[4];
  E* scratch;
  double *norms, *parts;

  __device__ __forceinline__ PanelMemory(unsigned char* shared, int squares) {
    E* next = reinterpret_cast<E*>(shared);
    for (int i = 0; i < squares; ++i, next += kSquare) square[i] = next;
    scratch = next;
    norms = reinterpret_cast<double*>(next + 4 * N);
    parts = norms + N;
  }
};

template <class E>
__global__ void __launch_bounds__(kPanelThreads, 1) begin_panel_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>;
  if (*call.failed <= call.index) return;
  extern __shared__ __align__(16) unsigned char shared[];
  const PanelMemory<E> memory(shared, 2);
  const BlockTeam<kPanelThreads> team;
  team.for_each(0, N * N, [&](int e) { memory.square[0][e] = call.gram[e]; });
  const PanelWork<E, N> work{memory.square[0], memory.square[1], memory.scratch, memory.norms, memory.parts};
  E* const reciprocals = memory.scratch + N;
  const bool sound = panel_cholesky<N>(team, work, kMostPanelCondition, reciprocals);
  if (!sound) {
    if (threadIdx.x == 0) *call.failed = call.index;
    return;
  }
  team.for_each(0, N * N + N, [&](int e) { call.r1[e] = e < N * N ? work.r[e] : reciprocals[e - N * N]; });
}

// V_1 takes the place of the panel's first rows, with its ones and zeros; R waits in call.r.
template <class E>
__global__ void __launch_bounds__(kPanelThreads, 1) end_panel_kernel(PanelCall<E> call) {
  constexpr int N = kPanel<E>;
  extern __shared__ __align__(16) unsigned char shared[];
  const BlockTeam<kPanelThreads> team;
  if (*call.failed <= call.index) {
    team.for_each(0, N * N, [&](int e) { call.t[e] = from_real<E>(0); });
    return;
  }
  const PanelMemory<E> memory(shared, 4);
  const large::LargeView<E> p = call.p;
  E* const q = memory.square[2];
  team.for_each(0, N * N, [&](int e) {
    memory.square[0][e] = call.gram[e];
    const int i = e % N, j = e / N;
    q[i * N + j] = i < p.rows && j < p.cols ? p.data[j * p.ld + i] : from_real<E>(0);
  });
  const PanelWork<E, N> second{memory.square[0], memory.square[1], memory.scratch, memory.norms, memory.parts};
  const ReflectorWork<E, N> work{second, call.r1, q, memory.square[3], memory.scratch + N, memory.scratch + 2 * N};
  if (!panel_reflectors<N>(team, work, call.t, call.r, call.m)) {
    if (threadIdx.x == 0) *call.failed = kBrokenPanel;
    return;
  }
  team.for_each(0, N * N, [&](int e) {
    const int i = e % N, j = e / N;
    if (i < p.rows && j < p.cols) p.data[j * p.ld + i] = i > j ? q[i * N + j] : from_real<E>(i == j ? 1 : 0);
  });
}

// T of a panel whose reflectors a library made: V with its ones and zeros, tau.
template <class E>
__global__ void __launch_bounds__(kPanelThreads, 1) given_panel_kernel(PanelCall<E> call, const E* tau) {
  constexpr int N = kPanel<E>;
  extern __shared__ __align__(16) unsigned char shared[];
  const PanelMemory<E> memory(shared, 2);
  const BlockTeam<kPanelThreads> team;
  E* const own = memory.scratch;
  team.for_each(0, N * N, [&](int e) { memory.square[0][e] = call.gram[e]; });
  team.for_each(0, N, [&](int j) { own[j] = j < call.p.cols ? tau[j] : from_real<E>(0); });
  triangle_of_reflectors<N>(team, memory.square[0], own, memory.square[1], own + N);
  team.for_each(0, N * N, [&](int e) { call.t[e] = memory.square[1][e]; });
}

// Block b exchanges the upper triangle on the diagonal of panel first + b: R into the matrix, or out of it, with V_1's
// ones and zeros in its place.
template <class E>
__global__ void triangles_kernel(large::LargeView<E> a, E* r, int32_t first, bool into) {
  constexpr int N = kPanel<E>;
  const int64_t panel = first + static_cast<int32_t>(blockIdx.x), at = panel * N;
  E* const own = r + panel * (N * N);
  for (int e = static_cast<int>(threadIdx.x); e < N * N; e += static_cast<int>(blockDim.x)) {
    const int i = e % N, j = e / N;
    if (i > j || at + j >= a.cols) continue;
    E& entry = a.data[(at + j) * a.ld + at + i];
    if (into) {
      entry = own[e];
    } else {
      own[e] = entry;
      entry = from_real<E>(i == j ? 1 : 0);
    }
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_REFLECTOR_KERNELS_H_
