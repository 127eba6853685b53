// Householder reflectors of a panel of columns, from Gram matrices: P = H [R; 0] with H = I - V T V^H, where P and V are
// m x n, m >= n, V is unit lower trapezoidal and T upper triangular. What is here works on n x n matrices alone; a back
// end does the rest, row by row.
//
//   G = P^H P,  G = R_1^H R_1,  Q_1 = P R_1^-1                    factor_gram(), row by row
//   Q_1^H Q_1 = R_2^H R_2,  Q = Q_1 R_2^-1                        so P = Q R_2 R_1, and Q is orthonormal
//   Q - [S; 0] = V U,  T = -U S^H V_1^-H,  R = S R_2 R_1          panel_reflectors(); V_1 the first n rows of V
//   V = Q_1 M below V_1,  M = R_2^-1 U^-1                         row by row
//
// S is diagonal with entries of modulus one, the negative phases of the pivots; so every pivot of U is at least one in
// modulus, and no rows are exchanged. The sign of R's diagonal is Householder's.
//
// Both factorizations are one elimination in a thread's registers, with one wait a column. What a column's multipliers
// leave of its zeros is the place of the inverse of the lower factor.
//
// Sources: Yamamoto, Nakatsukasa, Yanagisawa and Fukaya, ETNA 44 (2015) 306-326: Cholesky QR twice. Ballard, Demmel,
// Grigori, Jacquelin, Knight and Nguyen, J. Parallel Distrib. Comput. 85 (2015) 3-31, section 4: reflectors from Q.
// LAPACK's larft for T of given reflectors. Cost: about 8 n^3 flops here, 4 m n^2 row by row.
// Accuracy: G is scaled to a unit diagonal, so the norms of P's columns may be any that do not under- or overflow. With
// kappa the condition of the scaled R_1 in the Frobenius norm, the first pass loses kappa^2 u of orthogonality, and the
// second brings it back to O(n u) where that is well below one. A row of P is off by O(n u) of itself times kappa. So a
// panel with kappa above kMostPanelCondition is not taken on.
//
// The code is that of one of 256 threads (core/team.h), N is a multiple of 16.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_

#include <cmath>

#include "engine/core/complex.h"
#include "engine/core/team.h"

namespace svdserve {

inline constexpr double kMostPanelCondition = 1e4;

inline constexpr int kPanelSide = 16;  // the threads as a square: thread r + 16 c has rows r + 16 u, columns c + 16 v
inline constexpr int kPanelThreads = kPanelSide * kPanelSide;
inline constexpr int kSolveBlock = 8;  // of the triangle that rows are solved with

SVD_HD double times(double x, double y) { return x * y; }
SVD_HD Complex times(Complex x, Complex y) { return plus_product(from_real<Complex>(0), x, y); }
SVD_HD double negative(double x) { return -x; }
SVD_HD Complex negative(Complex x) { return {-x.re, -x.im}; }
SVD_HD double reciprocal(double x) { return 1 / x; }
SVD_HD Complex reciprocal(Complex x) { return times_real(conjugate(x), 1 / squared_modulus(x)); }

// Memory that the threads share. Squares are N x kLd, by rows.
template <class E, int N>
struct PanelMemory {
  static constexpr int kLd = N + 1;  // threads of neighbouring rows meet different banks
  static constexpr int kSquares = 4;
  static constexpr int elements() { return kSquares * N * kLd + 6 * N; }
  static constexpr int bytes() {
    return elements() * static_cast<int>(sizeof(E)) + (N + kPanelThreads) * static_cast<int>(sizeof(double));
  }

  E* square[kSquares];
  E *columns, *pivots, *signs;  // [4 N], [N], [N]
  double *norms, *parts;        // [N], [kPanelThreads]

  SVD_HD explicit PanelMemory(void* memory) {
    E* next = static_cast<E*>(memory);
    for (int i = 0; i < kSquares; ++i, next += N * kLd) square[i] = next;
    columns = next;
    pivots = columns + 4 * N;
    signs = pivots + N;
    norms = reinterpret_cast<double*>(signs + N);
    parts = norms + N;
  }
};

// A = L U for the first N rows of A, which a thread has entries of; then rows: U, with L^-1 below its diagonal, by rows.
// `lower`, if any: L below its diagonal. Rows beyond N become A U^-1. pivot(j, a_jj) is the reciprocal of column j's
// pivot, or zero: then the elimination ends, and this is false.
template <int kRows, int N, class E, class Threads, class Pivot>
SVD_HD bool eliminate(const Threads& threads, E (&a)[kRows / kPanelSide][N / kPanelSide], E* rows, E* columns, E* lower,
                      Pivot pivot) {
  constexpr int kLd = N + 1, kTall = kRows / kPanelSide, kWide = N / kPanelSide;
  const int r = threads.index() % kPanelSide, c = threads.index() / kPanelSide;
  SVD_UNROLL for (int block = 0; block < kWide; ++block) {
    for (int at = 0; at < kPanelSide; ++at) {
      const int j = kPanelSide * block + at;
      E* const row = rows + j * kLd;
      E* const column = columns + j % 2 * kRows;
      if (r == at) {
        SVD_UNROLL for (int v = 0; v < kWide; ++v) row[c + kPanelSide * v] = a[block][v];
      }
      if (c == at) {
        SVD_UNROLL for (int u = 0; u < kTall; ++u) column[r + kPanelSide * u] = a[u][block];
      }
      threads.sync();
      const E by = pivot(j, row[j]);
      if (!(squared_modulus(by) > 0)) return false;  // of every thread
      E of_row[kWide];
      SVD_UNROLL for (int v = 0; v < kWide; ++v) of_row[v] = row[c + kPanelSide * v];
      SVD_UNROLL for (int u = 0; u < kTall; ++u) {
        const int i = r + kPanelSide * u;
        if (i <= j) continue;
        const E multiplier = times(column[i], by), minus = negative(multiplier);
        const bool of_a = u < kWide;
        SVD_UNROLL for (int v = 0; v < kWide; ++v) {
          const int k = c + kPanelSide * v;
          if (k == j) {
            a[u][v] = of_a ? minus : multiplier;
          } else if (of_a || k > j) {
            a[u][v] = plus_product(a[u][v], minus, of_row[v]);
          }
        }
        if (of_a && lower != nullptr && c == at) lower[i * kLd + j] = multiplier;
      }
    }
  }
  return true;
}

// The thread's entries of x y, or of x y^T; squares with kLd.
template <int N, bool kTransposed, class E, class Threads>
SVD_HD void panel_product(const Threads& threads, const E* x, const E* y, E (&sum)[N / kPanelSide][N / kPanelSide]) {
  constexpr int kLd = N + 1, kWide = N / kPanelSide;
  const int r = threads.index() % kPanelSide, c = threads.index() / kPanelSide;
  SVD_UNROLL for (int u = 0; u < kWide; ++u) { SVD_UNROLL for (int v = 0; v < kWide; ++v) sum[u][v] = from_real<E>(0); }
  for (int l = 0; l < N; ++l) {
    E of_x[kWide], of_y[kWide];
    SVD_UNROLL for (int u = 0; u < kWide; ++u) of_x[u] = x[(r + kPanelSide * u) * kLd + l];
    SVD_UNROLL for (int v = 0; v < kWide; ++v) {
      const int k = c + kPanelSide * v;
      of_y[v] = kTransposed ? y[k * kLd + l] : y[l * kLd + k];
    }
    SVD_UNROLL for (int u = 0; u < kWide; ++u) {
      SVD_UNROLL for (int v = 0; v < kWide; ++v) sum[u][v] = plus_product(sum[u][v], of_x[u], of_y[v]);
    }
  }
}

// f(i, k, u, v) for the thread's entries of an N x N matrix.
template <int N, class Threads, class F>
SVD_HD void each_entry(const Threads& threads, F f) {
  const int r = threads.index() % kPanelSide, c = threads.index() / kPanelSide;
  SVD_UNROLL for (int u = 0; u < N / kPanelSide; ++u) {
    SVD_UNROLL for (int v = 0; v < N / kPanelSide; ++v) f(r + kPanelSide * u, c + kPanelSide * v, u, v);
  }
}

// G = R^H R, G by its lower triangle, by columns: R and R^-1 into two squares other than the first, with zeros below.
// False: the condition of R with unit columns is above `most`, or a pivot is not positive, or an entry is no number.
template <int N, class E, class Threads>
SVD_HD bool factor_gram(const Threads& threads, const E* g, double most, const PanelMemory<E, N>& memory, E* r,
                        E* inverse) {
  constexpr int kLd = N + 1;
  if (threads.index() < N) {
    memory.norms[threads.index()] = std::sqrt(real_part(g[threads.index() * N + threads.index()]));
  }
  threads.sync();
  E a[N / kPanelSide][N / kPanelSide];
  bool sound = true;
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    const double norms = memory.norms[i] * memory.norms[k];
    sound = sound && memory.norms[i] > 1e-140 && memory.norms[i] < 1e140;
    const E entry = i >= k ? g[k * N + i] : conjugate(g[i * N + k]);
    a[u][v] = i == k ? from_real<E>(1) : times_real(entry, 1 / norms);
  });
  if (threads.any(!sound)) return false;
  if (!eliminate<N, N>(threads, a, memory.square[0], memory.columns, static_cast<E*>(nullptr), [&](int j, E entry) {
        const double pivot = real_part(entry);
        if (threads.index() == 0) memory.pivots[j] = from_real<E>(std::sqrt(pivot));
        return from_real<E>(pivot > 0 ? 1 / pivot : 0);
      })) {
    return false;
  }
  threads.sync();
  double sum = 0;
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    const double by = 1 / real_part(memory.pivots[i]);
    r[i * kLd + k] = i <= k ? times_real(a[u][v], by * memory.norms[k]) : from_real<E>(0);
    // R^-1 with unit columns of R is L^-H over the roots of the pivots.
    const E entry = i == k ? from_real<E>(by) : i > k ? times_real(conjugate(a[u][v]), by) : from_real<E>(0);
    sum += squared_modulus(entry);
    inverse[k * kLd + i] = times_real(entry, 1 / memory.norms[k]);
  });
  // |R|_F of unit columns is the root of N.
  memory.parts[threads.index()] = sum;
  threads.sync();
  if (threads.index() < kPanelSide) {
    double part = 0;
    for (int i = 0; i < kPanelSide; ++i) part += memory.parts[threads.index() + kPanelSide * i];
    memory.parts[threads.index()] = part;
  }
  threads.sync();
  double all = 0;
  for (int i = 0; i < kPanelSide; ++i) all += memory.parts[i];
  return all * N <= most * most;
}

// What a row is solved with, N x N by rows: R, with the inverses of its diagonal blocks in their place.
template <int N, class E, class Threads>
SVD_HD void solver_of(const Threads& threads, const E* r, const E* inverse, E* solver) {
  each_entry<N>(threads, [&](int i, int k, int, int) {
    solver[i * N + k] = (i / kSolveBlock == k / kSolveBlock ? inverse : r)[i * (N + 1) + k];
  });
}

// x := x R^-1 by solver_of(), for one row. A GPU's matrix units do it for many at once.
template <int N, class E>
SVD_HD void solve_row(E (&x)[N], const E* solver) {
  for (int first = 0; first < N; first += kSolveBlock) {
    E sum[kSolveBlock];
    for (int k = 0; k < kSolveBlock; ++k) {
      for (int i = 0; i < first; ++i)
        x[first + k] = plus_product(x[first + k], negative(x[i]), solver[i * N + first + k]);
      sum[k] = from_real<E>(0);
    }
    for (int k = 0; k < kSolveBlock; ++k) {
      for (int i = 0; i <= k; ++i) sum[k] = plus_product(sum[k], x[first + i], solver[(first + i) * N + first + k]);
    }
    for (int k = 0; k < kSolveBlock; ++k) x[first + k] = sum[k];
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

// From Q_1^H Q_1 (g, by columns), R_1 (by rows), and Q_1's first N rows, which top(i, j) reads: T and R by columns and M
// by rows, each N x N with zeros beyond its triangle. store(i, j, x) takes V_1's entries below the diagonal. False: as
// factor_gram().
template <int N, class E, class Threads, class Top, class Store>
SVD_HD bool panel_reflectors(const Threads& threads, const E* g, const E* r1, const PanelMemory<E, N>& memory, Top top,
                             Store store, E* t, E* r, E* m) {
  constexpr int kLd = N + 1, kWide = N / kPanelSide;
  E* const rows = memory.square[0];
  E* const r2 = memory.square[1];
  E* const inverse = memory.square[2];
  E* const third = memory.square[3];
  if (!factor_gram<N>(threads, g, kMostPanelCondition, memory, r2, inverse)) return false;
  each_entry<N>(threads, [&](int i, int k, int, int) { third[i * kLd + k] = top(i, k); });
  threads.sync();
  // Q - S above R_2^-1: V_1 and M are their multipliers.
  E sum[kWide][kWide], a[2 * kWide][kWide];
  panel_product<N, false>(threads, third, inverse, sum);
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    a[u][v] = sum[u][v];
    a[kWide + u][v] = inverse[i * kLd + k];
  });
  threads.sync();
  const bool sound = eliminate<2 * N, N>(threads, a, rows, memory.columns, third, [&](int j, E entry) {
    const double size = std::sqrt(squared_modulus(entry));
    const E sign = size > 0 ? times_real(entry, -1 / size) : from_real<E>(-1);
    const E pivot = plus_product(entry, sign, from_real<E>(-1));
    if (threads.index() == 0) {
      memory.signs[j] = sign;
      memory.pivots[j] = pivot;
    }
    return reciprocal(pivot);
  });
  if (!sound) return false;
  threads.sync();
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    m[i * N + k] = i <= k ? a[kWide + u][v] : from_real<E>(0);
    if (i > k) store(i, k, third[i * kLd + k]);
  });
  threads.sync();
  // -U S^H and the conjugate of L^-1, then their product.
  each_entry<N>(threads, [&](int i, int k, int, int) {
    const E u = i == k ? memory.pivots[i] : rows[i * kLd + k];
    inverse[i * kLd + k] = i <= k ? negative(times(u, conjugate(memory.signs[k]))) : from_real<E>(0);
    third[i * kLd + k] = i > k ? conjugate(rows[i * kLd + k]) : from_real<E>(i == k ? 1 : 0);
  });
  threads.sync();
  panel_product<N, true>(threads, inverse, third, sum);
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    t[k * N + i] = i <= k ? sum[u][v] : from_real<E>(0);
    rows[i * kLd + k] = r1[i * N + k];
  });
  threads.sync();
  panel_product<N, false>(threads, r2, rows, sum);
  each_entry<N>(threads, [&](int i, int k, int u, int v) {
    r[k * N + i] = i <= k ? times(memory.signs[i], sum[u][v]) : from_real<E>(0);
  });
  return true;
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
