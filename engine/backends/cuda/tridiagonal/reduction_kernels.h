// The kernel of a reduction to tridiagonal form (reduction.h): one panel of columns, all multiprocessors together.
//
// Columns of the panel, k = 0, 1, ..; c is the column's index in A, n x n, and A's trailing part is as it was before
// the panel. For each column:
//
//   end_column      w = tau A v - (|tau|^2 v^H A v / 2) v of the column before, and the entries of column c,
//                   A(:, c) - V W(c, :)^H - W V(c, :)^H, from which d(c) and the norm come
//   begin_products  the reflector of column c: x = (alpha - beta, A(c + 2 .. n, c)), v = scale x, tau, e(c) = beta
//                   and A x, V^H x, W^H x, x^H A x
//
// Each ends with a barrier of all blocks. A x reads the lower triangle once. A tile a(I, J) of it is in a warp's
// registers, and adds a(I, J) x(J) to the sums of rows and a(I, J)^H x(I) to those of columns. Sums are partial: one of
// a strip of rows for each block and strip, and one of a strip for each column. end_column adds them in a fixed order.
// So the bits depend on the matrix and on the number of blocks alone.
//
// Source of the panel's formulas: Dongarra, Sorensen, Hammarling, J. Comput. Appl. Math. 27 (1989) 215-227.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

inline constexpr int kReductionPanel = 64;
inline constexpr int kReductionThreads = 256;
inline constexpr int kTileColumns = 8;

// Rows of a strip: a lane has 32 bytes of each column.
template <class E>
inline constexpr int kStripRows = 32 * 32 / static_cast<int>(sizeof(E));

// One panel. All memory is the device's.
template <class E>
struct ReductionCall {
  large::LargeView<E> a;      // n x n, of which the lower triangle counts; V takes the place of reduced columns
  large::LargeView<E> w;      // n x kReductionPanel
  double *d, *e;              // n; e(n - 1) is not written
  E* tau;                     // n
  E* x[2];                    // n: the entries of a column, in turns
  large::LargeView<E> columns;  // n x strips: partial sums of the columns of A x
  E* rows;                    // [blocks + strips][kStripRows]: partial sums of rows
  E* dots;                    // [2 * kReductionPanel]: V(:, q)^H x, W(:, q)^H x
  double *norms, *forms;      // [blocks]: of a column's entries, and of x^H A x
  unsigned* arrived;          // zero before the launch
  int32_t first, count;       // the panel's columns; the last panel ends with column n - 2
};

// The tiles of the trailing triangle from row and column `begin` on, strip by strip, and the block that has each.
// 32 bits hold a tile's number times that of blocks, for all orders that can_reduce() takes.
template <class E>
struct TileList {
  static constexpr int S = kStripRows<E>;
  int first_strip, first_column, strips, tiles, blocks;

  __device__ TileList(int n, int begin, int grid)
      : first_strip(begin / S),
        first_column(begin / kTileColumns * kTileColumns),
        strips((n + S - 1) / S - first_strip),
        tiles(begin < n ? first_tile(strips - 1) + (n - first_column + kTileColumns - 1) / kTileColumns : 0),
        blocks(tiles < grid ? tiles : grid) {}
  // Of the strip with number m among those of the triangle.
  __device__ int first_tile(int m) const {
    return m * (((first_strip + 1) * S - first_column) / kTileColumns) + S / kTileColumns * (m * (m - 1) / 2);
  }
  __device__ int end_tile(int m) const { return m + 1 < strips ? first_tile(m + 1) : tiles; }
  __device__ int begin_of(int block) const {
    return static_cast<int>(static_cast<unsigned>(block) * static_cast<unsigned>(tiles) / static_cast<unsigned>(blocks));
  }
  __device__ int block_of(int tile) const {
    return static_cast<int>((static_cast<unsigned>(tile + 1) * static_cast<unsigned>(blocks) - 1) /
                            static_cast<unsigned>(tiles));
  }
  __device__ int strip_of(int tile) const {
    int low = 0, high = strips - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_tile(middle) <= tile) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

// The reflector of a column, the same in all threads.
template <class E>
struct ColumnReflector {
  double beta;
  E tau, first, scale;  // v = scale x with x(0) = first, so that v(0) = 1
};

template <class E>
struct ReductionShared {
  static constexpr int kWarps = kReductionThreads / 32;
  E v_row[kReductionPanel], w_row[kReductionPanel], v_dot[kReductionPanel], w_dot[kReductionPanel];
  E sums[kReductionThreads], updates[kReductionThreads];
  E strip_sums[kWarps][kStripRows<E>];
  // Sums of each warp: of row c, of a dot, of its extra ones.
  E row[kWarps], dot[kWarps], extra[kWarps];
  double row_form[kWarps], form[kWarps], norm[kWarps];
};

__device__ __forceinline__ double shuffle_xor(double x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
__device__ __forceinline__ Complex shuffle_xor(Complex x, int mask) {
  return {__shfl_xor_sync(~0u, x.re, mask), __shfl_xor_sync(~0u, x.im, mask)};
}
__device__ __forceinline__ double plus(double x, double y) { return x + y; }
__device__ __forceinline__ Complex plus(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
__device__ __forceinline__ double product(double x, double y) { return x * y; }
__device__ __forceinline__ Complex product(Complex x, Complex y) { return plus_product(Complex{0, 0}, x, y); }
__device__ __forceinline__ double negative(double x) { return -x; }
__device__ __forceinline__ Complex negative(Complex x) { return {-x.re, -x.im}; }

// The sum of the warp's x, in all its lanes.
template <class E>
__device__ __forceinline__ E warp_sum(E x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = plus(x, shuffle_xor(x, mask));
  return x;
}
// Of what each warp has left.
template <class E>
__device__ __forceinline__ E sum_of_warps(const E (&of_warp)[kReductionThreads / 32]) {
  E sum = of_warp[0];
#pragma unroll
  for (int i = 1; i < kReductionThreads / 32; ++i) sum = plus(sum, of_warp[i]);
  return sum;
}

// All blocks of the grid, which are resident together. `target` counts their arrivals.
__device__ inline void grid_barrier(unsigned* arrived, unsigned& target) {
  target += gridDim.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
    unsigned seen = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
    } while (static_cast<int>(seen - target) < 0);
  }
  __syncthreads();
}

// The code of one block.
template <class E>
class PanelReduction {
 public:
  static constexpr int S = kStripRows<E>, kVector = S / 32, kThreads = kReductionThreads, kWarps = kThreads / 32;
  static constexpr int kHalf = kTileColumns / 2;

  __device__ PanelReduction(const ReductionCall<E>& call, ReductionShared<E>& shared)
      : call_(call), s_(shared), n_(static_cast<int>(call.a.cols)) {}

  __device__ void run() {
    unsigned target = 0;
    for (int k = 0; k <= call_.count; ++k) {
      end_column(k);
      if (k == call_.count) return;
      grid_barrier(call_.arrived, target);
      begin_products(k);
      grid_barrier(call_.arrived, target);
    }
  }

 private:
  __device__ E& a(int64_t i, int64_t j) const { return call_.a.data[j * call_.a.ld + i]; }
  __device__ E& w(int64_t i, int64_t q) const { return call_.w.data[q * call_.w.ld + i]; }

  // This thread's part of (A x)(row): every step-th of the partial sums from `part` on.
  __device__ E gather(const TileList<E>& list, int row, int part, int step) const {
    const int m = row / S - list.first_strip;
    const int from = list.block_of(list.first_tile(m)), to = list.block_of(list.end_tile(m) - 1);
    E sum = from_real<E>(0);
#pragma unroll 2
    for (int b = from + part; b <= to; b += step) sum = plus(sum, call_.rows[int64_t{b + m} * S + row % S]);
#pragma unroll 8
    for (int i = m + part; i < list.strips; i += step) {
      sum = plus(sum, call_.columns.data[(i + list.first_strip) * call_.columns.ld + row]);
    }
    return sum;
  }

  // sum - v conj(w) - w conj(v)
  __device__ static E minus_products(E sum, E v, E w_other, E w, E v_other) {
    return plus_product(plus_product(sum, negative(v), w_other), negative(w), v_other);
  }

  // Rows of this block: `per_block` from `base` on, and the thread's among them with its part of their sums.
  struct Rows {
    int per_block, row, part, parts;
  };
  __device__ Rows rows_from(int begin) const {
    const int base = begin / 16 * 16;
    int per_block = 8;
    while (per_block * static_cast<int>(gridDim.x) < n_ - base) per_block *= 2;
    const int thread = static_cast<int>(threadIdx.x);
    return {per_block, base + static_cast<int>(blockIdx.x) * per_block + thread % per_block, thread / per_block,
            kThreads / per_block};
  }

  // Rows c of V and W but for their last columns, and the products with x.
  __device__ void load_panel_row(int c, int k) {
    const int q = static_cast<int>(threadIdx.x);
    if (q < k) {
      s_.v_dot[q] = call_.dots[2 * q];
      s_.w_dot[q] = call_.dots[2 * q + 1];
      s_.v_row[q] = a(c, call_.first + q);
      s_.w_row[q] = w(c, q);
    }
    __syncthreads();
  }

  __device__ void end_column(int k) {
    const int c = call_.first + k;
    const bool has_column = k < call_.count || c == n_ - 1;
    const Rows own = rows_from(c);
    const bool is_row = own.row >= c && own.row < n_;
    E entry = is_row && has_column ? a(own.row, c) : from_real<E>(0);
    if (k > 0) entry = end_products(c, k, own, is_row, entry);
    double square = 0;
    if (is_row && own.part == 0 && has_column) {
      call_.x[k % 2][own.row] = entry;
      if (own.row == c) call_.d[c] = real_part(entry);
      if (own.row >= c + 2) square = squared_modulus(entry);
    }
    // Only the first part's threads have something.
    square = warp_sum(square);
    if (own.per_block > 32) {
      if (threadIdx.x % 32 == 0) s_.norm[threadIdx.x / 32] = square;
      __syncthreads();
      square = sum_of_warps(s_.norm);
    }
    if (threadIdx.x == 0) call_.norms[blockIdx.x] = square;
  }

  // Column k - 1 of V and W. Returns the entry of column c, where the thread is its row's first.
  __device__ E end_products(int c, int k, const Rows& own, bool is_row, E entry) {
    const int t = static_cast<int>(threadIdx.x), before = k - 1;
    const E x = is_row ? call_.x[before % 2][own.row] : from_real<E>(0);
    const TileList<E> list(n_, c, static_cast<int>(gridDim.x));
    E of_c = gather(list, c, t, kThreads), update = from_real<E>(0);
    E sum = is_row ? gather(list, own.row, own.part, own.parts) : from_real<E>(0);
    double form = 0;
    for (int b = t; b < static_cast<int>(gridDim.x); b += kThreads) form += call_.forms[b];
    load_panel_row(c, before);
    if (t < before) {
      of_c = minus_products(of_c, s_.v_row[t], s_.w_dot[t], s_.w_row[t], s_.v_dot[t]);
      form -= 2 * real_part(product(conjugate(s_.v_dot[t]), s_.w_dot[t]));
    }
    if (is_row) {
#pragma unroll 8
      for (int q = own.part; q < before; q += own.parts) {
        const E v_i = a(own.row, call_.first + q), w_i = w(own.row, q);
        sum = minus_products(sum, v_i, s_.w_dot[q], w_i, s_.v_dot[q]);
        update = minus_products(update, v_i, conjugate(s_.w_row[q]), w_i, conjugate(s_.v_row[q]));
      }
    }
    add_parts(own, of_c, form, sum, update);
    // w = tau A v - (|tau|^2 v^H A v / 2) v
    const double half = 0.5 * squared_modulus(reflector_.tau) * squared_modulus(reflector_.scale) * form;
    const E factor = product(reflector_.tau, reflector_.scale);
    const E w_c = plus_product(from_real<E>(-half), factor, of_c);
    if (!is_row || own.part != 0) return entry;
    const E v_i = own.row == c ? from_real<E>(1) : product(reflector_.scale, x);
    const E w_i = plus_product(times_real(v_i, -half), factor, sum);
    a(own.row, c - 1) = v_i;
    w(own.row, before) = w_i;
    return minus_products(plus(entry, update), v_i, conjugate(w_c), w_i, from_real<E>(1));
  }

  // Over all threads: of row c and the form. Over the parts of a row: the sum and the update, in the first one's.
  __device__ void add_parts(const Rows& own, E& of_c, double& form, E& sum, E& update) {
    const int t = static_cast<int>(threadIdx.x);
    for (int mask = 16; mask >= own.per_block; mask /= 2) {
      sum = plus(sum, shuffle_xor(sum, mask));
      update = plus(update, shuffle_xor(update, mask));
    }
    of_c = warp_sum(of_c);
    form = warp_sum(form);
    s_.sums[t] = sum;
    s_.updates[t] = update;
    if (t % 32 == 0) {
      s_.row[t / 32] = of_c;
      s_.row_form[t / 32] = form;
    }
    __syncthreads();
    of_c = sum_of_warps(s_.row);
    form = sum_of_warps(s_.row_form);
    if (own.part != 0) return;
    const int step = own.per_block < 32 ? 32 : own.per_block;
    for (int i = t + step; i < kThreads; i += step) {
      sum = plus(sum, s_.sums[i]);
      update = plus(update, s_.updates[i]);
    }
  }

  // Of the column whose entries begin with alpha below the diagonal, and go on with the norm's square.
  __device__ static ColumnReflector<E> reflector_of(E alpha, double square) {
    // Where all are so small, a reflector would only bring errors as large.
    constexpr double kNothing = 0x1p-960;
    const double imaginary = squared_modulus(alpha) - real_part(alpha) * real_part(alpha);
    const double all = squared_modulus(alpha) + square;
    if (!(square + imaginary > 0) || all < kNothing) {
      return {real_part(alpha), from_real<E>(0), from_real<E>(1), from_real<E>(1)};
    }
    ColumnReflector<E> r;
    r.beta = real_part(alpha) > 0 ? -sqrt(all) : sqrt(all);
    r.first = plus(alpha, from_real<E>(-r.beta));
    r.tau = times_real(r.first, -1 / r.beta);
    r.scale = times_real(conjugate(r.first), 1 / squared_modulus(r.first));
    return r;
  }

  // x of a row; zero above c + 1 and below the matrix.
  __device__ E entry(const E* x, int c, int row) const {
    if (row <= c || row >= n_) return from_real<E>(0);
    return row == c + 1 ? reflector_.first : x[row];
  }

  __device__ void begin_products(int k) {
    const int c = call_.first + k, t = static_cast<int>(threadIdx.x), grid = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x), lane = t % 32;
    const E* const x = call_.x[k % 2];
    const TileList<E> list(n_, c + 1, grid);
    const bool has_tiles = block < list.blocks;
    const int tile = has_tiles ? list.begin_of(block) : 0, end = has_tiles ? list.begin_of(block + 1) : 0;
    const int m = has_tiles ? list.strip_of(tile) : 0;
    if (tile + t / 32 < min(end, list.end_tile(m))) load(list, m, tile + t / 32);
    double square = 0;
    for (int b = lane; b < grid; b += 32) square += call_.norms[b];
    reflector_ = reflector_of(x[c + 1], warp_sum(square));
    if (block == 0 && t == 0) {
      call_.e[c] = reflector_.beta;
      call_.tau[c] = reflector_.tau;
    }
    const E dot = dots_of(k, c, x);
    const double form = multiply(list, x, c, m, tile, end);
    const E warps_dot = warp_sum(dot);
    const double warps_form = warp_sum(form);
    if (lane == 0) {
      s_.dot[t / 32] = warps_dot;
      s_.form[t / 32] = warps_form;
    }
    __syncthreads();
    if (t == 0) {
      call_.forms[block] = sum_of_warps(s_.form);
      const int i = grid - 1 - block;
      if (i < 2 * k) call_.dots[i] = sum_of_warps(s_.dot);
    }
  }

  // The products of x with columns of V and W. From the last block on, since the first tiles are of short strips. This
  // thread's part of the block's first one is returned.
  __device__ E dots_of(int k, int c, const E* x) {
    const int t = static_cast<int>(threadIdx.x), grid = static_cast<int>(gridDim.x);
    const int own = grid - 1 - static_cast<int>(blockIdx.x);
    E first = from_real<E>(0);
    for (int i = own; i < 2 * k; i += grid) {
      const E* const column = i % 2 == 0 ? &a(0, call_.first + i / 2) : &w(0, i / 2);
      E dot = from_real<E>(0);
#pragma unroll 8
      for (int row = c + 1 + t; row < n_; row += kThreads) {
        dot = plus_product(dot, conjugate(column[row]), entry(x, c, row));
      }
      if (i == own) {
        first = dot;
        continue;
      }
      dot = warp_sum(dot);
      if (t % 32 == 0) s_.extra[t / 32] = dot;
      __syncthreads();
      if (t == 0) call_.dots[i] = sum_of_warps(s_.extra);
      __syncthreads();
    }
    return first;
  }

  // A x of the block's tiles, tile .. end - 1, the first of them in strip m. Returns this thread's part of x^H A x.
  __device__ double multiply(const TileList<E>& list, const E* x, int c, int m, int tile, int end) {
    double form = 0;
    for (; tile < end; ++m) {
      const int stop = min(end, list.end_tile(m));
      const int ends_next = stop < end ? min(end, list.end_tile(m + 1)) : stop;
      E sums[kVector];
      multiply_strip(list, x, c, m, tile, stop, ends_next, sums);
      form += add_strip(x, c, (m + list.first_strip) * S, call_.rows + int64_t{static_cast<int>(blockIdx.x) + m} * S,
                        sums);
      tile = stop;
    }
    return form;
  }

  // Rows of a lane in a strip: kVector of them, as 16-byte pieces.
  __device__ static int lane_row(int v) {
    constexpr int kPiece = 16 / static_cast<int>(sizeof(E));
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return v / kPiece * (32 * kPiece) + lane * kPiece + v % kPiece;
  }

  // The tiles begin .. stop - 1 of strip m, dealt to the warps. Those of the next strip end at ends_next. While half of
  // a tile is multiplied, the other half and the next tile's are on their way.
  __device__ void multiply_strip(const TileList<E>& list, const E* x, int c, int m, int begin, int stop, int ends_next,
                                 E (&sums)[kVector]) {
    const int strip = m + list.first_strip, row = strip * S, warp = static_cast<int>(threadIdx.x) / 32;
    E own[kVector];
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      own[v] = entry(x, c, row + lane_row(v));
      sums[v] = from_real<E>(0);
    }
    for (int tile = begin + warp; tile < stop; tile += kWarps) {
      if (loaded_ != tile) load(list, m, tile);
      int next = tile + kWarps, next_m = m;
      if (next >= stop) {
        next = stop + warp;
        next_m = m + 1;
      }
      const bool has_next = next < (next_m == m ? stop : ends_next);
      const int column = column_of(list, m, tile);
      E of_columns[kTileColumns];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_half(x, c, column, half, own, sums, of_columns);
        if (has_next) load_half(list, next_m, next, half);
      }
      loaded_ = has_next ? next : -1;
      store_columns(strip, column, sum_of_columns(of_columns));
    }
  }

  __device__ __forceinline__ void multiply_half(const E* x, int c, int column, int half, const E (&own)[kVector],
                                                E (&sums)[kVector], E (&of_columns)[kTileColumns]) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const E x_j = entry(x, c, column + half * kHalf + j);
      E sum = from_real<E>(0);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        sums[v] = plus_product(sums[v], entries_[half][j][v], x_j);
        sum = plus_product(sum, conjugate(entries_[half][j][v]), own[v]);
      }
      of_columns[half * kHalf + j] = sum;
    }
  }

  __device__ void store_columns(int strip, int column, E sum) {
    const int lane = static_cast<int>(threadIdx.x) % 32, j = lane / 4;
    if (lane % 4 == 0 && column + j < n_) call_.columns.data[strip * call_.columns.ld + column + j] = sum;
  }

  __device__ __forceinline__ int column_of(const TileList<E>& list, int m, int tile) const {
    return list.first_column + (tile - list.first_tile(m)) * kTileColumns;
  }
  __device__ __forceinline__ void load(const TileList<E>& list, int m, int tile) {
    load_half(list, m, tile, 0);
    load_half(list, m, tile, 1);
    loaded_ = tile;
  }
  __device__ __forceinline__ void load_half(const TileList<E>& list, int m, int tile, int half) {
    const int row = (m + list.first_strip) * S, column = column_of(list, m, tile);
    if (row + S <= n_ && column + kTileColumns <= row) {
      load_inside(row, column + half * kHalf, entries_[half]);
    } else {
      load_edge(row, column + half * kHalf, entries_[half]);
    }
  }

  __device__ __forceinline__ void load_inside(int row, int column, E (&entries)[kHalf][kVector]) const {
    constexpr int kPiece = 16 / static_cast<int>(sizeof(E));
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
#pragma unroll
      for (int v = 0; v < kVector; v += kPiece) {
        const double2 piece = *reinterpret_cast<const double2*>(&a(row + lane_row(v), column + j));
        if constexpr (kIsComplex<E>) {
          entries[j][v] = {piece.x, piece.y};
        } else {
          entries[j][v] = piece.x;
          entries[j][v + 1] = piece.y;
        }
      }
    }
  }

  // On the diagonal or the matrix's edge. Half of a diagonal entry counts among the rows' sums, half among the columns'.
  __device__ __forceinline__ void load_edge(int row, int column, E (&entries)[kHalf][kVector]) const {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const int i = row + lane_row(v), at = column + j;
        entries[j][v] = from_real<E>(0);
        if (i < n_ && at < i) entries[j][v] = a(i, at);
        if (i < n_ && at == i) entries[j][v] = from_real<E>(0.5 * real_part(a(i, i)));
      }
    }
  }

  // Lane 4 j has the sum over all lanes of sums[j].
  __device__ static E sum_of_columns(E (&sums)[kTileColumns]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = kTileColumns / 2, mask = 16; half > 0; half /= 2, mask /= 2) {
      const bool upper = (lane & mask) != 0;
#pragma unroll
      for (int j = 0; j < half; ++j) {
        const E kept = upper ? sums[j + half] : sums[j], given = upper ? sums[j] : sums[j + half];
        sums[j] = plus(kept, shuffle_xor(given, mask));
      }
    }
    E sum = sums[0];
    sum = plus(sum, shuffle_xor(sum, 2));
    return plus(sum, shuffle_xor(sum, 1));
  }

  // Adds the warps' sums of a strip into `to`; returns this thread's part of 2 Re(x^H sums).
  __device__ double add_strip(const E* x, int c, int row, E* to, const E (&sums)[kVector]) {
    const int t = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int v = 0; v < kVector; ++v) s_.strip_sums[t / 32][lane_row(v)] = sums[v];
    __syncthreads();
    double form = 0;
    if (t < S) {
      E sum = s_.strip_sums[0][t];
      for (int i = 1; i < kThreads / 32; ++i) sum = plus(sum, s_.strip_sums[i][t]);
      to[t] = sum;
      form = 2 * real_part(product(conjugate(entry(x, c, row + t)), sum));
    }
    __syncthreads();
    return form;
  }

  const ReductionCall<E>& call_;
  ReductionShared<E>& s_;
  const int n_;
  ColumnReflector<E> reflector_{};
  E entries_[2][kHalf][kVector];  // the warp's tile, in halves
  int loaded_ = -1;               // its number
};

template <class E>
__global__ void __launch_bounds__(kReductionThreads, 1) reduce_panel_kernel(const __grid_constant__ ReductionCall<E> call) {
  __shared__ ReductionShared<E> shared;
  PanelReduction<E>(call, shared).run();
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_
