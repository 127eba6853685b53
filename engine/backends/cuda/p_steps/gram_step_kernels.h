// The three kernels of a p-step of block Jacobi: Gram matrices of all its pairs, their orthogonalization
// (algorithms/blocks/gram_jacobi.h), and the postmultiplication of X and V, in place. E is double or Complex; K = 64 or
// 128 columns make a pair.
//
// X and V are column-major in device memory, every column aligned to 16 bytes. Slabs of rows stream through shared
// memory by asynchronous copies, two or more at a time, with zeros for rows and columns beyond the last. The matrix units
// compute the products.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_KERNELS_H_

#include <cuda_pipeline_primitives.h>

#include "engine/algorithms/blocks/gram_groups_in_registers.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/matrix_unit.h"
#include "engine/backends/cuda/device/teams.h"
#include "engine/backends/cuda/p_steps/gram_step.h"

namespace svdserve::cuda {

// --- slabs --------------------------------------------------------------------------------------------------------

// kRows rows of the K columns of a pair, column-major in shared memory. Leading dimensions are such that the lanes of a
// warp that read a fragment meet different banks. The rows of a fragment are neighbours (postmultiply) or far (Gram).
template <class E, int K, bool kGram>
struct Slab {
  static constexpr int kRows = 32768 / (K * static_cast<int>(sizeof(E)));
  static constexpr int kLd = kRows + (kIsComplex<E> && !kGram ? 2 : 4);
  static constexpr int kElements = K * kLd;
  static constexpr int kBytes = kElements * static_cast<int>(sizeof(E));
};

inline constexpr int64_t kNoColumn = int64_t{1} << 40;

// The column of X that is the pair's column j: blocks of `width` columns, K / 2 places for each.
template <int K>
__device__ __forceinline__ int64_t column_of(GramStepPair pair, int width, int j) {
  const int at = j % (K / 2);
  return at < width ? int64_t{j < K / 2 ? pair.p : pair.q} * width + at : kNoColumn;
}

// Copies slabs of a pair of blocks of one matrix. Where a slab is whole, a thread's copies are a whole number of columns
// apart, and an address is the one before and a constant. Without that, address arithmetic keeps the matrix units idle.
template <class E, int K, bool kGram, int kThreads>
class SlabReader {
 public:
  using S = Slab<E, K, kGram>;

  __device__ __forceinline__ SlabReader(const GramStepMatrix<E>& x, GramStepPair pair, int width)
      : x_(x), pair_(pair), width_(width), whole_(2 * width == K && int64_t{pair.q + 1} * width <= x.cols) {
    const int first = static_cast<int>(threadIdx.x) / kPerColumn;
    from_ = x.data + (int64_t{pair.p} * (K / 2) + first) * x.ld + row_of_thread();
    to_q_ = int64_t{pair.q - pair.p - 1} * (K / 2) * x.ld;
  }
  // All of rows row .. row + kRows - 1 are rows of the matrix, and the blocks have K / 2 columns.
  __device__ __forceinline__ bool is_whole(int64_t row) const { return whole_ && row + S::kRows <= x_.rows; }
  // Begins the copy of rows row .. row + kRows - 1.
  __device__ __forceinline__ void fetch(E* slab, int64_t row) const {
    if (!is_whole(row)) return fetch_edge(slab, row);
    const int first = static_cast<int>(threadIdx.x) / kPerColumn;
    const E* from = from_ + row;
    E* to = slab + first * S::kLd + row_of_thread();
#pragma unroll
    for (int j = 0; j < K; j += kColumns) {
      if (K % kColumns == 0 || first + j < K) __pipeline_memcpy_async(to, from + (first + j < K / 2 ? 0 : to_q_), 16);
      from += kColumns * x_.ld;
      to += kColumns * S::kLd;
    }
  }

 private:
  static constexpr int kStep = 16 / static_cast<int>(sizeof(E));  // elements of a copy
  static constexpr int kPerColumn = S::kRows / kStep, kColumns = kThreads / kPerColumn;
  static_assert(kThreads % kPerColumn == 0);
  static __device__ __forceinline__ int row_of_thread() { return static_cast<int>(threadIdx.x) % kPerColumn * kStep; }

  __device__ __forceinline__ void fetch_edge(E* slab, int64_t row) const {
#pragma unroll 1
    for (int e = static_cast<int>(threadIdx.x); e < K * kPerColumn; e += kThreads) {
      const int j = e / kPerColumn, i = row_of_thread();
      const int64_t column = column_of<K>(pair_, width_, j), left = column < x_.cols ? x_.rows - row - i : 0;
      const bool any = left > 0;
      const size_t zeros = left >= kStep ? 0 : any ? 16 - left * sizeof(E) : 16;
      __pipeline_memcpy_async(slab + j * S::kLd + i, any ? x_.data + column * x_.ld + row + i : x_.data, 16, zeros);
    }
  }

  GramStepMatrix<E> x_;
  GramStepPair pair_;
  int width_;
  bool whole_;
  const E* from_;  // the thread's first element of row 0
  int64_t to_q_;   // from where the pair's columns would go on behind p to where they do
};

// --- Gram matrices ------------------------------------------------------------------------------------------------

// The lower triangle in tiles of 16 x 8. Bands of 16 rows are in twos, one from each end. Any two have the same number of
// tiles, half of them for each of two warps. So all four schedulers have the same work. kGroups groups of warps share the
// rows of a slab.
template <class E, int K>
struct GramShape {
  static constexpr int kBands = K / 16;
  static constexpr int kWarps = kBands;      // of a group
  static constexpr int kTiles = kBands + 1;  // of a warp
  static constexpr int kGroups = 8 / kWarps;
  static constexpr int kThreads = 32 * kWarps * kGroups;
  static constexpr int kSum = kGroups > 1 ? K* K* static_cast<int>(sizeof(E)) : 0;
  // With so many slabs on their way or worked on.
  static constexpr int shared_bytes(int stages) {
    const int slabs = stages * Slab<E, K, true>::kBytes;
    return slabs > kSum ? slabs : kSum;
  }
};

// A warp's tiles: the first `of_upper` are of the band of its two with more tiles, from tile `first` on. The others are
// all those of the other band.
template <int kBands>
struct GramTiles {
  int upper, lower, first, of_upper;  // the first two: bands

  __device__ __forceinline__ explicit GramTiles(int warp)
      : upper(kBands - 1 - warp / 2),
        lower(warp / 2),
        first(warp % 2 * (kBands + 1)),
        of_upper(warp % 2 == 0 ? kBands + 1 : 2 * upper + 1 - kBands) {}
  // Where tile j of the warp begins.
  __device__ __forceinline__ int row(int j) const { return 16 * (j < of_upper ? upper : lower); }
  __device__ __forceinline__ int column(int j) const { return 8 * (j < of_upper ? first + j : j - of_upper); }
};

// Rows t, 4 + t, 8 + t and 12 + t of a column of a slab, which a thread has in a fragment.
template <class E, int N>
__device__ __forceinline__ void read_rows(const E* column, int t, Fragment<E, N>& to, int first, int stride) {
#pragma unroll
  for (int c = 0; c < 4; ++c) to.set(first + c * stride, column[4 * c + t]);
}

// Adds 16 rows of a slab, of which the first is at `rows`, to the sums of a warp's tiles, kOfUpper in its first band.
template <class E, int K, int kOfUpper>
__device__ __forceinline__ void add_rows(const E* rows, const GramTiles<K / 16>& tiles,
                                         Fragment<E, 4> (&sum)[GramShape<E, K>::kTiles]) {
  constexpr int kLd = Slab<E, K, true>::kLd;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto left = [&](int band) {
    Fragment<E, 8> a;
    read_rows(rows + (16 * band + g) * kLd, t, a, 0, 2);
    read_rows(rows + (16 * band + 8 + g) * kLd, t, a, 1, 2);
    return a;
  };
  const auto add = [&](const Fragment<E, 8>& a, int column, Fragment<E, 4>& to) {
    Fragment<E, 4> b;
    read_rows(rows + (column + g) * kLd, t, b, 0, 1);
    multiply<true>(to, a, b);
  };
  const Fragment<E, 8> upper = left(tiles.upper);
#pragma unroll
  for (int j = 0; j < kOfUpper; ++j) add(upper, 8 * (tiles.first + j), sum[j]);
  if constexpr (kOfUpper < GramShape<E, K>::kTiles) {
    const Fragment<E, 8> lower = left(tiles.lower);
#pragma unroll
    for (int j = kOfUpper; j < GramShape<E, K>::kTiles; ++j) add(lower, 8 * (j - kOfUpper), sum[j]);
  }
}
// The same where kOfUpper, or what is two less and so on, is the number of a warp.
template <class E, int K, int kOfUpper>
__device__ __forceinline__ void add_rows_of_any(const E* rows, const GramTiles<K / 16>& tiles,
                                                Fragment<E, 4> (&sum)[GramShape<E, K>::kTiles]) {
  if (tiles.of_upper == kOfUpper) {
    add_rows<E, K, kOfUpper>(rows, tiles, sum);
  } else if constexpr (kOfUpper > 2) {
    add_rows_of_any<E, K, kOfUpper - 2>(rows, tiles, sum);
  }
}

// Block (split, pair) sums over its part of the rows: partial[pair][split] is a packed lower triangle. The first block
// clears the count of active pairs, which the orthogonalization then raises.
template <class E, int K, int kStages>
__global__ void __launch_bounds__(GramShape<E, K>::kThreads, 1)
    gram_kernel(GramStepMatrix<E> x, const GramStepPair* pairs, GramStepVersions versions, GramStepStack stack,
                int width, E* partial, int* active_count) {
  using Shape = GramShape<E, K>;
  using S = Slab<E, K, true>;
  extern __shared__ __align__(16) unsigned char shared[];
  E* const slabs = reinterpret_cast<E*>(shared);
  const GramStepPair pair = pairs[blockIdx.y];
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *active_count = 0;
  if (versions.unchanged(pair) || stack.is_finished(pair)) return;
  const auto all = static_cast<unsigned>((x.rows + S::kRows - 1) / S::kRows);
  const unsigned splits = gridDim.x, split = blockIdx.x;
  const int first = static_cast<int>(all * split / splits);
  const int slab_count = static_cast<int>(all * (split + 1) / splits) - first;
  const int warp = static_cast<int>(threadIdx.x) / 32, group = warp / Shape::kWarps;
  const GramTiles<K / 16> tiles(warp % Shape::kWarps);

  Fragment<E, 4> sum[Shape::kTiles];
#pragma unroll
  for (int j = 0; j < Shape::kTiles; ++j) sum[j].clear();
  // Slab s is worked on at s mod kStages, while the next kStages - 1 arrive.
  const SlabReader<E, K, true, Shape::kThreads> reader(x, pair, width);
  const auto fetch = [&](int s) {
    if (s < slab_count) {
      reader.fetch(slabs + s % kStages * S::kElements, int64_t{first + s} * S::kRows);
    }
    __pipeline_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) fetch(s);
  for (int s = 0; s < slab_count; ++s) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // slab s is there, and nobody reads the one before, whose place the next takes
    fetch(s + kStages - 1);
    const E* const slab = slabs + s % kStages * S::kElements;
    for (int r = 16 * group; r < S::kRows; r += 16 * Shape::kGroups) {
      add_rows_of_any<E, K, Shape::kTiles>(slab + r, tiles, sum);
    }
  }
  __pipeline_wait_prior(0);
  __syncthreads();

  // The groups' sums, in their order; the slabs are no longer needed.
  E* const out = partial + (int64_t{blockIdx.y} * int64_t{splits} + int64_t{split}) * PackedGram<E>::size(K);
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  // f(row, column, entry) of each of the thread's entries.
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int j = 0; j < Shape::kTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) f(tiles.row(j) + 8 * (c / 2) + g, tiles.column(j) + 2 * t + c % 2, j, c);
    }
  };
  for (int from = Shape::kGroups - 1; from > 0; --from) {
    if (group == from) each([&](int row, int column, int j, int c) { slabs[row * K + column] = sum[j].get(c); });
    __syncthreads();
    if (group == from - 1) {
      each([&](int row, int column, int j, int c) {
        sum[j].set(c, plus_product(sum[j].get(c), slabs[row * K + column], from_real<E>(1)));
      });
    }
    __syncthreads();
  }
  if (group == 0) {
    each([&](int row, int column, int j, int c) {
      const E entry = sum[j].get(c);
      if (column <= row) out[PackedGram<E>::at(row, column)] = row == column ? from_real<E>(real_part(entry)) : entry;
    });
  }
}

// --- orthogonalization --------------------------------------------------------------------------------------------

// As the generic one, in registers.
template <class E>
__device__ __forceinline__ void sweep_groups(const WarpTeam<32>&, const GramSuperstep& step, int g,
                                             const GramWork<E>& work) {
  const WarpThreads<32> thread;
  GroupsInRegisters<WarpThreads<32>, E>(thread, step, g, work).sweep();
}

// A thread's part of a tile of H, in matrix units: rows 2 t and 2 t + 1 of column g. The first product is Q_a^H H, and
// its result T has columns 2 t and 2 t + 1 of row g. The second one is Q_b^T T^T, whose result lies as H did. Both take
// their inner index in the order 2 t, 2 t + 1. So a thread reads and writes the same entries of H, and no others.
template <class E>
class GramTileUnit {
 public:
  __device__ __forceinline__ GramTileUnit(const GramSuperstep& step, GramTile tile, const GramWork<E>& work)
      : step_(step), tile_(tile), work_(work) {}

  __device__ __forceinline__ void load() {
    column_ = step_.column(tile_.b, g_);
    rows_[0] = step_.column(tile_.a, 2 * t_);
    rows_[1] = step_.column(tile_.a, 2 * t_ + 1);
    const E* const qa = work_.groups[tile_.a].q[step_.turn] + g_ * n + 2 * t_;
    const E* const qb = work_.groups[tile_.b].q[step_.turn] + g_ * n + 2 * t_;
    for (int i = 0; i < 2; ++i) {
      const double identity = g_ == 2 * t_ + i ? 1 : 0;
      h_[i] = work_.h.get(rows_[i], column_);
      qa_[i] = conjugate(plus_real(qa[i], identity));
      qb_[i] = plus_real(qb[i], identity);
    }
  }
  __device__ __forceinline__ void multiply() {
    const E zero = from_real<E>(0);
    E first[2] = {zero, zero}, second[2] = {zero, zero};
    for (int i = 0; i < 2; ++i) multiply_8x8x4(first, qa_[i], h_[i]);
    for (int i = 0; i < 2; ++i) multiply_8x8x4(second, qb_[i], first[i]);
    for (int i = 0; i < 2; ++i) h_[i] = second[i];
  }
  __device__ __forceinline__ void store() const {
    for (int i = 0; i < 2; ++i) work_.h.set(rows_[i], column_, h_[i]);
  }

 private:
  static constexpr int n = kJacobiGroup;

  const GramSuperstep& step_;
  const GramTile tile_;
  const GramWork<E>& work_;
  const int g_ = static_cast<int>(threadIdx.x) % 32 / 4, t_ = static_cast<int>(threadIdx.x) % 4;
  int column_, rows_[2];
  E h_[2], qa_[2], qb_[2];
};

template <class E>
__device__ __forceinline__ void transform_gram_tiles(const WarpTeam<32>&, const GramSuperstep& step, GramTile first,
                                                     GramTile second, const GramWork<E>& work) {
  GramTileUnit<E> units[2] = {{step, first, work}, {step, second, work}};
#pragma unroll
  for (GramTileUnit<E>& unit : units) unit.load();
#pragma unroll
  for (GramTileUnit<E>& unit : units) unit.multiply();
#pragma unroll
  for (GramTileUnit<E>& unit : units) unit.store();
}

// The inner index in the order 2 t, 2 t + 1: a thread reads and writes the same entries of W, and no others.
template <class E>
__device__ __forceinline__ void transform_rotations(const WarpTeam<32>& team, const GramSuperstep& step, int b,
                                                    const GramWork<E>& work) {
  constexpr int n = kJacobiGroup;
  const int g = team.rank() / 4, t = team.rank() % 4;
  const E* const q = work.groups[b].q[step.turn] + g * n + 2 * t;
  const E zero = from_real<E>(0), one = from_real<E>(1), q_left = q[0], q_right = q[1];
  const int left = step.column(b, 2 * t), right = step.column(b, 2 * t + 1);
  E* const w_left = work.w.column(left) + g;
  E* const w_right = work.w.column(right) + g;
#pragma unroll 4
  for (int row = 0; row < work.k; row += n) {
    const E x = w_left[row], y = w_right[row];
    E result[2] = {zero, zero};
    multiply_8x8x4(result, row + g == left ? plus_product(x, one, one) : x, q_left);
    multiply_8x8x4(result, row + g == right ? plus_product(y, one, one) : y, q_right);
    w_left[row] = plus_product(x, result[0], one);
    w_right[row] = plus_product(y, result[1], one);
  }
}

// kMany: of so many pairs that a multiprocessor should have several at once.
template <class E, int K, bool kMany = false>
struct InnerShape {
  // A warp sweeps two groups of columns, and others apply rotations to W meanwhile. With more warps a thread has too few
  // registers. At K = 64 14 warps have two tiles of H each.
  static constexpr int kThreads = kMany ? (kIsComplex<E> ? 256 : 192) : K == 64 ? 448 : 512;
  static constexpr int kBlocks = !kMany ? 1 : kIsComplex<E> ? 2 : 3;  // a multiprocessor
  static constexpr int kLd = K + 4;                                   // of W in shared memory
  static constexpr int kGram = PackedGram<E>::size(K) * static_cast<int>(sizeof(E));
  static constexpr int kGroups = K / kJacobiGroup * static_cast<int>(sizeof(GramGroup<E>));
  static constexpr int kColumns =
      K * static_cast<int>(kCosineParts * sizeof(double) + 2 * sizeof(int) + 1) + jacobi_supersteps(K) * K;
  static constexpr int kRotations = K * kLd * static_cast<int>(sizeof(E));
  static constexpr int shared_bytes(bool rotations) {
    return kGram + kGroups + kColumns + (rotations ? kRotations : 0);
  }
};

// The sum of the parts of a Gram matrix, in their order. A thread has several entries at once, and several parts of each:
// loads from far memory wait for each other as little as they can.
template <class E, int K, int kThreads>
__device__ __forceinline__ void sum_parts(const E* parts, int splits, E* h) {
  constexpr int kSize = PackedGram<E>::size(K), kEntries = 4;
  for (int first = static_cast<int>(threadIdx.x); first < kSize; first += kEntries * kThreads) {
    E sum[kEntries];
#pragma unroll
    for (int u = 0; u < kEntries; ++u) sum[u] = from_real<E>(0);
#pragma unroll(kIsComplex <E> ? 1 : 4)
    for (int split = 0; split < splits; ++split) {
#pragma unroll
      for (int u = 0; u < kEntries; ++u) {
        const int e = first + u * kThreads;
        if (e < kSize) sum[u] = plus_product(sum[u], parts[int64_t{split} * kSize + e], from_real<E>(1));
      }
    }
#pragma unroll
    for (int u = 0; u < kEntries; ++u) {
      const int e = first + u * kThreads;
      if (e < kSize) h[e] = sum[u];
    }
  }
}

// One block a pair: sums the parts of its Gram matrix, sweeps, leaves W, its columns' exponents and what happened.
template <class E, int K, bool kMany = false>
__global__ void __launch_bounds__(InnerShape<E, K, kMany>::kThreads, (InnerShape<E, K, kMany>::kBlocks))
    inner_kernel(InnerCall<E> call) {
  using Shape = InnerShape<E, K, kMany>;
  extern __shared__ __align__(16) unsigned char shared[];
  const BlockTeam<Shape::kThreads> block;
  const GramStepPair pair = call.pairs[blockIdx.x];
  if (call.versions.unchanged(pair) || call.stack.is_finished(pair)) return;
  unsigned char* next = shared;
  GramWork<E> work{};
  work.k = K;
  work.h.data = reinterpret_cast<E*>(next);
  next += Shape::kGram;
  work.groups = reinterpret_cast<GramGroup<E>*>(next);
  next += Shape::kGroups;
  E* const w_out = call.w + int64_t{blockIdx.x} * (K * (K + 1));
  work.diagonal = w_out + K * K;
  if (call.w_in_shared_memory) {
    work.w = {reinterpret_cast<E*>(next), K, Shape::kLd};
    next += Shape::kRotations;
  } else {
    work.w = {w_out, K, K};
  }
  work.cosines = reinterpret_cast<double*>(next);
  next += kCosineParts * K * sizeof(double);
  work.exponents = reinterpret_cast<int*>(next);
  next += K * sizeof(int);
  int* const exponents_before = reinterpret_cast<int*>(next);
  work.exponents_before = exponents_before;
  next += K * sizeof(int);
  int8_t* const signs = reinterpret_cast<int8_t*>(next);
  next += K;
  work.columns = next;
  work.signs = call.positive < call.cols ? signs : nullptr;
  work.sorts = call.stack.blocks == 0;
  work.tolerance2 = call.tolerance * call.tolerance;
  work.sweeps = call.sweeps;

  sum_parts<E, K, Shape::kThreads>(call.partial + int64_t{blockIdx.x} * call.splits * PackedGram<E>::size(K),
                                   call.splits, work.h.data);
  block.for_each(0, K, [&](int i) {
    const int64_t column = column_of<K>(pair, call.width, i);
    work.exponents[i] = exponents_before[i] = column < call.cols ? call.exponents[column] : 0;
    signs[i] = column < call.positive ? 1 : -1;
  });

  const GramOutcome outcome = gram_jacobi(block, work);
  const int matrix = call.stack.matrix_of(pair);
  GramStepCounts& counters = call.counters[matrix];
  const int32_t smallest = call.stack.blocks == 0 ? call.smallest_exponent : call.stack.smallest_exponents[matrix];

  if (threadIdx.x == 0) {
    if (outcome.active) call.active[atomicAdd(call.active_count, 1)] = static_cast<int>(blockIdx.x);
    call.versions.note(pair, outcome.active);
    // A NaN, which is no cosine, is larger than all of them.
    atomicMax(&counters.cosine2_bits, __double_as_longlong(outcome.cosine2) & 0x7fffffffffffffffull);
    if (outcome.active) {
      atomicAdd(&counters.rotations, static_cast<unsigned long long>(outcome.rotations));
      atomicAdd(&counters.proper_rotations, static_cast<unsigned long long>(outcome.proper_rotations));
      atomicAdd(&counters.active_pairs, 1ull);
      if (outcome.lost) atomicOr(&counters.lost, 1ull);
    }
  }
  if (!outcome.active) return;
  if (call.w_in_shared_memory) {
    block.for_each(0, K * K, [&](int e) { w_out[e] = work.w.column(e / K)[e % K]; });
  }
  block.for_each(0, K, [&](int j) {
    const int64_t column = column_of<K>(pair, call.width, j);
    // Rounding error of a dependent column: zero in X, while V keeps what was rotated.
    const bool vanished = exponents_before[j] != large::kZeroColumn && work.exponents[j] < smallest;
    if (column < call.cols) {
      call.exponents[column] = vanished ? large::kZeroColumn : work.exponents[j];
      if (vanished) atomicOr(&counters.lost, 1ull);
    }
    call.exponent_changes[int64_t{blockIdx.x} * (2 * K) + j] = exponents_before[j];
    call.exponent_changes[int64_t{blockIdx.x} * (2 * K) + K + j] = work.exponents[j];
  });
}

// --- postmultiplication -------------------------------------------------------------------------------------------

template <class E, int K>
struct PostShape {
  static constexpr int kThreads = 256;
  static constexpr int kTiles = K / 64;  // of 8 columns; a warp has so many
  static constexpr int shared_bytes(int stages) { return stages * Slab<E, K, false>::kBytes; }
  static constexpr int kBlocks = K * static_cast<int>(sizeof(E)) > 512 ? 1 : 2;  // a multiprocessor
};

// Where a thread works in a product: its warp's first column, its own row and column in fragments.
template <class E, int K>
struct WarpPlace {
  int col0 = static_cast<int>(threadIdx.x) / 32 * 8 * PostShape<E, K>::kTiles;
  int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  __device__ WarpPlace() {}
};

// Slabs of one pair and one matrix that a block multiplies one after the other.
template <class E>
struct SlabRange {
  GramStepPair pair;
  int index;         // of the pair
  bool of_v;         // else of X
  int first, count;  // slabs
};

// The slabs of the p-step are those of X, then those of V, of one active pair after the other. The range that begins at
// `at` and ends at `end` at the latest.
template <class E>
__device__ __forceinline__ SlabRange<E> range_at(const PostCall<E>& call, int64_t at, int64_t end) {
  const int per_pair = call.x_slabs + call.v_slabs, slab = static_cast<int>(at % per_pair);
  SlabRange<E> range;
  range.index = call.active[at / per_pair];
  range.pair = call.pairs[range.index];
  range.of_v = slab >= call.x_slabs;
  range.first = slab - (range.of_v ? call.x_slabs : 0);
  const int64_t left = (range.of_v ? call.v_slabs : call.x_slabs) - range.first;
  range.count = static_cast<int>(left < end - at ? left : end - at);
  return range;
}

// The warp's columns of W - I of a pair, for X or for V, into registers.
template <class E, int K>
__device__ __forceinline__ void load_rotations(const PostCall<E>& call, const SlabRange<E>& at,
                                               Fragment<E, 4> (&w)[K / 16][PostShape<E, K>::kTiles]) {
  const WarpPlace<E, K> place;
  const E* const rotations = call.w + int64_t{at.index} * (K * (K + 1));
  const int* const before = call.exponent_changes + int64_t{at.index} * (2 * K);
  const int* const after = before + K;
#pragma unroll
  for (int j = 0; j < PostShape<E, K>::kTiles; ++j) {
    const int column = place.col0 + 8 * j + place.g;
    const int64_t column_of_x = column_of<K>(at.pair, call.width, column);
    const bool vanished = !at.of_v && column_of_x < call.x.cols && call.exponents[column_of_x] == large::kZeroColumn;
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = 16 * k + 4 * c + place.t;
        E entry = rotations[column * K + row];
        if (at.of_v && row == column) {  // V takes W of the true columns
          entry = rotations[K * K + row];
        } else if (at.of_v) {
          const int shift = after[column] - before[row];
          if (shift > kLargestDistance) {
            entry = from_real<E>(0);
          } else if (shift != 0) {
            entry = times_real(entry, power_of_two(shift < -1022 ? -1022 : shift));
          }
        } else if (vanished) {
          entry = from_real<E>(row == column ? -1 : 0);
        }
        w[k][j].set(c, entry);
      }
    }
  }
}

// Where a thread leaves its columns of a pair: those of one block, of which some may be none.
template <class E, int K>
struct ColumnsOut {
  E* first;   // the thread's first column and row
  int count;  // columns from there to the end of the block

  __device__ __forceinline__ ColumnsOut(const GramStepMatrix<E>& x, GramStepPair pair, int width) {
    const WarpPlace<E, K> place;
    const int at = place.col0 % (K / 2) + 2 * place.t;
    const int64_t column = int64_t{place.col0 < K / 2 ? pair.p : pair.q} * width + at;
    first = x.data + column * x.ld + place.g;
    count = static_cast<int>(x.cols - column < width - at ? x.cols - column : width - at);
  }
};

// The warp's columns of slab + slab (W - I) into rows row .. row + rows - 1 of x.
template <class E, int K>
__device__ __forceinline__ void multiply_slab(const E* slab, const ColumnsOut<E, K>& out, int64_t ld, int64_t row,
                                              int rows, const Fragment<E, 4> (&w)[K / 16][PostShape<E, K>::kTiles]) {
  using S = Slab<E, K, false>;
  constexpr int kTiles = PostShape<E, K>::kTiles;
  const WarpPlace<E, K> place;
  E* const to = out.first + row;
  const E* const old = slab + (place.col0 + 2 * place.t) * S::kLd + place.g;
#pragma unroll
  for (int r = 0; r < S::kRows; r += 16) {
    Fragment<E, 4> sum[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) sum[j].clear();
#pragma unroll
    for (int k = 0; k < K / 16; ++k) {
      Fragment<E, 8> a;
#pragma unroll
      for (int c = 0; c < 8; ++c) a.set(c, slab[(16 * k + c / 2 * 4 + place.t) * S::kLd + r + 8 * (c % 2) + place.g]);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) multiply<false>(sum[j], a, w[k][j]);
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int right = 8 * j + c % 2, down = r + 8 * (c / 2);
        if (right >= out.count || down + place.g >= rows) continue;
        to[right * ld + down] = plus_product(old[right * S::kLd + down], sum[j].get(c), from_real<E>(1));
      }
    }
  }
}

// x := x W for the slabs of a range, W's fragments in registers.
template <class E, int K, int kStages>
__device__ __forceinline__ void multiply_range(const PostCall<E>& call, const GramStepMatrix<E>& x,
                                               const SlabRange<E>& range, E* slabs) {
  using S = Slab<E, K, false>;
  const SlabReader<E, K, false, PostShape<E, K>::kThreads> reader(x, range.pair, call.width);
  // Slab s is worked on at s mod kStages, while the next kStages - 1 arrive.
  const auto fetch = [&](int s) {
    if (s < range.count) reader.fetch(slabs + s % kStages * S::kElements, int64_t{range.first + s} * S::kRows);
    __pipeline_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) fetch(s);
  Fragment<E, 4> w[K / 16][PostShape<E, K>::kTiles];
  load_rotations<E, K>(call, range, w);
  const ColumnsOut<E, K> out(x, range.pair, call.width);
  for (int s = 0; s < range.count; ++s) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // slab s is there, and nobody reads the one before, whose place the next takes
    fetch(s + kStages - 1);
    const E* const slab = slabs + s % kStages * S::kElements;
    const int64_t row = int64_t{range.first + s} * S::kRows, left = x.rows - row;
    multiply_slab(slab, out, x.ld, row, static_cast<int>(left < S::kRows ? left : S::kRows), w);
  }
}

// Each block has an even share of all slabs: of a few pairs, for each of which it loads W.
template <class E, int K, int kStages>
__global__ void __launch_bounds__(256, (PostShape<E, K>::kBlocks)) postmultiply_kernel(PostCall<E> call) {
  extern __shared__ __align__(16) unsigned char shared[];
  E* const slabs = reinterpret_cast<E*>(shared);
  const int64_t all = int64_t{*call.active_count} * (call.x_slabs + call.v_slabs);
  const int64_t end = all * (blockIdx.x + 1) / gridDim.x;
  for (int64_t at = all * blockIdx.x / gridDim.x; at < end;) {
    const SlabRange<E> range = range_at(call, at, end);
    const GramStepMatrix<E> x = range.of_v ? call.v : call.x;
    multiply_range<E, K, kStages>(call, x, range, slabs);
    at += range.count;
    __syncthreads();  // nobody reads the last slab, whose place the next range takes
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_KERNELS_H_
