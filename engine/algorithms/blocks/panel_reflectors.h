// Householder reflectors of a panel of columns, from Gram matrices: P = H [R; 0] with H = I - V T V^H, where P and V are
// m x n, m >= n, V is unit lower trapezoidal and T upper triangular. This file works on n x n matrices alone; a back end
// does the rest, row by row.
//
//   G = P^H P,  G = R_1^H R_1,  Q_1 = P R_1^-1                    factor_gram(), row by row
//   Q_1^H Q_1 = R_2^H R_2,  Q = Q_1 R_2^-1                        factor_near_identity(); so P = Q R_2 R_1, and Q is
//                                                                 orthonormal
//   Q - [S; 0] = V U,  T = -U S^H V_1^-H,  S R_2                  panel_reflectors(); V_1 the first n rows of V
//   R = S R_2 R_1                                                 triangle_of_panel(), which nothing else waits for
//   V = Q_1 M below V_1,  M = R_2^-1 U^-1                         row by row
//
// S is diagonal with entries of modulus one, the negative phases of the pivots. So every pivot of U is at least one in
// modulus, and no rows are exchanged. The sign of R's diagonal is Householder's.
//
// Both factorizations are one elimination by tiles of 8 x 8, without exchanges: A = L U with block-lower L of unit
// diagonal blocks, then the factors of the diagonal blocks. A wait a tile, and products by a GPU's matrix units.
//
// Sources: Yamamoto, Nakatsukasa, Yanagisawa and Fukaya, ETNA 44 (2015) 306-326: Cholesky QR twice. Ballard, Demmel,
// Grigori, Jacquelin, Knight and Nguyen, J. Parallel Distrib. Comput. 85 (2015) 3-31, section 4: reflectors from Q.
// LAPACK's larft for T of given reflectors. Cost: about 8 n^3 flops here, 4 m n^2 row by row.
// Accuracy: G is scaled to a unit diagonal, so the norms of P's columns may be any that do not under- or overflow. Let
// kappa be the condition of the scaled R_1 in the Frobenius norm. The first pass loses kappa^2 u of orthogonality. Where
// that is well below one, the second brings it back to O(n u). A row of P is off by O(n u) of itself times kappa. So a
// panel with kappa above kMostPanelCondition is not taken on.
//
// The code is that of one of a block's threads (core/team.h); N is 32 or 64. A warp has a row of tiles. In a tile lane
// 4 g + t has the entries (g, 2 t) and (g, 2 t + 1), which makes a tile the left operand of a product as it is.
// Unit::multiply(threads, d, a, b) is d += A B for 8 x 4 and 4 x 8 operands: lane 4 g + t has A(g, t) and B(t, g), and d
// as a tile.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_

#include <cmath>

#include "engine/core/complex.h"
#include "engine/core/lane.h"
#include "engine/core/team.h"

namespace svdserve {

inline constexpr double kMostPanelCondition = 1e4;
inline constexpr double kMostNearIdentity = 0x1p-19;  // a series is off by 2^-56 then
inline constexpr double kSquareMatters = 0x1p-56;     // of |X|^2

inline constexpr int kTile = 8;  // rows and columns
// Threads of a block for an N x N matrix, and of panel_reflectors(), which has one above another.
template <int N>
inline constexpr int kSquareThreads = 32 * (N / kTile);
template <int N>
inline constexpr int kPanelThreads = 2 * kSquareThreads<N>;

SVD_HD double times(double x, double y) { return x * y; }
SVD_HD Complex times(Complex x, Complex y) { return plus_product(from_real<Complex>(0), x, y); }
SVD_HD double negative(double x) { return -x; }
SVD_HD Complex negative(Complex x) { return {-x.re, -x.im}; }
// For pivots: |x| or |x|^2 is in the range of core/lane.h.
SVD_HD double reciprocal(double x) { return reciprocal(scalar::ScalarLane<double>(x)).v; }
SVD_HD Complex reciprocal(Complex x) { return times_real(conjugate(x), reciprocal(squared_modulus(x))); }
// -x / |x|, and -1 for zero. A Newton step makes the modulus one: a reflector of one row is as unitary as this is.
SVD_HD double negative_phase(double x) { return x < 0 ? 1 : -1; }
SVD_HD Complex negative_phase(Complex x) {
  const double size = std::sqrt(squared_modulus(x));
  if (!(size > 0)) return from_real<Complex>(-1);
  const Complex s = times_real(x, -1 / size);
  const double half = 0.5 * (std::fma(-s.re, s.re, 1.0) - s.im * s.im);
  return {std::fma(half, s.re, s.re), std::fma(half, s.im, s.im)};
}

// Memory that the threads share. Squares are N x kLd, by rows.
template <class E, int N>
struct PanelMemory {
  static constexpr int kLd = N + 4;  // lanes that read a right operand meet different banks
  static constexpr int kSquares = 4;
  static constexpr int elements() { return kSquares * N * kLd + (kTile + 3) * N; }
  static constexpr int bytes() {
    return elements() * static_cast<int>(sizeof(E)) + (N + kSquareThreads<N>)*static_cast<int>(sizeof(double));
  }

  E* square[kSquares];
  E *tiles, *pivots, *reciprocals, *signs;  // [8 N], [N], [N], [N]
  double *norms, *parts;                    // [N], [kSquareThreads]

  SVD_HD explicit PanelMemory(void* memory) {
    E* next = static_cast<E*>(memory);
    for (int i = 0; i < kSquares; ++i, next += N * kLd) square[i] = next;
    tiles = next;
    pivots = tiles + kTile * N;
    reciprocals = pivots + N;
    signs = reciprocals + N;
    norms = reinterpret_cast<double*>(signs + N);
    parts = norms + N;
  }
};

// Where a thread is.
struct TilePlace {
  int warp, g, t;

  template <class Threads>
  SVD_HD explicit TilePlace(const Threads& threads)
      : warp(threads.index() / 32), g(threads.index() % 32 / 4), t(threads.index() % 4) {}
  SVD_HD int row() const { return kTile * warp + g; }
  SVD_HD int column(int tile, int e) const { return kTile * tile + 2 * t + e; }
};

template <class Threads>
SVD_HD double of_lane(const Threads& threads, double x, int lane) {
  return threads.from_lane(x, lane);
}
template <class Threads>
SVD_HD Complex of_lane(const Threads& threads, Complex x, int lane) {
  return {threads.from_lane(x.re, lane), threads.from_lane(x.im, lane)};
}

// f(i, k, tile, e) for the entries of an N x N matrix whose rows of tiles are those of the first warps.
template <int N, class Threads, class F>
SVD_HD void each_entry(const Threads& threads, F f) {
  const TilePlace at(threads);
  if (at.row() >= N) return;
  SVD_UNROLL for (int b = 0; b < N / kTile; ++b) {
    SVD_UNROLL for (int e = 0; e < 2; ++e) f(at.row(), at.column(b, e), b, e);
  }
}

// Tile b of a row, and x in its place: without a register that is known at run time alone.
template <int kTiles, class E>
SVD_HD void get_tile(const E (&row)[kTiles][2], int b, E (&x)[2]) {
  SVD_UNROLL for (int e = 0; e < 2; ++e) {
    x[e] = row[0][e];
    SVD_UNROLL for (int k = 1; k < kTiles; ++k) x[e] = k == b ? row[k][e] : x[e];
  }
}
template <int kTiles, class E>
SVD_HD void put_tile(E (&row)[kTiles][2], int b, const E (&x)[2]) {
  SVD_UNROLL for (int k = 0; k < kTiles; ++k) {
    SVD_UNROLL for (int e = 0; e < 2; ++e) row[k][e] = k == b ? x[e] : row[k][e];
  }
}

// sum += x y for one tile x and the tile y by rows with ld.
template <class Unit, class E, class Threads>
SVD_HD void add_tile_product(const Threads& threads, E (&sum)[2], E x0, E x1, const E* y, int ld) {
  const TilePlace at(threads);
  Unit::multiply(threads, sum, x0, y[2 * at.t * ld + at.g]);
  Unit::multiply(threads, sum, x1, y[(2 * at.t + 1) * ld + at.g]);
}

// The conjugates of a tile's entries below its diagonal, above it, by one warp.
template <class E, class Threads>
SVD_HD void mirror_tile(const Threads& threads, E (&x)[2]) {
  const TilePlace at(threads);
  E mirrored[2];
  SVD_UNROLL for (int e = 0; e < 2; ++e) {
    const int lane = 4 * (2 * at.t + e) + at.g / 2;
    const E even = of_lane(threads, x[0], lane), odd = of_lane(threads, x[1], lane);
    mirrored[e] = conjugate(at.g % 2 == 0 ? even : odd);
  }
  SVD_UNROLL for (int e = 0; e < 2; ++e) x[e] = 2 * at.t + e > at.g ? mirrored[e] : x[e];
}

// A tile's inverse in its place, by one warp. pivot(j, a_jj) is the reciprocal of column j's pivot.
template <class E, class Threads, class Pivot>
SVD_HD void invert_tile(const Threads& threads, E (&x)[2], Pivot pivot) {
  const TilePlace at(threads);
  SVD_LOOP for (int lane = 0; lane < kTile / 2; ++lane) {
    SVD_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const int j = 2 * lane + odd;
      const E by = pivot(j, of_lane(threads, x[odd], 4 * j + lane));
      const E multiplier = times(of_lane(threads, x[odd], 4 * at.g + lane), by), minus = negative(multiplier);
      SVD_UNROLL for (int e = 0; e < 2; ++e) {
        const bool of_column = 2 * at.t + e == j;
        const E row = of_lane(threads, x[e], 4 * j + at.t);
        const E in_row = of_column ? by : times(row, by), below = of_column ? minus : plus_product(x[e], minus, row);
        x[e] = at.g == j ? in_row : below;
      }
    }
  }
}

// A tile = L U by one warp: U, with L^-1 below its diagonal, in its place; L by itself.
template <class E, class Threads>
SVD_HD void factor_tile(const Threads& threads, E (&x)[2], E (&lower)[2], const E* reciprocals) {
  const TilePlace at(threads);
  SVD_UNROLL for (int e = 0; e < 2; ++e) lower[e] = from_real<E>(2 * at.t + e == at.g ? 1 : 0);
  SVD_LOOP for (int lane = 0; lane < kTile / 2; ++lane) {
    SVD_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const int j = 2 * lane + odd;
      const E multiplier = times(of_lane(threads, x[odd], 4 * at.g + lane), reciprocals[j]);
      const E minus = negative(multiplier);
      SVD_UNROLL for (int e = 0; e < 2; ++e) {
        const bool of_column = 2 * at.t + e == j, below = at.g > j;
        const E row = of_lane(threads, x[e], 4 * j + at.t);
        const E changed = of_column ? minus : plus_product(x[e], minus, row);
        x[e] = below ? changed : x[e];
        lower[e] = below && of_column ? multiplier : lower[e];
      }
    }
  }
}

// The blocks' elimination of the first N rows of A, which has a row of tiles for each of the first kTileRows warps. Then
// row i of tiles has U behind its diagonal block and L^-1 before it; rows of tiles beyond the first N rows have A U^-1.
// `rows`: the same as it was when it was the pivots', with the diagonal block's inverse. `lower`, if any: L below its
// diagonal blocks. If A is Hermitian, so are the diagonal blocks: else the factors of an ill-conditioned one would not be
// each other's adjoints.
template <class Unit, int kTileRows, int N, bool kHermitian, class E, class Threads, class Pivot>
SVD_HD void eliminate(const Threads& threads, E (&a)[N / kTile][2], E* rows, E* lower, Pivot pivot) {
  constexpr int kLd = N + 4, kTiles = N / kTile;
  const TilePlace at(threads);
  const bool beyond = at.warp >= kTiles;
  SVD_LOOP for (int b = 0; b < kTiles; ++b) {
    E* const pivot_row = rows + kTile * b * kLd;
    if (at.warp == b) {
      E x[2];
      get_tile(a, b, x);
      if constexpr (kHermitian) mirror_tile(threads, x);
      put_tile(a, b, x);
      invert_tile(threads, x, [&](int j, E entry) { return pivot(kTile * b + j, entry); });
      SVD_UNROLL for (int k = 0; k < kTiles; ++k) {
        SVD_UNROLL for (int e = 0; e < 2; ++e) pivot_row[at.g * kLd + at.column(k, e)] = k == b ? x[e] : a[k][e];
      }
    }
    threads.sync();
    if (at.warp <= b || at.warp >= kTileRows) continue;
    E own[2], multiplier[2] = {from_real<E>(0), from_real<E>(0)};
    get_tile(a, b, own);
    add_tile_product<Unit>(threads, multiplier, own[0], own[1], pivot_row + kTile * b, kLd);
    const E minus[2] = {negative(multiplier[0]), negative(multiplier[1])};
    SVD_UNROLL for (int k = 0; k < kTiles; ++k) {
      if (k != b && (k > b || !beyond)) {
        add_tile_product<Unit>(threads, a[k], minus[0], minus[1], pivot_row + kTile * k, kLd);
      }
    }
    const E kept[2] = {beyond ? multiplier[0] : minus[0], beyond ? multiplier[1] : minus[1]};
    put_tile(a, b, kept);
    if (beyond || lower == nullptr) continue;
    SVD_UNROLL for (int e = 0; e < 2; ++e) lower[at.row() * kLd + at.column(b, e)] = multiplier[e];
  }
}

// Goes from eliminate()'s factors by blocks to those by entries: U, with L^-1 below its diagonal. The factors L of the
// diagonal blocks go to memory.tiles.
template <class Unit, int N, class E, class Threads>
SVD_HD void factor_blocks(const Threads& threads, E (&a)[N / kTile][2], const PanelMemory<E, N>& memory) {
  constexpr int kLd = N + 4, kTiles = N / kTile;
  const TilePlace at(threads);
  if (at.row() >= N) return;
  E own[2], lower[2];
  get_tile(a, at.warp, own);
  factor_tile(threads, own, lower, memory.reciprocals + kTile * at.warp);
  E inverse[2];
  SVD_UNROLL for (int e = 0; e < 2; ++e) {
    const int k = 2 * at.t + e;
    inverse[e] = k < at.g ? own[e] : from_real<E>(k == at.g ? 1 : 0);
    if (k == at.g) own[e] = memory.pivots[at.row()];
    memory.tiles[kTile * at.row() + k] = lower[e];
  }
  SVD_UNROLL for (int b = 0; b < kTiles; ++b) {
    E product[2] = {from_real<E>(0), from_real<E>(0)};
    add_tile_product<Unit>(threads, product, inverse[0], inverse[1],
                           memory.square[0] + kTile * at.warp * kLd + kTile * b, kLd);
    SVD_UNROLL for (int e = 0; e < 2; ++e) a[b][e] = at.warp == b ? own[e] : product[e];
  }
}

// sum := x y, a row of tiles. y is an upper triangle: y(l, k) by rows with ld, or transposed. upper: x is one, too.
template <class Unit, int N, bool kTransposed, class E, class Threads>
SVD_HD void panel_product(const Threads& threads, const E (&x)[N / kTile][2], bool upper, const E* y, int ld,
                          E (&sum)[N / kTile][2]) {
  const TilePlace at(threads);
  if (at.row() >= N) return;
  SVD_LOOP for (int c = 0; c < N / kTile; ++c) {
    E tile[2] = {from_real<E>(0), from_real<E>(0)};
    SVD_UNROLL for (int b = 0; b < N / kTile; ++b) {
      if (b > c || (upper && b < at.warp)) continue;
      SVD_UNROLL for (int e = 0; e < 2; ++e) {
        const int l = at.column(b, e), k = kTile * c + at.g;
        Unit::multiply(threads, tile, x[b][e], kTransposed ? y[k * ld + l] : y[l * ld + k]);
      }
    }
    put_tile(sum, c, tile);
  }
}

// The sum of x over the threads of an N x N matrix, to all threads. parts: [kSquareThreads], shared.
template <int N, class Threads>
SVD_HD double sum_of_threads(const Threads& threads, double x, double* parts) {
  constexpr int kSums = 16, kEach = kSquareThreads<N> / kSums;
  if (threads.index() < kSquareThreads<N>) parts[threads.index()] = x;
  threads.sync();
  if (threads.index() < kSums) {
    double part = 0;
    for (int i = 0; i < kEach; ++i) part += parts[threads.index() + kSums * i];
    parts[threads.index()] = part;
  }
  threads.sync();
  double sum = 0;
  for (int i = 0; i < kSums; ++i) sum += parts[i];
  return sum;
}

// G = R^H R, G by its lower triangle, by columns: R and R^-1 into two squares other than the first, with zeros below.
// False: the condition of R with unit columns is above `most`, or a pivot is not positive, or an entry is no number.
template <class Unit, int N, class E, class Threads>
SVD_HD bool factor_gram(const Threads& threads, const E* g, double most, const PanelMemory<E, N>& memory, E* r,
                        E* inverse) {
  constexpr int kLd = N + 4;
  const TilePlace at(threads);
  bool sound = true;
  if (threads.index() < N) {
    const double norm = std::sqrt(real_part(g[threads.index() * N + threads.index()]));
    sound = norm > 1e-140 && norm < 1e140;
    memory.norms[threads.index()] = norm;
    memory.parts[threads.index()] = 1 / norm;
  }
  if (threads.any(!sound)) return false;
  E a[N / kTile][2];
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    const E entry = i >= k ? g[k * N + i] : conjugate(g[i * N + k]);
    a[b][e] = i == k ? from_real<E>(1) : times_real(times_real(entry, memory.parts[i]), memory.parts[k]);
  });
  eliminate<Unit, N / kTile, N, true>(threads, a, memory.square[0], static_cast<E*>(nullptr), [&](int j, E entry) {
    const double pivot = real_part(entry);
    sound = sound && pivot > 0;
    memory.pivots[j] = from_real<E>(pivot);  // of every lane the same
    return memory.reciprocals[j] = from_real<E>(reciprocal(pivot));
  });
  factor_blocks<Unit, N>(threads, a, memory);
  // Nothing is stored before all is read: a store may be where the next entry is read, as far as a compiler knows.
  const double by = at.row() < N ? std::sqrt(real_part(memory.reciprocals[at.row()])) : 0;
  double sum = 0;
  E of_inverse[N / kTile][2];
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    const double norm = memory.norms[k], inverse_norm = memory.parts[k];
    // R^-1 with unit columns of R is L^-H over the roots of the pivots.
    const E entry = i == k ? from_real<E>(by) : i > k ? times_real(conjugate(a[b][e]), by) : from_real<E>(0);
    sum += squared_modulus(entry);
    of_inverse[b][e] = times_real(entry, inverse_norm);
    a[b][e] = i <= k ? times_real(a[b][e], by * norm) : from_real<E>(0);
  });
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    r[i * kLd + k] = a[b][e];
    inverse[k * kLd + i] = of_inverse[b][e];
  });
  threads.sync();
  // |R|_F of unit columns is the root of N.
  const double all = sum_of_threads<N>(threads, sum, memory.parts);
  return !threads.any(!sound) && all * N <= most * most;
}

// The Cholesky factor of a matrix near the identity, without an elimination. G = I + E as factor_gram() takes it, up()
// the upper triangle with half of the diagonal:
//
//   X = up(E),  Y = up(E - X^H X),  R = I + Y,  R^-1 = I - Y + Y^2
//
// The exact factor has Y = up(E - Y^H Y). So both are off by at most 2 |X|^3, and by |X|^2 where no products are added.
// Results are as those of factor_gram(). False, and no results: |X| in the Frobenius norm is above kMostNearIdentity, or
// an entry is no number.
template <class Unit, int N, class E, class Threads>
SVD_HD bool factor_near_identity(const Threads& threads, const E* g, const PanelMemory<E, N>& memory, E* r,
                                 E* inverse) {
  constexpr int kLd = N + 4;
  const E one = from_real<E>(1), minus_one = from_real<E>(-1);
  E* const x = memory.square[0];
  E y[N / kTile][2], square[N / kTile][2];
  double sum = 0;
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    const E entry = conjugate(g[i * N + k]), half = from_real<E>((real_part(entry) - 1) / 2);
    y[b][e] = i < k ? entry : i == k ? half : from_real<E>(0);
    square[b][e] = from_real<E>(0);
    sum += squared_modulus(y[b][e]);
  });
  each_entry<N>(threads, [&](int i, int k, int b, int e) { x[i * kLd + k] = y[b][e]; });
  const double all = sum_of_threads<N>(threads, sum, memory.parts);
  if (!(all <= kMostNearIdentity * kMostNearIdentity)) return false;
  if (all > kSquareMatters) {
    E adjoint[N / kTile][2];
    each_entry<N>(threads, [&](int i, int k, int b, int e) { adjoint[b][e] = conjugate(x[k * kLd + i]); });
    panel_product<Unit, N, false>(threads, adjoint, false, x, kLd, square);
    each_entry<N>(threads, [&](int i, int k, int b, int e) {
      const double by = i < k ? -1 : i == k ? -0.5 : 0;
      y[b][e] = plus_product(y[b][e], from_real<E>(by), square[b][e]);
      r[i * kLd + k] = y[b][e];
    });
    threads.sync();
    panel_product<Unit, N, false>(threads, y, true, r, kLd, square);
    threads.sync();
  }
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    const E of_identity = from_real<E>(i == k ? 1 : 0);
    inverse[i * kLd + k] = plus_product(of_identity, one, plus_product(square[b][e], minus_one, y[b][e]));
    r[i * kLd + k] = plus_product(of_identity, one, y[b][e]);
  });
  threads.sync();
  return true;
}

// The matrix that rows are solved with, N x N by rows: R, with its diagonal blocks' inverses in their place.
template <int N, class E, class Threads>
SVD_HD void solver_of(const Threads& threads, const E* r, const E* inverse, E* solver) {
  each_entry<N>(threads, [&](int i, int k, int, int) {
    solver[i * N + k] = (i / kTile == k / kTile ? inverse : r)[i * (N + 4) + k];
  });
}

// x := x R^-1 by solver_of(), for one row. A GPU's matrix units do it for many at once.
template <int N, class E>
SVD_HD void solve_row(E (&x)[N], const E* solver) {
  for (int first = 0; first < N; first += kTile) {
    E sum[kTile];
    for (int k = 0; k < kTile; ++k) {
      for (int i = 0; i < first; ++i)
        x[first + k] = plus_product(x[first + k], negative(x[i]), solver[i * N + first + k]);
      sum[k] = from_real<E>(0);
    }
    for (int k = 0; k < kTile; ++k) {
      for (int i = 0; i <= k; ++i) sum[k] = plus_product(sum[k], x[first + i], solver[(first + i) * N + first + k]);
    }
    for (int k = 0; k < kTile; ++k) x[first + k] = sum[k];
  }
}

// x := x M for one row, M an upper triangle by rows. As solve_row().
template <int N, class E>
SVD_HD void multiply_row(E (&x)[N], const E* m) {
  for (int j = N - 1; j >= 0; --j) {
    E sum = from_real<E>(0);
    for (int i = 0; i <= j; ++i) sum = plus_product(sum, x[i], m[i * N + j]);
    x[j] = sum;
  }
}

// V_1, and M below it: multipliers by blocks times the factors of the diagonal blocks. `lower` and `beyond` are those of
// eliminate(): of V_1's rows the former has the multipliers, of M's the latter.
template <class Unit, int N, class E, class Threads, class Store>
SVD_HD void store_multipliers(const Threads& threads, const E* lower, const E (&beyond)[N / kTile][2], const E* tiles,
                              Store store, E* m) {
  constexpr int kLd = N + 4, kTiles = N / kTile;
  const TilePlace at(threads);
  E own[kTiles][2];  // stored when all is read: see factor_gram()
  SVD_UNROLL for (int b = 0; b < kTiles; ++b) {
    const E* const tile = tiles + kTile * kTile * b;
    E multiplier[2];
    SVD_UNROLL for (int e = 0; e < 2; ++e) {
      own[b][e] = at.warp == b ? tile[kTile * at.g + 2 * at.t + e] : from_real<E>(0);
      multiplier[e] = at.row() < N ? lower[at.row() * kLd + at.column(b, e)] : beyond[b][e];
    }
    if (at.warp > b) add_tile_product<Unit>(threads, own[b], multiplier[0], multiplier[1], tile, kTile);
  }
  each_entry<N>(threads,
                [&](int i, int k, int b, int e) { store(i, k, k < i ? own[b][e] : from_real<E>(k == i ? 1 : 0)); });
  const int row = at.row() - N;
  if (row < 0) return;
  SVD_UNROLL for (int b = 0; b < kTiles; ++b) {
    SVD_UNROLL for (int e = 0; e < 2; ++e) {
      const int k = at.column(b, e);
      m[row * N + k] = row <= k ? own[b][e] : from_real<E>(0);
    }
  }
}

// From Q_1^H Q_1 (g, by columns) and Q_1's first N rows, which top(i, j) reads. Results are T and S R_2 by columns with
// ld, and M by rows, each N x N with zeros beyond its triangle. store(i, j, x) takes V_1's entries, all N x N.
// False: as factor_gram().
template <class Unit, int N, class E, class Threads, class Top, class Store>
SVD_HD bool panel_reflectors(const Threads& threads, const E* g, const PanelMemory<E, N>& memory, Top top, Store store,
                             E* t, E* r, int ld, E* m) {
  constexpr int kLd = N + 4, kTiles = N / kTile;
  const TilePlace at(threads);
  E* const rows = memory.square[0];
  E* const r2 = memory.square[1];
  E* const inverse = memory.square[2];
  E* const third = memory.square[3];
  if (!factor_near_identity<Unit, N>(threads, g, memory, r2, inverse) &&
      !factor_gram<Unit, N>(threads, g, kMostPanelCondition, memory, r2, inverse)) {
    return false;
  }
  // Q - S above R_2^-1: V_1 and M are their multipliers.
  E a[kTiles][2], x[kTiles][2];
  each_entry<N>(threads, [&](int i, int k, int b, int e) { x[b][e] = top(i, k); });
  panel_product<Unit, N, false>(threads, x, false, inverse, kLd, a);
  if (at.row() >= N) {
    SVD_UNROLL for (int b = 0; b < kTiles; ++b) {
      SVD_UNROLL for (int e = 0; e < 2; ++e) a[b][e] = inverse[(at.row() - N) * kLd + at.column(b, e)];
    }
  }
  eliminate<Unit, 2 * kTiles, N, false>(threads, a, rows, third, [&](int j, E entry) {
    const E sign = negative_phase(entry);
    memory.signs[j] = sign;  // of every lane the same
    memory.pivots[j] = plus_product(entry, sign, from_real<E>(-1));
    return memory.reciprocals[j] = reciprocal(memory.pivots[j]);
  });
  factor_blocks<Unit, N>(threads, a, memory);
  threads.sync();
  store_multipliers<Unit, N>(threads, third, a, memory.tiles, store, m);
  // -U S^H, the conjugate of L^-1, and their product.
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    x[b][e] = i <= k ? negative(times(a[b][e], conjugate(memory.signs[k]))) : from_real<E>(0);
    inverse[i * kLd + k] = i > k ? conjugate(a[b][e]) : from_real<E>(i == k ? 1 : 0);
  });
  threads.sync();
  E sum[kTiles][2];
  panel_product<Unit, N, true>(threads, x, true, inverse, kLd, sum);
  each_entry<N>(threads, [&](int i, int k, int b, int e) { x[b][e] = times(memory.signs[i], r2[i * kLd + k]); });
  each_entry<N>(threads, [&](int i, int k, int b, int e) {
    t[k * ld + i] = i <= k ? sum[b][e] : from_real<E>(0);
    r[k * ld + i] = x[b][e];
  });
  return true;
}

// R from S R_2, in its place, by columns with ld, and R_1 by rows.
template <class Unit, int N, class E, class Threads>
SVD_HD void triangle_of_panel(const Threads& threads, const E* r1, E* r, int ld) {
  E x[N / kTile][2], sum[N / kTile][2];
  each_entry<N>(threads, [&](int i, int k, int b, int e) { x[b][e] = r[k * ld + i]; });
  panel_product<Unit, N, false>(threads, x, true, r1, N, sum);
  each_entry<N>(threads, [&](int i, int k, int b, int e) { r[k * ld + i] = i <= k ? sum[b][e] : from_real<E>(0); });
}

// T of reflectors that are given: G = V^H V by columns, and tau as LAPACK's geqrf has it. T by columns, in memory that
// the threads share, as is `column`, [N].
template <int N, class E, class Threads>
SVD_HD void triangle_of_reflectors(const Threads& threads, const E* g, const E* tau, E* t, E* column) {
  each_entry<N>(threads, [&](int i, int k, int, int) { t[k * N + i] = from_real<E>(0); });
  threads.sync();
  const int i = threads.index();
  for (int j = 0; j < N; ++j) {
    // Columns before j are known. Row i, from the diagonal on.
    if (i < j) {
      E sum = from_real<E>(0);
      for (int l = i; l < j; ++l) sum = plus_product(sum, t[l * N + i], g[j * N + l]);
      column[i] = negative(times(sum, tau[j]));
    }
    threads.sync();
    if (i <= j) t[j * N + i] = i == j ? tau[j] : column[i];
    threads.sync();
  }
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_
