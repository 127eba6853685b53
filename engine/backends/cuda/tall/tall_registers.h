// Tiles of tall matrices in registers, with the bits of tall_kernels.h's tile_kernel and apply_tile_kernel. Tiles have
// 16, 32 or 64 rows, and a thread holds a few rows and columns of one.
//
//   tile_registers_kernel    the triangle of each tile; of a matrix that is one tile, its exponents, too
//   expand_registers_kernel  the rows of Q X of each tile
//
// A team of 8 kGroups threads has a tile of 8 kRows rows. Thread (p, q) holds the rows p, p + 8, .. of the columns q, q +
// kGroups, ..: the columns' inner products are dealt to eight partial sums as core/reduce.h deals them, one to each p.
// Which partial is which moves with the first row of a reflector, but the tree that joins them pairs distances 4, 2, 1
// and so does not. Columns travel between the groups of a warp by shuffles. A team of two warps, for c128 of more than 16
// columns, is a thread block. Its columns pass through shared memory, with a barrier each.
//
// Where a thread has room for the tile and for X beside it, the way back factorizes the tile once more. That moves less
// than to write and read its factor. Otherwise the factor is kept (TallCall::factors).
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_REGISTERS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_REGISTERS_H_

#include <algorithm>
#include <bit>

#include "engine/backends/cuda/lanes/element_access.h"
#include "engine/backends/cuda/tall/tall_kernels.h"

namespace svdserve::cuda {

template <class E>
__device__ __forceinline__ E from_lane(E x, int lane, int width) {
  x.re.v = __shfl_sync(~0u, x.re.v, lane, width);
  if constexpr (E::kComplex) x.im.v = __shfl_sync(~0u, x.im.v, lane, width);
  return x;
}

// The eight partial sums of threads beside each other, joined; every thread has the result.
template <class T>
__device__ __forceinline__ Lane<T> join_partials(Lane<T> s) {
  SVD_UNROLL for (int distance = 4; distance >= 1; distance /= 2) {
    s = s + Lane<T>(__shfl_xor_sync(~0u, s.v, distance));
  }
  return s;
}
template <class E>
__device__ __forceinline__ E join_element_partials(E s) {
  s.re = join_partials(s.re);
  if constexpr (E::kComplex) s.im = join_partials(s.im);
  return s;
}

// Words of 32 bits that a thread's part of a tile takes. `groups` of threads share up to k columns, a power of two.
constexpr int register_tile_words(int rows, int k, int groups, int element_bytes) {
  return rows / 8 * (k / groups) * element_bytes / 4;
}
// How many groups these are. Four are a warp. They are twice as many where a thread of a warp would have too many words.
inline constexpr int kGroupsOfWarp = 4;
constexpr int register_groups(int rows, int k, int element_bytes) {
  const int groups = std::clamp(k / (element_bytes == 16 ? 2 : 4), 1, kGroupsOfWarp);
  return register_tile_words(rows, k, groups, element_bytes) > kRegisterTileWords ? 2 * groups : groups;
}
constexpr int register_block(int groups) { return groups > kGroupsOfWarp ? 8 * groups : kRegisterBlock; }
constexpr int register_columns(int k) { return k <= 2 ? 2 : static_cast<int>(std::bit_ceil(static_cast<unsigned>(k))); }
// The words of a tile of k columns.
constexpr int register_tile_words(int rows, int k, int element_bytes) {
  const int columns = register_columns(k);
  return register_tile_words(rows, columns, register_groups(rows, columns, element_bytes), element_bytes);
}
// Whether tiles are worked on in registers. Every reflector then has more than eight elements: a sum in partials.
constexpr bool is_register_tile(int rows, int k, int element_bytes) {
  return (rows == 16 || rows == 32 || rows == 64) && k + 8 <= rows &&
         register_tile_words(rows, k, element_bytes) <= kRegisterTileWords;
}
// Whether such tiles leave room for X beside them, in a warp.
constexpr bool has_room_for_x(int rows, int k, int element_bytes) {
  return register_groups(rows, register_columns(k), element_bytes) <= kGroupsOfWarp &&
         register_tile_words(rows, k, element_bytes) <= kRegisterTileWords / 2;
}

// x[first] .. x[end - 1] of the threads of group q, to those of all groups with the same p. Every thread of the team makes
// the call. turn: 0 and 1 in turn from call to call.
template <int kGroups, int kSize, class E>
__device__ __forceinline__ void take_from_group(E* x, int first, int end, int q, int turn) {
  const int p = threadIdx.x % 8;
  if constexpr (kGroups > 1 && kGroups <= kGroupsOfWarp) {
    SVD_UNROLL for (int r = first; r < end; ++r) x[r] = from_lane(x[r], 8 * q + p, 8 * kGroups);
  }
  if constexpr (kGroups > kGroupsOfWarp) {
    __shared__ typename E::Scalar mail[2][E::kComponents][kSize][8];
    if (static_cast<int>(threadIdx.x) / 8 == q) {
      SVD_UNROLL for (int r = first; r < end; ++r) {
        mail[turn][0][r][p] = x[r].re.v;
        if constexpr (E::kComplex) mail[turn][1][r][p] = x[r].im.v;
      }
    }
    __syncthreads();
    SVD_UNROLL for (int r = first; r < end; ++r) {
      x[r].re.v = mail[turn][0][r][p];
      if constexpr (E::kComplex) x[r].im.v = mail[turn][1][r][p];
    }
  }
}

template <class E, int kRows, int kGroups, int kColumns>
class RegisterTile {
 public:
  using Element = E;
  using T = typename E::Scalar;
  static constexpr int kTileRows = kRows, kTileGroups = kGroups;
  static constexpr int kThreads = 8 * kGroups, kHeight = 8 * kRows;

  // The results of the tile's columns beside the reflectors: at c, of column c of this thread's group.
  struct Kept {
    Lane<T> g[kColumns];
    E beta[kColumns];
  };

  __device__ RegisterTile() : p_(threadIdx.x % 8), q_(threadIdx.x / 8 % kGroups) {}

  __device__ __forceinline__ int row(int r) const { return 8 * r + p_; }
  __device__ __forceinline__ int column(int c) const { return c * kGroups + q_; }
  __device__ __forceinline__ bool is_first() const { return p_ == 0 && q_ == 0; }
  // Whether this thread speaks for its columns.
  __device__ __forceinline__ bool leads_column() const { return p_ == 0; }

  __device__ __forceinline__ void clear() {
    SVD_UNROLL for (auto& row : a) { SVD_UNROLL for (E& x : row) x = scalar::zero_element<E>(); }
  }

  // A = Q R, R above the diagonal; the reflectors below and on it, as keep_tall_qr leaves them.
  __device__ __forceinline__ void factorize(int k, Kept* kept) { factorize_from<0>(k, kept); }

  // The reflectors of a factor, last one first, applied to this tile. factor.column(c, q, x) gives x(first_of(c)), ..
  // of column c of group q, zero above the diagonal, to every group, and returns the reflector's g.
  template <class Factor>
  __device__ __forceinline__ void apply(int k, const Factor& factor) {
    apply_from<kColumns - 1>(k, factor);
  }

  // Column c of group q, zero above the diagonal, to every group.
  __device__ __forceinline__ void broadcast(int c, int q, E* x) const {
    SVD_UNROLL for (int r = first_of(c); r < kRows; ++r) x[r] = a[r][c];
    take_from_group<kGroups, kRows>(x, first_of(c), kRows, q, q % 2);
    clear_above(c, q, x);
  }
  __device__ __forceinline__ void clear_above(int c, int q, E* x) const {
    if (p_ < head_of(c, q)) x[first_of(c)] = scalar::zero_element<E>();
  }
  static __device__ __forceinline__ Lane<T> broadcast(Lane<T> x, int q) {
    static_assert(kGroups <= kGroupsOfWarp);
    return kGroups == 1 ? x : Lane<T>(__shfl_sync(~0u, x.v, 8 * q, kThreads));
  }

  // The register row in which the diagonal element of a group's column c lies.
  static constexpr int first_of(int c) { return c * kGroups / 8; }

  E a[kRows][kColumns];

 private:
  // .. and the thread p of it.
  static __device__ __forceinline__ int head_of(int c, int q) { return (c * kGroups + q) % 8; }

  // Columns are numbers of the compiler, or their loops would not be unrolled and registers be memory.
  template <int c>
  __device__ __forceinline__ void factorize_from(int k, Kept* kept) {
    kept->g[c] = Lane<T>(T(0));
    kept->beta[c] = scalar::zero_element<E>();
    _Pragma("unroll 1") for (int q = 0; q < kGroups && c * kGroups + q < k; ++q) reflect(c, q, kept);
    if constexpr (c + 1 < kColumns) factorize_from<c + 1>(k, kept);
  }

  template <int c, class Factor>
  __device__ __forceinline__ void apply_from(int k, const Factor& factor) {
    _Pragma("unroll 1") for (int q = min(kGroups, k - c * kGroups) - 1; q >= 0; --q) {
      E x[kRows];
      const Lane<T> g = factor.column(c, q, x);
      SVD_UNROLL for (int other = 0; other < kColumns; ++other) subtract_reflection(c, q, x, g, other, true);
    }
    if constexpr (c > 0) apply_from<c - 1>(k, factor);
  }

  __device__ __forceinline__ void reflect(int c, int q, Kept* kept) {
    E x[kRows];
    broadcast(c, q, x);
    Lane<T> square(T(0));
    SVD_UNROLL for (int r = first_of(c); r < kRows; ++r) square = scalar::add_square(square, x[r]);
    const int head = head_of(c, q);
    const scalar::Reflector<E> h = scalar::reflector_of<E>(join_partials(square), from_lane(x[first_of(c)], head, 8));
    if (p_ == head) x[first_of(c)] = h.u0;
    SVD_UNROLL for (int other = c; other < kColumns; ++other) {
      if (kGroups > 1 || other > c) subtract_reflection(c, q, x, h.g, other, other > c || q_ > q);
    }
    if (q_ == q) {
      if (p_ == head) a[first_of(c)][c] = h.u0;
      kept->g[c] = h.g;
      kept->beta[c] = h.beta;
    }
  }

  // Column `other` minus g (x^H column) x, where wanted; every thread takes part in the sum.
  __device__ __forceinline__ void subtract_reflection(int c, int q, const E* x, Lane<T> g, int other, bool wanted) {
    E w = scalar::zero_element<E>();
    SVD_UNROLL for (int r = first_of(c); r < kRows; ++r) w = scalar::add_product(w, x[r], a[r][other]);
    w = scalar::scaled(join_element_partials(w), g);
    if (!wanted) return;
    SVD_UNROLL for (int r = first_of(c); r < kRows; ++r) {
      const E y = scalar::subtract_product(a[r][other], x[r], w);
      // An element above the reflector keeps the sign of its zero, too.
      a[r][other] = r > first_of(c) || p_ >= head_of(c, q) ? y : a[r][other];
    }
  }

  const int p_, q_;
};

// Which tile of which matrix a team has; the last teams of a grid may have none, and take part in shuffles.
struct TileNumber {
  int64_t matrix;
  int tile;
  bool exists;
};
template <class T>
__device__ __forceinline__ TileNumber tile_number(const TallCall<T>& call, int threads) {
  int64_t number = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / threads;
  const bool exists = number < call.count * call.tiles;
  if (!exists) number = 0;
  if (call.tiles == 1) return {number, 0, exists};
  return {number / call.tiles, static_cast<int>(number % call.tiles), exists};
}

// The tile as sent; zero where the matrix has ended.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ void load_tile(const TallCall<typename E::Scalar>& call, const TileNumber& at,
                                          RegisterTile<E, kRows, kGroups, kColumns>* tile) {
  using Tile = RegisterTile<E, kRows, kGroups, kColumns>;
  const int k = call.k;
  const int64_t first_row = static_cast<int64_t>(at.tile) * Tile::kHeight;
  const auto rows = static_cast<int>(min(call.long_side - first_row, static_cast<int64_t>(Tile::kHeight)));
  const E* const from =
      reinterpret_cast<const E*>(call.a) + at.matrix * call.long_side * k + first_row * call.row_stride;
  tile->clear();
  using Run = ElementRun<E, kColumns>;
  if (kGroups == 1 && call.col_stride == 1 && k == kColumns && Run::begins_at(from)) {
    SVD_UNROLL for (int r = 0; r < kRows; ++r) {
      if (tile->row(r) < rows) Run::load(from + tile->row(r) * kColumns, tile->a[r]);
    }
    return;
  }
  SVD_UNROLL for (int r = 0; r < kRows; ++r) {
    SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int i = tile->row(r), j = tile->column(c);
      if (i < rows && j < k) tile->a[r][c] = load_element(from + i * call.row_stride + j * call.col_stride);
    }
  }
}

// The exponents of a matrix that is this one tile, as scan_kernel finds them, of this thread's columns. Returns whether
// the matrix is finite.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ bool scan_tile(const RegisterTile<E, kRows, kGroups, kColumns>& tile, bool by_column,
                                          typename E::Scalar* exponents) {
  using T = typename E::Scalar;
  using Bits = typename FloatTraits<T>::Bits;
  Bits largest[kColumns], all = 0;
  SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
    Bits most = 0;
    SVD_UNROLL for (int r = 0; r < kRows; ++r) {
      most = max(most, magnitude_bits(tile.a[r][c].re.v));
      if constexpr (E::kComplex) most = max(most, magnitude_bits(tile.a[r][c].im.v));
    }
    SVD_UNROLL for (int distance = 1; distance < 8; distance *= 2) {
      most = max(most, __shfl_xor_sync(~0u, most, distance));
    }
    largest[c] = most;
    all = max(all, most);
  }
  SVD_UNROLL for (int distance = 8; distance < 8 * min(kGroups, kGroupsOfWarp); distance *= 2) {
    all = max(all, __shfl_xor_sync(~0u, all, distance));
  }
  if constexpr (kGroups > kGroupsOfWarp) {
    __shared__ Bits of_warps[kGroups / kGroupsOfWarp];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = all;
    __syncthreads();
    SVD_UNROLL for (const Bits& of_warp : of_warps) all = max(all, of_warp);
  }
  SVD_UNROLL for (int c = 0; c < kColumns; ++c) exponents[c] = T(exponent_of_bits<T>(by_column ? largest[c] : all));
  return all < kInfinityBits<T>;
}

// Columns divided by their powers of two; zero where the matrix is not finite.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ void scale_tile(RegisterTile<E, kRows, kGroups, kColumns>* tile, bool finite,
                                           const typename E::Scalar* exponents) {
  using T = typename E::Scalar;
  SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
    const auto scale = scalar::make_pow2(-Lane<T>(finite ? exponents[c] : T(0)));
    SVD_UNROLL for (auto& row : tile->a) row[c] = finite ? scalar::scaled(row[c], scale) : scalar::zero_element<E>();
  }
}

// The same by the exponents in memory, which say that a matrix is not finite by NaN.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ bool scale_tile_as_told(RegisterTile<E, kRows, kGroups, kColumns>* tile,
                                                   const typename E::Scalar* told, int k) {
  typename E::Scalar exponents[kColumns];
  const bool finite = told[0] == told[0];
  SVD_UNROLL for (int c = 0; c < kColumns; ++c) exponents[c] = tile->column(c) < k ? told[tile->column(c)] : 0;
  scale_tile(tile, finite, exponents);
  return finite;
}

template <class E, int kRows, int kGroups, int kColumns>
__global__ void __launch_bounds__(register_block(kGroups))
    tile_registers_kernel(const TallCall<typename E::Scalar> call) {
  using Tile = RegisterTile<E, kRows, kGroups, kColumns>;
  using T = typename E::Scalar;
  const int k = call.k;
  const TileNumber at = tile_number(call, Tile::kThreads);
  Tile tile;
  load_tile(call, at, &tile);
  bool finite;
  if (call.tiles == 1) {
    T exponents[kColumns];
    finite = scan_tile(tile, call.by_column, exponents);
    SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
      if (!at.exists || !tile.leads_column() || tile.column(c) >= k) continue;
      call.exponents[at.matrix * k + tile.column(c)] = finite ? exponents[c] : FloatTraits<T>::nan();
    }
    scale_tile(&tile, finite, exponents);
  } else {
    finite = scale_tile_as_told(&tile, call.exponents + at.matrix * k, k);
  }
  typename Tile::Kept kept;
  tile.factorize(k, &kept);
  if (!at.exists) return;
  const int64_t number = at.tile * call.count + at.matrix;
  E* const to = reinterpret_cast<E*>(call.triangles) + number * k * k;
  SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
    const int j = tile.column(c);
    SVD_UNROLL for (int r = 0; r <= Tile::first_of(kColumns - 1); ++r) {
      const int i = tile.row(r);
      const E x = i < j ? tile.a[r][c] : i == j ? kept.beta[c] : scalar::zero_element<E>();
      if (i < k && j < k) store_element(x, to + i * k + j);
    }
  }
  if (!finite && at.tile == 0 && tile.is_first()) to[0].re = Lane<T>(FloatTraits<T>::nan());
  if constexpr (!has_room_for_x(Tile::kHeight, kGroups * kColumns, sizeof(E))) {
    if (call.factors == nullptr) return;
    E* const factor = reinterpret_cast<E*>(call.factors) + number * Tile::kHeight * k;
    SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int j = tile.column(c);
      if (j >= k) continue;
      SVD_UNROLL for (int r = 0; r < kRows; ++r) store_element(tile.a[r][c], factor + j * Tile::kHeight + tile.row(r));
      if (tile.leads_column()) call.g[number * 2 * k + j] = kept.g[c].v;
    }
  }
}

// The factor of a tile: in the team's own registers ..
template <class Tile>
struct TileAtHand {
  const Tile& tile;
  const typename Tile::Kept& kept;

  template <class E>
  __device__ __forceinline__ auto column(int c, int q, E* x) const {
    tile.broadcast(c, q, x);
    return Tile::broadcast(kept.g[c], q);
  }
};
// .. or in memory, as tile_registers_kernel keeps it.
template <class Tile>
struct TileInMemory {
  using E = typename Tile::Element;
  const Tile& place;
  const E* factor;
  const typename E::Scalar* g;

  __device__ __forceinline__ Lane<typename E::Scalar> column(int c, int q, E* x) const {
    const int j = c * Tile::kTileGroups + q;
    SVD_UNROLL for (int r = Tile::first_of(c); r < Tile::kTileRows; ++r) {
      x[r] = load_element(factor + j * Tile::kHeight + place.row(r));
    }
    place.clear_above(c, q, x);
    return Lane<typename E::Scalar>(g[j]);
  }
};

// y := Q y. The tile is factorized again where there is room.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ void expand_tile(const TallCall<typename E::Scalar>& call, const TileNumber& at,
                                            int64_t number, RegisterTile<E, kRows, kGroups, kColumns>* y) {
  using Tile = RegisterTile<E, kRows, kGroups, kColumns>;
  const int k = call.k;
  if constexpr (has_room_for_x(Tile::kHeight, kGroups * kColumns, sizeof(E))) {
    Tile tile;
    typename Tile::Kept kept;
    load_tile(call, at, &tile);
    scale_tile_as_told(&tile, call.exponents + at.matrix * k, k);
    tile.factorize(k, &kept);
    y->apply(k, TileAtHand<Tile>{tile, kept});
  } else {
    const E* const factor = reinterpret_cast<const E*>(call.factors) + number * Tile::kHeight * k;
    y->apply(k, TileInMemory<Tile>{*y, factor, call.g + number * 2 * k});
  }
}

// The rows of X of one tile where they belong.
template <class E, int kRows, int kGroups, int kColumns>
__device__ __forceinline__ void store_tile(const TallCall<typename E::Scalar>& call, const TileNumber& at,
                                           RegisterTile<E, kRows, kGroups, kColumns>* y, const Columns<E>& to,
                                           int columns) {
  using Tile = RegisterTile<E, kRows, kGroups, kColumns>;
  const typename E::Scalar told = call.exponents[at.matrix * call.k];
  const bool finite = told == told;
  const int64_t first_row = static_cast<int64_t>(at.tile) * Tile::kHeight;
  const auto rows = static_cast<int>(min(call.long_side - first_row, static_cast<int64_t>(Tile::kHeight)));
  E* const out = to.data + at.matrix * to.matrix_stride + first_row * to.row_stride;
  SVD_UNROLL for (auto& row : y->a) { SVD_UNROLL for (E& x : row) x = canonical(x, to.conjugate, finite); }
  using Run = ElementRun<E, kColumns>;
  if (kGroups == 1 && to.col_stride == 1 && columns == kColumns && to.row_stride == kColumns && Run::begins_at(out)) {
    SVD_UNROLL for (int r = 0; r < kRows; ++r) {
      if (y->row(r) < rows) Run::store(y->a[r], out + y->row(r) * kColumns);
    }
    return;
  }
  SVD_UNROLL for (int r = 0; r < kRows; ++r) {
    SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int i = y->row(r), j = y->column(c);
      if (i < rows && j < columns) store_element(y->a[r][c], out + i * to.row_stride + j * to.col_stride);
    }
  }
}

// The rows of X of one tile, from its k x k part.
template <class E, int kRows, int kGroups, int kColumns>
__global__ void __launch_bounds__(register_block(kGroups))
    expand_registers_kernel(const TallCall<typename E::Scalar> call, const Columns<E> to, int columns) {
  using Tile = RegisterTile<E, kRows, kGroups, kColumns>;
  const int k = call.k;
  const TileNumber at = tile_number(call, Tile::kThreads);
  const int64_t number = at.tile * call.count + at.matrix;
  const E* const top = reinterpret_cast<const E*>(call.triangles) + number * k * k;
  Tile y;
  y.clear();
  SVD_UNROLL for (int r = 0; r <= Tile::first_of(kColumns - 1); ++r) {
    SVD_UNROLL for (int c = 0; c < kColumns; ++c) {
      if (y.row(r) < k && y.column(c) < columns) y.a[r][c] = load_element(top + y.row(r) * k + y.column(c));
    }
  }
  expand_tile(call, at, number, &y);
  if (at.exists) store_tile(call, at, &y, to, columns);
}

// f.template operator()<kRows, kGroups, kColumns>() for tiles of `rows` rows and k columns, is_register_tile().
template <class E, int kRows, int K, class F>
void with_register_columns(int k, F f) {
  if constexpr (is_register_tile(8 * kRows, K <= 2 ? 1 : K / 2 + 1, sizeof(E)) && K <= kLargestReproducible) {
    constexpr int kGroups = register_groups(8 * kRows, K, sizeof(E));
    k <= K ? f.template operator()<kRows, kGroups, K / kGroups>() : with_register_columns<E, kRows, 2 * K>(k, f);
  }
}
template <class E, class F>
void with_register_tile(int rows, int k, F f) {
  if (rows == 16) return with_register_columns<E, 2, 2>(k, f);
  rows == 32 ? with_register_columns<E, 4, 2>(k, f) : with_register_columns<E, 8, 2>(k, f);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_REGISTERS_H_
