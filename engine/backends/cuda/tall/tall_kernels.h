// m x n matrices with m != n to k x k triangles: the tall-skinny QR tree of backends/host/tall/tall_reduction.h, whose
// tiles, order and arithmetic are part of the bits. A wide matrix is read as its transpose.
//
//   scan_kernel   exponents of the columns, and which matrices are not finite    a block a matrix
//   tile_kernel   the triangle of each tile of kTileRows rows                   a team a tile (or tall_registers.h)
//   join_kernel   tile t with tile t + d, for d = 1, 2, 4, ..                    a team a pair
//   apply_join_kernel, apply_tile_kernel   with vectors: the same way back, Q times a k x k matrix
//
// Triangles lie tile by tile, so that those of the first tiles, the results, are square matrices without gaps.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_KERNELS_H_

#include "engine/backends/cuda/lanes/team_kernels.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"

namespace svdserve::cuda {

template <class T>
struct TallCall {
  const T* a;  // [in] count matrices without gaps
  int64_t count;
  int64_t long_side;
  int k;
  int64_t row_stride, col_stride;  // in elements, of the tall matrix
  bool by_column;                  // JACOBI: a power of two for each column
  int tile_rows, tiles;
  T* exponents;  // [out] k a matrix
  T* triangles;  // [out] k x k, row-major; of tile t and matrix m: number t * count + m
  // With vectors, otherwise null; of tile t and matrix m: number t * count + m. Those of larger k: BlockFactor (block_qr.h).
  T* factors;  // [out] tile_rows x k by columns, see keep_tall_qr; null, too, where tiles are factorized again
  T* g;        // [out] 2 k: of the tile's reflectors, and of the join in which it is the bottom
  T* heads;    // [out] k elements: of that join, whose reflectors take the place of the bottom's triangle
};

// floor(log2(x)) of the number whose magnitude has these bits; zero for zero.
template <class T>
__device__ __forceinline__ int exponent_of_bits(typename FloatTraits<T>::Bits bits) {
  using F = FloatTraits<T>;
  if (bits == 0) return 0;
  const int field = static_cast<int>(bits >> F::kMantissaBits);
  if (field != 0) return field - F::kBias;
  const int width = sizeof(T) == 4 ? 32 - __clz(static_cast<int>(bits)) : 64 - __clzll(static_cast<long long>(bits));
  return width - F::kMantissaBits - F::kBias;
}

__device__ __forceinline__ void raise(unsigned* to, uint32_t bits) { atomicMax(to, bits); }
__device__ __forceinline__ void raise(unsigned long long* to, uint64_t bits) {
  atomicMax(to, static_cast<unsigned long long>(bits));
}

// Magnitudes as unsigned integers, whose largest is the same in any order of the elements.
template <class T>
__device__ __forceinline__ typename FloatTraits<T>::Bits magnitude_bits(T x) {
  typename FloatTraits<T>::Bits bits;
  memcpy(&bits, &x, sizeof(T));
  return bits & (~typename FloatTraits<T>::Bits{0} >> 1);
}
template <class T>
inline constexpr auto kInfinityBits =
    ((typename FloatTraits<T>::Bits{1} << (sizeof(T) * 8 - 1 - FloatTraits<T>::kMantissaBits)) - 1)
    << FloatTraits<T>::kMantissaBits;

template <class E>
__global__ void scan_kernel(const TallCall<typename E::Scalar> call) {
  using T = typename E::Scalar;
  using Bits = typename FloatTraits<T>::Bits;
  using Atomic = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
  __shared__ Atomic largest[kLargestInLanes];
  const int64_t m = blockIdx.x;
  const int k = call.k;
  if (threadIdx.x < k) largest[threadIdx.x] = 0;
  __syncthreads();
  const auto length = static_cast<int>(call.long_side), threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const E* const a = reinterpret_cast<const E*>(call.a) + m * call.long_side * k;
  const auto most_of = [](const E& x) {
    Bits bits = magnitude_bits(x.re.v);
    if constexpr (E::kComplex) bits = max(bits, magnitude_bits(x.im.v));
    return bits;
  };
  Bits mine = 0;
  if (call.col_stride == 1) {  // a thread has a column, and every so many of its rows
    const int step = threads / k * k;
    if (thread < step) {
      for (int x = thread; x < length * k; x += step) mine = max(mine, most_of(a[x]));
      raise(&largest[thread % k], mine);
    }
  } else {  // a warp has columns, or a part of one
    const int warps = threads / 32, parts = max(warps / k, 1);
    for (int piece = thread / 32; piece < k * parts; piece += warps) {
      const E* const column = a + piece % k * call.col_stride;
      mine = 0;
      for (int i = piece / k * 32 + thread % 32; i < length; i += 32 * parts) mine = max(mine, most_of(column[i]));
      SVD_UNROLL for (int distance = 16; distance >= 1; distance /= 2) {
        mine = max(mine, __shfl_xor_sync(~0u, mine, distance));
      }
      if (thread % 32 == 0) raise(&largest[piece % k], mine);
    }
  }
  __syncthreads();
  if (threadIdx.x >= k) return;
  Bits all = 0;
  for (int j = 0; j < k; ++j) all = largest[j] > all ? static_cast<Bits>(largest[j]) : all;
  const bool finite = all < kInfinityBits<T>;
  const Bits scale = call.by_column ? static_cast<Bits>(largest[threadIdx.x]) : all;
  // NaN says that the matrix is not finite: its triangle becomes NaN, which the square kernels find.
  call.exponents[m * k + threadIdx.x] = finite ? T(exponent_of_bits<T>(scale)) : FloatTraits<T>::nan();
}

template <class E, class Team>
__device__ __forceinline__ void store_triangle(const Team& team, scalar::MatrixView<E> a, int k, int rows, E* to,
                                               int threads) {
  for (int x = team.rank(); x < k * k; x += threads) {
    const int i = x / k, j = x % k;
    to[x] = j >= i && i < rows ? a(i, j) : scalar::zero_element<E>();
  }
}

template <class E, int kThreads>
__global__ void __launch_bounds__(kTeamBlock) tile_kernel(const TallCall<typename E::Scalar> call) {
  using Kernel = TeamKernel<E, kThreads>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const typename Kernel::Team team;
  const int k = call.k, height = call.tile_rows;
  const int64_t number = Kernel::number();
  if (number >= call.count * call.tiles) return;
  const int64_t m = number / call.tiles;
  const int tile = static_cast<int>(number % call.tiles);
  const TeamStorage<E> storage(reinterpret_cast<T*>(shared_bytes), Kernel::in_block(), height, k);
  const scalar::MatrixView<E> a{storage.matrix, TeamStorage<E>::leading_dimension(height)};
  const int64_t first_row = static_cast<int64_t>(tile) * height;
  const int rows = static_cast<int>(call.long_side - first_row < height ? call.long_side - first_row : height);
  const E* const from = reinterpret_cast<const E*>(call.a) + m * call.long_side * k + first_row * call.row_stride;
  load_matrix(team, from, rows, k, call.row_stride, call.col_stride, a, kThreads);
  const T* const exponents = call.exponents + m * k;
  const bool finite = exponents[0] == exponents[0];
  team.for_each(0, k, [&](int j) {
    const auto scale = scalar::make_pow2(-Lane<T>(finite ? exponents[j] : T(0)));
    for (int i = 0; i < height; ++i) {
      a(i, j) = i < rows && finite ? scalar::scaled(a(i, j), scale) : scalar::zero_element<E>();
    }
  });
  const int64_t at = static_cast<int64_t>(tile) * call.count + m;
  E* const to = reinterpret_cast<E*>(call.triangles) + at * k * k;
  if (call.factors == nullptr) {
    scalar::tall_qr(team, a, height, scalar::RuntimeSize{k});
  } else {
    E* const diagonal = reinterpret_cast<E*>(storage.vectors + k);
    scalar::keep_tall_qr(team, a, height, scalar::RuntimeSize{k}, storage.vectors, diagonal);
    E* const factor = reinterpret_cast<E*>(call.factors) + at * height * k;
    for (int j = 0; j < k; ++j) {
      for (int i = team.rank(); i < height; i += kThreads) factor[j * height + i] = a(i, j);
    }
    for (int j = team.rank(); j < k; j += kThreads) call.g[at * 2 * k + j] = storage.vectors[j].v;
    team.sync();
    team.for_each(0, k, [&](int j) { a(j, j) = diagonal[j]; });
  }
  store_triangle(team, a, k, height, to, kThreads);
  if (!finite && tile == 0 && team.rank() == 0) to[0].re = Lane<T>(FloatTraits<T>::nan());
}

template <class E, int kThreads>
__global__ void __launch_bounds__(kTeamBlock) join_kernel(const TallCall<typename E::Scalar> call, int distance) {
  using Kernel = TeamKernel<E, kThreads>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const typename Kernel::Team team;
  const int k = call.k;
  const int64_t number = Kernel::number();
  const int pairs = (call.tiles - distance + 2 * distance - 1) / (2 * distance);
  if (number >= call.count * pairs) return;
  const int64_t m = number / pairs, t = number % pairs * 2 * distance;
  E* const triangles = reinterpret_cast<E*>(call.triangles);
  E* const top = triangles + (t * call.count + m) * k * k;
  const int64_t at_bottom = (t + distance) * call.count + m;
  E* const bottom = triangles + at_bottom * k * k;
  if (t == 0 && !(top[0].re.v == top[0].re.v)) return;  // not finite: the mark stays
  const TeamStorage<E> storage(reinterpret_cast<T*>(shared_bytes), Kernel::in_block(), 2 * k, k);
  const int ld = TeamStorage<E>::leading_dimension(2 * k);
  const scalar::MatrixView<E> a{storage.matrix, ld}, b{storage.matrix + k, ld};
  load_matrix(team, static_cast<const E*>(top), k, k, k, 1, a, kThreads);
  load_matrix(team, static_cast<const E*>(bottom), k, k, k, 1, b, kThreads);
  if (call.heads == nullptr) {
    scalar::join_qr(team, a, b, scalar::RuntimeSize{k});
  } else {
    E* const heads = reinterpret_cast<E*>(storage.vectors + k);
    scalar::keep_join_qr(team, a, b, scalar::RuntimeSize{k}, storage.vectors, heads);
    store_triangle(team, b, k, k, bottom, kThreads);
    for (int j = team.rank(); j < k; j += kThreads) {
      call.g[at_bottom * 2 * k + k + j] = storage.vectors[j].v;
      reinterpret_cast<E*>(call.heads)[at_bottom * k + j] = heads[j];
    }
  }
  store_triangle(team, a, k, k, top, kThreads);
}

// k x k, row-major.
template <class E, class Team>
__device__ __forceinline__ void store_square(const Team& team, scalar::MatrixView<E> a, int k, E* to, int threads) {
  for (int x = team.rank(); x < k * k; x += threads) to[x] = a(x / k, x % k);
}

// Applies the join of (t, t + distance): the k x k part of t becomes the parts of both.
template <class E, int kThreads>
__global__ void __launch_bounds__(kTeamBlock)
    apply_join_kernel(const TallCall<typename E::Scalar> call, int distance, int columns) {
  using Kernel = TeamKernel<E, kThreads>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const typename Kernel::Team team;
  const int k = call.k;
  const int64_t number = Kernel::number();
  const int pairs = (call.tiles - distance + 2 * distance - 1) / (2 * distance);
  if (number >= call.count * pairs) return;
  const int64_t m = number / pairs, t = number % pairs * 2 * distance, at = (t + distance) * call.count + m;
  E* const top = reinterpret_cast<E*>(call.triangles) + (t * call.count + m) * k * k;
  E* const bottom = reinterpret_cast<E*>(call.triangles) + at * k * k;
  const TeamStorage<E> storage(reinterpret_cast<T*>(shared_bytes), Kernel::in_block(), 3 * k, k);
  const int ld = TeamStorage<E>::leading_dimension(3 * k);
  const scalar::MatrixView<E> factor{storage.matrix, ld}, a{storage.matrix + k, ld}, b{storage.matrix + 2 * k, ld};
  E* const heads = reinterpret_cast<E*>(storage.vectors + k);
  for (int j = team.rank(); j < k; j += kThreads) {
    storage.vectors[j] = Lane<T>(call.g[at * 2 * k + k + j]);
    heads[j] = reinterpret_cast<const E*>(call.heads)[at * k + j];
  }
  load_matrix(team, static_cast<const E*>(top), k, k, k, 1, a, kThreads);
  load_matrix(team, static_cast<const E*>(bottom), k, k, k, 1, factor, kThreads);
  scalar::apply_join_q(team, factor, k, storage.vectors, heads, a, b, columns);
  store_square(team, a, k, top, kThreads);
  store_square(team, b, k, bottom, kThreads);
}

// The rows of X of one tile, from its k x k part.
template <class E, int kThreads>
__global__ void __launch_bounds__(kTeamBlock)
    apply_tile_kernel(const TallCall<typename E::Scalar> call, const Columns<E> to, int columns) {
  using Kernel = TeamKernel<E, kThreads>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const typename Kernel::Team team;
  const int k = call.k, height = call.tile_rows;
  const int64_t number = Kernel::number();
  if (number >= call.count * call.tiles) return;
  const int64_t m = number / call.tiles, tile = number % call.tiles, at = tile * call.count + m;
  const TeamStorage<E> storage(reinterpret_cast<T*>(shared_bytes), Kernel::in_block(), 2 * height, k);
  const int ld = TeamStorage<E>::leading_dimension(2 * height);
  const scalar::MatrixView<E> factor{storage.matrix, ld}, y{storage.matrix + height, ld};
  const E* const top = reinterpret_cast<const E*>(call.triangles) + at * k * k;
  for (int j = team.rank(); j < k; j += kThreads) storage.vectors[j] = Lane<T>(call.g[at * 2 * k + j]);
  for (int x = team.rank(); x < height * columns; x += kThreads) {
    const int i = x / columns, j = x % columns;
    y(i, j) = i < k ? top[i * k + j] : scalar::zero_element<E>();
  }
  load_matrix(team, reinterpret_cast<const E*>(call.factors) + at * height * k, height, k, 1, height, factor, kThreads);
  scalar::apply_tall_q(team, factor, height, k, storage.vectors, y, columns);
  const bool finite = call.exponents[m * k] == call.exponents[m * k];
  const int64_t first_row = tile * height;
  const int rows = static_cast<int>(call.long_side - first_row < height ? call.long_side - first_row : height);
  E* const out = to.data + m * to.matrix_stride + first_row * to.row_stride;
  const bool by_rows = to.col_stride == 1;
  for (int x = team.rank(); x < rows * columns; x += kThreads) {
    const int i = by_rows ? x / columns : x % rows, j = by_rows ? x % columns : x / rows;
    out[i * to.row_stride + j * to.col_stride] = canonical(y(i, j), to.conjugate, finite);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_KERNELS_H_
