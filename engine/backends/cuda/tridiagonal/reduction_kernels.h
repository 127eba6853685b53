// The kernel of a reduction to tridiagonal form (reduction.h): columns of one panel, all multiprocessors together.
//
// Columns of the panel, k = 0, 1, ..; c is the column's index in A, n x n, and A's trailing part is as it was before
// the panel. x are the entries of a column below its diagonal, x_0 the first of them. For each column:
//
//   end_column   the reflector of the column before: beta = -sign(x_0) |x|, tau, v = scale (x - beta e_0), and
//                w = tau A v - (|tau|^2 v^H A v / 2) v. Then this column's entries, A(:, c) - V W(c, :)^H - W V(c, :)^H
//   multiply     A x, V^H x, W^H x and x^H A x, of the column's x as it is. end_column takes beta e_0 off.
//
// Each ends with a barrier of all blocks. A x reads the lower triangle once. A tile A(I, J) of it is in a warp's
// registers, and adds A(I, J) x(J) to the sums of rows and A(I, J)^H x(I) to those of columns. Sums are partial: one of
// a strip of rows for each block and strip, and one of a strip for each column. end_column adds them in a fixed order.
// So the bits depend on the matrix and on the number of blocks alone. A, V and W are as they are stored, which may be
// floats; all else are doubles.
//
// Source of the panel's formulas: Dongarra, Sorensen, Hammarling, J. Comput. Appl. Math. 27 (1989) 215-227.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/tridiagonal/reduction.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

inline constexpr int kReductionPanel = 64;
inline constexpr int kReductionThreads = 256;
inline constexpr int kTileColumns = 8;

// Rows of a strip: a lane has 32 bytes of each column.
template <class Stored>
inline constexpr int kStripRows = 32 * 32 / static_cast<int>(sizeof(Stored));

// One panel. All memory is the device's.
template <class Stored>
struct ReductionCall {
  using E = ArithmeticOf<Stored>;
  large::LargeView<Stored> a;   // n x n, of which the lower triangle counts; V takes the place of reduced columns
  large::LargeView<Stored> w;   // n x kReductionPanel
  double *d, *e;                // n; e(n - 1) is not written
  E* tau;                       // n
  E* x[2];                      // whole strips: x of a column, in turns. Zero above it and below the matrix
  large::LargeView<E> columns;  // n x strips: partial sums of the columns of A x
  E* rows;                      // [blocks + strips][kStripRows]: partial sums of rows
  E* dots;                      // [2 * kReductionPanel]: V(:, q)^H x, W(:, q)^H x
  double* norms;                // [2][blocks]: parts of |x|^2 without x_0, in turns
  double* forms;                // [blocks]: parts of x^H A x
  unsigned* arrived;            // zero before the launch
  int32_t first, count;         // the panel's columns; the last panel ends with column n - 2
  int32_t begin, end;           // of them this launch's
};

// The tiles of the trailing triangle from row and column `begin` on, strip by strip, and the block that has each.
// 32 bits hold a tile's number times that of blocks, for all orders that can_reduce() takes.
template <class Stored>
struct TileList {
  static constexpr int S = kStripRows<Stored>;
  int first_strip, first_column, strips, tiles, blocks;

  __device__ TileList(int n, int begin, int grid)
      : first_strip(begin / S),
        first_column(begin / kTileColumns * kTileColumns),
        strips((n + S - 1) / S - first_strip),
        tiles(begin < n ? first_tile(strips - 1) + (n - first_column + kTileColumns - 1) / kTileColumns : 0),
        blocks(tiles < grid ? tiles : grid) {}
  // The first tile of the strip with number m among those of the triangle.
  __device__ int first_tile(int m) const {
    return m * (((first_strip + 1) * S - first_column) / kTileColumns) + S / kTileColumns * (m * (m - 1) / 2);
  }
  __device__ int end_tile(int m) const { return m + 1 < strips ? first_tile(m + 1) : tiles; }
  __device__ int begin_of(int block) const {
    return static_cast<int>(static_cast<unsigned>(block) * static_cast<unsigned>(tiles) /
                            static_cast<unsigned>(blocks));
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

// I - tau v v^H takes (x_0, x_1, ..) to (beta, 0, ..), v = scale (x_0 - beta, x_1, ..).
template <class E>
struct ColumnReflector {
  double beta;
  E tau, scale;
};

template <class Stored>
struct ReductionShared {
  using E = ArithmeticOf<Stored>;
  static constexpr int kWarps = kReductionThreads / 32;
  E v_row[kReductionPanel], w_row[kReductionPanel], v_dot[kReductionPanel], w_dot[kReductionPanel];
  E sums[kReductionThreads], updates[kReductionThreads];
  E strip_sums[kWarps][kStripRows<Stored>];
  // Sums of each warp.
  E row[kWarps], correction[kWarps], dot[kWarps], extra[kWarps];
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

// As it is computed with, and as it is stored.
__device__ __forceinline__ double wide(float x) { return x; }
__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ Complex wide(ComplexFloat x) { return {x.re, x.im}; }
__device__ __forceinline__ Complex wide(Complex x) { return x; }
template <class Stored>
__host__ __device__ __forceinline__ Stored stored(ArithmeticOf<Stored> x) {
  if constexpr (std::is_same_v<Stored, ComplexFloat>) {
    return {static_cast<float>(x.re), static_cast<float>(x.im)};
  } else {
    return static_cast<Stored>(x);
  }
}

// The sum of the warp's x, in all its lanes.
template <class E>
__device__ __forceinline__ E warp_sum(E x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = plus(x, shuffle_xor(x, mask));
  return x;
}
// The sum of what each warp has left.
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

// square: of x_1, x_2, ..
template <class E>
__device__ ColumnReflector<E> column_reflector(E alpha, double square) {
  // Where all are so small, a reflector would only bring errors as large.
  constexpr double kNothing = 0x1p-960;
  const double of_alpha = squared_modulus(alpha), all = of_alpha + square;
  const bool is_real = of_alpha == real_part(alpha) * real_part(alpha);
  if (!(square > 0 || !is_real) || all < kNothing) return {real_part(alpha), from_real<E>(0), from_real<E>(1)};
  const double norm = sqrt(all), beta = real_part(alpha) > 0 ? -norm : norm;
  const E first = plus(alpha, from_real<E>(-beta));
  return {beta, times_real(first, -1 / beta), times_real(conjugate(first), 1 / squared_modulus(first))};
}

// The code of one block.
template <class Stored>
class PanelReduction {
 public:
  using E = ArithmeticOf<Stored>;
  static constexpr int S = kStripRows<Stored>, kVector = S / 32, kThreads = kReductionThreads, kWarps = kThreads / 32;
  static constexpr int kHalf = kTileColumns / 2;
  static_assert(S <= kThreads);

  __device__ PanelReduction(const ReductionCall<Stored>& call, ReductionShared<Stored>& shared)
      : call_(call), s_(shared), n_(static_cast<int>(call.a.cols)) {}

  __device__ void run() {
    unsigned target = 0;
    if (call_.begin > 0) load_panel_row(call_.begin - 1);
    for (int k = call_.begin; k < call_.end; ++k) {
      end_column(k);
      const Work work = work_of(call_.first + k);
      // A is as it was before the panel, so its first tile may come early.
      loaded_ = -1;
      if (work.tile + warp() < min(work.stop, work.list.end_tile(work.m))) load(work.list, work.m, work.tile + warp());
      grid_barrier(call_.arrived, target);
      multiply(k, work);
      grid_barrier(call_.arrived, target);
    }
    if (call_.end == call_.count) end_column(call_.count);
  }

 private:
  using Tiles = TileList<Stored>;

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ Stored& a(int64_t i, int64_t j) const { return call_.a.data[j * call_.a.ld + i]; }
  __device__ Stored& w(int64_t i, int64_t q) const { return call_.w.data[q * call_.w.ld + i]; }

  // One column's are still read when the next one's are written.
  __device__ double* norms_of(int k) const { return call_.norms + k % 2 * static_cast<int>(gridDim.x); }

  // --- the end of a column ------------------------------------------------------------------------------------------

  // Rows of this block: `per_block` of them, and the thread's among them with its part of their sums.
  struct Rows {
    int per_block, row, part, parts;
  };
  __device__ Rows rows_of(int c) const {
    const int base = c > 0 ? (c - 1) / 16 * 16 : 0;  // rows above c are made zero in both x
    int shift = 3;
    while ((static_cast<int>(gridDim.x) << shift) < n_ - base) ++shift;
    const int thread = static_cast<int>(threadIdx.x);
    return {1 << shift, base + (static_cast<int>(blockIdx.x) << shift) + (thread & ((1 << shift) - 1)), thread >> shift,
            kThreads >> shift};
  }

  // This thread's part of (A x)(row): every step-th of the partial sums from `part` on.
  __device__ E gather(const Tiles& list, int row, int part, int step) const {
    const int m = row / S - list.first_strip;
    const int from = list.block_of(list.first_tile(m)), to = list.block_of(list.end_tile(m) - 1);
    E sum = from_real<E>(0);
#pragma unroll 1
    for (int b = from + part; b <= to; b += step) sum = plus(sum, call_.rows[int64_t{b + m} * S + row % S]);
#pragma unroll 4
    for (int i = m + part; i < list.strips; i += step) {
      sum = plus(sum, call_.columns.data[(i + list.first_strip) * call_.columns.ld + row]);
    }
    return sum;
  }

  // sum - v w' - w v'
  __device__ static E minus_products(E sum, E v, E w_other, E w, E v_other) {
    return plus_product(plus_product(sum, negative(v), w_other), negative(w), v_other);
  }

  __device__ void end_column(int k) {
    const int c = call_.first + k;
    const bool has_column = k < call_.count || c == n_ - 1;
    const Rows own = rows_of(c);
    const bool is_row = own.row >= c && own.row < n_;
    E entry = is_row ? wide(a(own.row, c)) : from_real<E>(0);
    if (k > 0) entry = end_products(c, k, own, is_row, entry);
    double square = 0;
    if (own.row < n_ && own.part == 0 && has_column) {
      call_.x[k % 2][own.row] = own.row > c ? entry : from_real<E>(0);
      if (own.row == c) call_.d[c] = real_part(entry);
      if (own.row >= c + 2) square = squared_modulus(entry);
    }
    // Only the first part's threads have something.
    square = warp_sum(square);
    if (own.per_block > 32) {
      if (lane() == 0) s_.norm[warp()] = square;
      __syncthreads();
      square = sum_of_warps(s_.norm);
    }
    if (threadIdx.x == 0) norms_of(k)[blockIdx.x] = square;
  }

  // Column k - 1 of V and W. Returns the entry of column c, where the thread is its row's first.
  __device__ E end_products(int c, int k, const Rows& own, bool is_row, E entry) {
    const int before = k - 1;
    const E* const x = call_.x[before % 2];
    const E x_row = is_row ? x[own.row] : from_real<E>(0), alpha = x[c];
    const double diagonal = real_part(wide(a(c, c)));
    const Tiles list(n_, c, static_cast<int>(gridDim.x));
    RowSums sums;
    sums.of_c = gather(list, c, static_cast<int>(threadIdx.x), kThreads);
    if (is_row) sums.own = gather(list, own.row, own.part, own.parts);
    const ColumnReflector<E> r = reflector_of(before, alpha);
    for (int b = static_cast<int>(threadIdx.x); b < static_cast<int>(gridDim.x); b += kThreads) {
      sums.form += call_.forms[b];
    }
    subtract_panel(before, r.beta, own, is_row, sums);
    add_parts(own, sums);
    // (A v)(c) / scale and v^H A v / |scale|^2: x_0 - beta stands for x_0.
    const E of_c = plus(sums.correction_of_c, plus(sums.of_c, from_real<E>(-r.beta * diagonal)));
    const double form = sums.form + r.beta * (r.beta * diagonal - 2 * real_part(sums.of_c));
    const double half = 0.5 * squared_modulus(r.tau) * squared_modulus(r.scale) * form;
    const E factor = product(r.tau, r.scale), w_c = plus_product(from_real<E>(-half), factor, of_c);
    if (!is_row || own.part != 0) return entry;
    const E product_of_row = plus(sums.own, times_real(own.row == c ? from_real<E>(diagonal) : entry, -r.beta));
    const Stored v_stored = stored<Stored>(own.row == c ? from_real<E>(1) : product(r.scale, x_row));
    const E v_i = wide(v_stored);
    const Stored w_stored = stored<Stored>(plus_product(times_real(v_i, -half), factor, product_of_row));
    const E w_i = wide(w_stored);
    a(own.row, c - 1) = v_stored;
    w(own.row, before) = w_stored;
    return minus_products(plus(entry, sums.update), v_i, conjugate(w_c), w_i, from_real<E>(1));
  }

  // The reflector of column first + k, where alpha is x_0.
  __device__ ColumnReflector<E> reflector_of(int k, E alpha) const {
    const double* const norms = norms_of(k);
    const int column = call_.first + k;
    double square = 0;
    for (int b = lane(); b < static_cast<int>(gridDim.x); b += 32) square += norms[b];
    const ColumnReflector<E> r = column_reflector(alpha, warp_sum(square));
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      call_.e[column] = r.beta;
      call_.tau[column] = r.tau;
    }
    return r;
  }

  // Sums of which each thread has a part.
  struct RowSums {
    E of_c = from_real<E>(0), correction_of_c = from_real<E>(0);  // (A x)(c), and what V and W take off
    E own = from_real<E>(0), update = from_real<E>(0);  // (A x)(row) and what is added to the entry of column c
    double form = 0;
  };

  // V (W^H x) + W (V^H x) off the sums, where x_0 - beta stands for x_0.
  __device__ void subtract_panel(int before, double beta, const Rows& own, bool is_row, RowSums& sums) {
    const int t = static_cast<int>(threadIdx.x);
    if (t < before) {
      const E v_c = s_.v_row[t], w_c = s_.w_row[t];
      const E v_dot = plus(call_.dots[2 * t], times_real(conjugate(v_c), -beta));
      const E w_dot = plus(call_.dots[2 * t + 1], times_real(conjugate(w_c), -beta));
      s_.v_dot[t] = v_dot;
      s_.w_dot[t] = w_dot;
      sums.correction_of_c = minus_products(sums.correction_of_c, v_c, w_dot, w_c, v_dot);
      sums.form -= 2 * real_part(product(conjugate(v_dot), w_dot));
    }
    __syncthreads();
    if (!is_row) return;
#pragma unroll 4
    for (int q = own.part; q < before; q += own.parts) {
      const E v_i = wide(a(own.row, call_.first + q)), w_i = wide(w(own.row, q));
      sums.own = minus_products(sums.own, v_i, s_.w_dot[q], w_i, s_.v_dot[q]);
      sums.update = minus_products(sums.update, v_i, conjugate(s_.w_row[q]), w_i, conjugate(s_.v_row[q]));
    }
  }

  // Over all threads what is of row c, and the form. Over the parts of a row the others, in the first part's thread.
  __device__ void add_parts(const Rows& own, RowSums& sums) {
    const int t = static_cast<int>(threadIdx.x);
    for (int mask = 16; mask >= own.per_block; mask /= 2) {
      sums.own = plus(sums.own, shuffle_xor(sums.own, mask));
      sums.update = plus(sums.update, shuffle_xor(sums.update, mask));
    }
    s_.sums[t] = sums.own;
    s_.updates[t] = sums.update;
    const E of_c = warp_sum(sums.of_c), correction = warp_sum(sums.correction_of_c);
    const double form = warp_sum(sums.form);
    if (lane() == 0) {
      s_.row[warp()] = of_c;
      s_.correction[warp()] = correction;
      s_.row_form[warp()] = form;
    }
    __syncthreads();
    sums.of_c = sum_of_warps(s_.row);
    sums.correction_of_c = sum_of_warps(s_.correction);
    sums.form = sum_of_warps(s_.row_form);
    if (own.part != 0) return;
    const int step = own.per_block < 32 ? 32 : own.per_block;
    for (int i = t + step; i < kThreads; i += step) {
      sums.own = plus(sums.own, s_.sums[i]);
      sums.update = plus(sums.update, s_.updates[i]);
    }
  }

  // --- products -----------------------------------------------------------------------------------------------------

  // The block's tiles of a column's product: tile .. stop - 1, the first of them in strip m.
  struct Work {
    Tiles list;
    int m, tile, stop;
  };
  __device__ Work work_of(int c) const {
    const Tiles list(n_, c + 1, static_cast<int>(gridDim.x));
    const int block = static_cast<int>(blockIdx.x);
    if (block >= list.blocks) return {list, 0, 0, 0};
    const int tile = list.begin_of(block);
    return {list, list.strip_of(tile), tile, list.begin_of(block + 1)};
  }

  // Rows of V and W for the end of column k. Each thread has its own part until the block meets.
  __device__ void load_panel_row(int k) {
    const int row = call_.first + k + 1, q = static_cast<int>(threadIdx.x);
    if (q >= k) return;
    s_.v_row[q] = wide(a(row, call_.first + q));
    s_.w_row[q] = wide(w(row, q));
  }

  __device__ void multiply(int k, const Work& work) {
    const int c = call_.first + k, t = static_cast<int>(threadIdx.x), grid = static_cast<int>(gridDim.x);
    const E* const x = call_.x[k % 2];
    load_panel_row(k);
    const E dot = warp_sum(dots_of(k, c, x));
    const double form = warp_sum(multiply_tiles(work, x));
    if (lane() == 0) {
      s_.dot[warp()] = dot;
      s_.form[warp()] = form;
    }
    __syncthreads();
    if (t == 0) {
      call_.forms[blockIdx.x] = sum_of_warps(s_.form);
      const int i = grid - 1 - static_cast<int>(blockIdx.x);
      if (i < 2 * k) call_.dots[i] = sum_of_warps(s_.dot);
    }
  }

  // The products of x with columns of V and W, from the last block on. This thread's part of the block's first one is
  // returned.
  __device__ E dots_of(int k, int c, const E* x) {
    const int grid = static_cast<int>(gridDim.x), own = grid - 1 - static_cast<int>(blockIdx.x);
    E first = from_real<E>(0);
#pragma unroll 1
    for (int i = own; i < 2 * k; i += grid) {
      const Stored* const column = i % 2 == 0 ? &a(0, call_.first + i / 2) : &w(0, i / 2);
      E dot = from_real<E>(0);
#pragma unroll 4
      for (int row = c + 1 + static_cast<int>(threadIdx.x); row < n_; row += kThreads) {
        dot = plus_product(dot, conjugate(wide(column[row])), x[row]);
      }
      if (i == own) {
        first = dot;
        continue;
      }
      dot = warp_sum(dot);
      if (lane() == 0) s_.extra[warp()] = dot;
      __syncthreads();
      if (threadIdx.x == 0) call_.dots[i] = sum_of_warps(s_.extra);
      __syncthreads();
    }
    return first;
  }

  // Returns this thread's part of x^H A x.
  __device__ double multiply_tiles(const Work& work, const E* x) {
    double form = 0;
    int tile = work.tile;
#pragma unroll 1
    for (int m = work.m; tile < work.stop; ++m) {
      const int stop = min(work.stop, work.list.end_tile(m));
      E sums[kVector];
      multiply_strip(work, x, m, tile, stop, sums);
      const int row = (m + work.list.first_strip) * S;
      form += add_strip(x + row, call_.rows + int64_t{static_cast<int>(blockIdx.x) + m} * S, sums);
      tile = stop;
    }
    return form;
  }

  // Rows of a lane in a strip: kVector of them, as 16-byte pieces.
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Stored));
  __device__ static int lane_row(int v) { return v / kPiece * (32 * kPiece) + lane() * kPiece + v % kPiece; }

  // The tiles begin .. stop - 1 of strip m, dealt to the warps. While half of a tile is multiplied, the other half and
  // the next tile's are on their way.
  __device__ void multiply_strip(const Work& work, const E* x, int m, int begin, int stop, E (&sums)[kVector]) {
    const Tiles& list = work.list;
    const int strip = m + list.first_strip, row = strip * S;
    const int ends_next = stop < work.stop ? min(work.stop, list.end_tile(m + 1)) : stop;
    E own[kVector];
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      own[v] = x[row + lane_row(v)];
      sums[v] = from_real<E>(0);
    }
#pragma unroll 1
    for (int tile = begin + warp(); tile < stop; tile += kWarps) {
      if (loaded_ != tile) load(list, m, tile);
      const bool stays = tile + kWarps < stop;
      const int next = stays ? tile + kWarps : stop + warp(), next_m = stays ? m : m + 1;
      const bool has_next = stays || next < ends_next;
      const int column = column_of(list, m, tile);
      E x_of_columns[kTileColumns], of_columns[kTileColumns];
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) x_of_columns[j] = x[column + j];
      if (row + S > n_ || column + kTileColumns > row) keep_lower(row, column);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = half * kHalf; j < (half + 1) * kHalf; ++j) {
          of_columns[j] = multiply_column(entries_[j], x_of_columns[j], own, sums);
        }
        if (has_next) load_half(list, next_m, next, half);
      }
      loaded_ = has_next ? next : -1;
      store_columns(strip, column, sum_of_columns(of_columns));
    }
  }

  __device__ __forceinline__ static E multiply_column(const Stored (&entries)[kVector], E x, const E (&own)[kVector],
                                                      E (&sums)[kVector]) {
    E sum = from_real<E>(0);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const E entry = wide(entries[v]);
      sums[v] = plus_product(sums[v], entry, x);
      sum = plus_product(sum, conjugate(entry), own[v]);
    }
    return sum;
  }

  __device__ void store_columns(int strip, int column, E sum) {
    const int j = lane() / 4;
    if (lane() % 4 == 0 && column + j < n_) call_.columns.data[strip * call_.columns.ld + column + j] = sum;
  }

  __device__ __forceinline__ int column_of(const Tiles& list, int m, int tile) const {
    return list.first_column + (tile - list.first_tile(m)) * kTileColumns;
  }
  __device__ __forceinline__ void load(const Tiles& list, int m, int tile) {
    load_half(list, m, tile, 0);
    load_half(list, m, tile, 1);
    loaded_ = tile;
  }
  // Rows and columns beyond the matrix are left to keep_lower().
  __device__ __forceinline__ void load_half(const Tiles& list, int m, int tile, int half) {
    const int row = (m + list.first_strip) * S, column = column_of(list, m, tile) + half * kHalf;
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
#pragma unroll
      for (int v = 0; v < kVector; v += kPiece) {
        const int i = row + lane_row(v);
        if (i < call_.a.ld) take_piece(entries_[half * kHalf + j] + v, &a(i, min(column + j, n_ - 1)));
      }
    }
  }
  // Past the first cache: a tile comes before the barrier, and columns of V in it are written by other blocks just then.
  __device__ __forceinline__ static void take_piece(Stored* to, const Stored* from) {
    if constexpr (sizeof(Stored) == sizeof(double2)) {
      const double2 piece = __ldcg(reinterpret_cast<const double2*>(from));
      to[0] = {piece.x, piece.y};
    } else if constexpr (std::is_same_v<Stored, double>) {
      const double2 piece = __ldcg(reinterpret_cast<const double2*>(from));
      to[0] = piece.x;
      to[1] = piece.y;
    } else {
      const float4 piece = __ldcg(reinterpret_cast<const float4*>(from));
      if constexpr (std::is_same_v<Stored, float>) {
        to[0] = piece.x;
        to[1] = piece.y;
        to[2] = piece.z;
        to[3] = piece.w;
      } else {
        to[0] = {piece.x, piece.y};
        to[1] = {piece.z, piece.w};
      }
    }
  }

  // On the diagonal or the matrix's edge: zeros above it and beyond. Half of a diagonal entry counts among the rows'
  // sums, half among the columns'.
  __device__ __forceinline__ void keep_lower(int row, int column) {
#pragma unroll
    for (int j = 0; j < kTileColumns; ++j) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const int i = row + lane_row(v), at = column + j;
        Stored& entry = entries_[j][v];
        if (at == i) entry = stored<Stored>(from_real<E>(0.5 * real_part(wide(entry))));
        if (at > i || i >= n_) entry = Stored{};
      }
    }
  }

  // Lane 4 j has the sum over all lanes of sums[j].
  __device__ static E sum_of_columns(E (&sums)[kTileColumns]) {
#pragma unroll
    for (int half = kTileColumns / 2, mask = 16; half > 0; half /= 2, mask /= 2) {
      const bool upper = (lane() & mask) != 0;
#pragma unroll
      for (int j = 0; j < half; ++j) {
        const E kept = upper ? sums[j + half] : sums[j], given = upper ? sums[j] : sums[j + half];
        sums[j] = plus(kept, shuffle_xor(given, mask));
      }
    }
    const E sum = plus(sums[0], shuffle_xor(sums[0], 2));
    return plus(sum, shuffle_xor(sum, 1));
  }

  // Adds the warps' sums of a strip into `to`; returns this thread's part of 2 Re(x^H sums).
  __device__ double add_strip(const E* x, E* to, const E (&sums)[kVector]) {
    const int t = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int v = 0; v < kVector; ++v) s_.strip_sums[warp()][lane_row(v)] = sums[v];
    __syncthreads();
    double form = 0;
    if (t < S) {
      E sum = s_.strip_sums[0][t];
#pragma unroll
      for (int i = 1; i < kWarps; ++i) sum = plus(sum, s_.strip_sums[i][t]);
      to[t] = sum;
      form = 2 * real_part(product(conjugate(x[t]), sum));
    }
    __syncthreads();
    return form;
  }

  const ReductionCall<Stored>& call_;
  ReductionShared<Stored>& s_;
  const int n_;
  Stored entries_[kTileColumns][kVector];  // the warp's tile
  int loaded_ = -1;                        // its number
};

template <class Stored>
__global__ void __launch_bounds__(kReductionThreads, 1)
    reduce_panel_kernel(const __grid_constant__ ReductionCall<Stored> call) {
  __shared__ ReductionShared<Stored> shared;
  PanelReduction<Stored>(call, shared).run();
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_KERNELS_H_
