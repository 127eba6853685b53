// Householder reflectors of a panel of columns, from Gram matrices: P = H [R; 0] with H = I - V T V^H, where P and V are
// m x n, m >= n, V is unit lower trapezoidal and T upper triangular. What is here works on n x n matrices alone; a back
// end does the rest, row by row.
//
//   G = P^H P,  G = R_1^H R_1,  Q_1 = P R_1^-1                    panel_cholesky(), row by row
//   Q_1^H Q_1 = R_2^H R_2,  Q = Q_1 R_2^-1                        so P = Q R_2 R_1, and Q is orthonormal
//   Q - [S; 0] = V U,  T = -U S^H V_1^-H,  R = S R_2 R_1          panel_reflectors(); V_1 the first n rows of V
//   V = Q_1 M below V_1,  M = R_2^-1 U^-1                         row by row
//
// S is diagonal with entries of modulus one, the negative phases of the pivots; so every pivot of U is at least one in
// modulus, and no rows are exchanged. The sign of R's diagonal is Householder's.
//
// Sources: Yamamoto, Nakatsukasa, Yanagisawa and Fukaya, ETNA 44 (2015) 306-326: Cholesky QR twice. Ballard, Demmel,
// Grigori, Jacquelin, Knight and Nguyen, J. Parallel Distrib. Comput. 85 (2015) 3-31, section 4: reflectors from Q.
// LAPACK's larft for T of given reflectors. Cost: about 4 n^3 flops here, 4 m n^2 row by row.
// Accuracy: G is scaled to a unit diagonal, so the norms of P's columns may be any that do not under- or overflow. With
// kappa the condition of the scaled R_1 in the Frobenius norm, the first pass loses kappa^2 u of orthogonality, and the
// second brings it back to O(n u) where that is well below one. A row of P is off by O(n u) of itself times kappa. So a
// panel with kappa above kMostPanelCondition is not taken on.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_

#include <cmath>

#include "engine/core/complex.h"
#include "engine/core/team.h"

namespace svdserve {

inline constexpr double kMostPanelCondition = 1e4;

SVD_HD double times(double x, double y) { return x * y; }
SVD_HD Complex times(Complex x, Complex y) { return plus_product(from_real<Complex>(0), x, y); }
SVD_HD double negative(double x) { return -x; }
SVD_HD Complex negative(Complex x) { return {-x.re, -x.im}; }
SVD_HD double reciprocal(double x) { return 1 / x; }
SVD_HD Complex reciprocal(Complex x) { return times_real(conjugate(x), 1 / squared_modulus(x)); }

// An upper triangle by rows, N x N, with the reciprocals of its diagonal.
template <class E>
struct RowTriangle {
  E* rows;
  E* reciprocals;  // [N]
};

// x := x R^-1, for one row x of N entries, of which the first `first` are zero.
template <int N, class E>
SVD_HD void solve_row(E (&x)[N], const RowTriangle<E>& r, int first = 0) {
  SVD_UNROLL for (int j = 0; j < N; ++j) {
    if (j < first) continue;
    x[j] = times(x[j], r.reciprocals[j]);
    const E minus = negative(x[j]);
    SVD_UNROLL for (int l = j + 1; l < N; ++l) x[l] = plus_product(x[l], minus, r.rows[j * N + l]);
  }
}

// x := x M, for one row x and an upper triangle M by rows.
template <int N, class E>
SVD_HD void multiply_row(E (&x)[N], const E* m) {
  SVD_UNROLL for (int j = N - 1; j >= 0; --j) {
    E sum = from_real<E>(0);
    SVD_UNROLL for (int i = 0; i <= j; ++i) sum = plus_product(sum, x[i], m[i * N + j]);
    x[j] = sum;
  }
}

// The matrices of a panel, N x N, N the widest panel. A narrower one is bordered: G by the identity, P by zeros.
template <class E, int N>
struct PanelWork {
  E* g;           // [in] a Gram matrix by columns; overwritten
  E* r;           // [out] its factor R, by rows
  E* column;      // [N] scratch
  double* norms;  // [N] scratch
  double* parts;  // [N] scratch
};

// G = R^H R: work.r and the reciprocals of its diagonal. False: R's condition is above `most`, or a pivot is not
// positive, or an entry is no number; what is left then means nothing.
template <int N, class E, class Team>
SVD_HD bool panel_cholesky(const Team& team, const PanelWork<E, N>& work, double most, E* reciprocals) {
  E* const g = work.g;
  team.for_each(0, N, [&](int j) { work.norms[j] = std::sqrt(real_part(g[j * N + j])); });
  bool sound = true;
  for (int j = 0; j < N; ++j) sound = sound && work.norms[j] > 1e-140 && work.norms[j] < 1e140;
  if (!sound) return false;
  // Scaled to a unit diagonal; the lower triangle.
  team.for_each(0, N * N, [&](int e) {
    const int i = e % N, j = e / N;
    if (i > j) g[e] = times_real(g[e], 1 / (work.norms[i] * work.norms[j]));
    if (i == j) g[e] = from_real<E>(1);
  });
  // G = L D L^H: column j of L D stays as it is. Each step reads column j, and writes the columns behind it.
  for (int j = 0; j < N; ++j) {
    const double pivot = real_part(g[j * N + j]);
    if (!(pivot > 0)) return false;  // the same for every member
    const double by = -1 / pivot;
    team.for_each((j + 1) * N, N * N, [&](int e) {
      const int i = e % N, k = e / N;
      if (i >= k) g[e] = plus_product(g[e], g[j * N + i], times_real(conjugate(g[j * N + k]), by));
    });
  }
  // The scaled R by rows, then what is its own.
  team.for_each(0, N * N, [&](int e) {
    const int i = e / N, j = e % N;
    const double root = std::sqrt(real_part(g[i * N + i]));
    work.r[e] = j < i ? from_real<E>(0) : j == i ? from_real<E>(root) : times_real(conjugate(g[i * N + j]), 1 / root);
    if (j == i) reciprocals[i] = from_real<E>(1 / root);
  });
  // |R|_F is the root of N. A row of the inverse each.
  team.for_each(0, N, [&](int i) {
    E x[N];
    SVD_UNROLL for (int j = 0; j < N; ++j) x[j] = from_real<E>(j == i ? 1 : 0);
    solve_row(x, RowTriangle<E>{work.r, reciprocals}, i);
    double sum = 0;
    SVD_UNROLL for (int j = 0; j < N; ++j) sum += squared_modulus(x[j]);
    work.parts[i] = sum;
  });
  double sum = 0;
  for (int i = 0; i < N; ++i) sum += work.parts[i];
  if (!(sum * N <= most * most)) return false;
  team.for_each(0, N * N, [&](int e) {
    const int i = e / N, j = e % N;
    work.r[e] = times_real(work.r[e], work.norms[j]);
    if (i == j) reciprocals[i] = times_real(reciprocals[i], 1 / work.norms[i]);
  });
  return true;
}

// The second half's operands, beside those of its Gram matrix.
template <class E, int N>
struct ReflectorWork {
  PanelWork<E, N> second;  // [in] Q_1^H Q_1
  const E* r1;             // [in] R_1 by rows
  E* q;                    // [in] the first N rows of Q_1, by rows; [out] V_1 below its diagonal
  E* inverse;              // scratch
  E* signs;                // [N] scratch
  E* reciprocals;          // [2 N] scratch
};

// T by columns, R by columns and M by rows, each N x N, with zeros beyond their triangles; V_1 in work.q. False: as
// panel_cholesky().
template <int N, class E, class Team>
SVD_HD bool panel_reflectors(const Team& team, const ReflectorWork<E, N>& work, E* t, E* r, E* m) {
  E* const q = work.q;
  E* const r2 = work.second.r;
  E* const second = work.reciprocals;
  E* const pivots = work.reciprocals + N;  // their reciprocals
  if (!panel_cholesky<N>(team, work.second, kMostPanelCondition, second)) return false;
  // Rows of Q_1 R_2^-1, and of R_2^-1.
  team.for_each(0, 2 * N, [&](int row) {
    const int i = row % N;
    const bool of_inverse = row >= N;
    E x[N];
    SVD_UNROLL for (int j = 0; j < N; ++j) x[j] = of_inverse ? from_real<E>(j == i ? 1 : 0) : q[i * N + j];
    solve_row(x, RowTriangle<E>{r2, second});
    E* const to = (of_inverse ? work.inverse : q) + i * N;
    SVD_UNROLL for (int j = 0; j < N; ++j) to[j] = x[j];
  });
  // Q - S = V_1 U: column j of V_1 U's diagonal stays as it is, U above it.
  for (int j = 0; j < N; ++j) {
    const E entry = q[j * N + j];
    const double size = std::sqrt(squared_modulus(entry));
    const E sign = size > 0 ? times_real(entry, -1 / size) : from_real<E>(-1);
    const E by = reciprocal(plus_product(entry, sign, from_real<E>(-1)));
    team.for_each((j + 1) * N - 1, N * N, [&](int e) {
      const int i = e / N, k = e % N;
      if (i > j && k > j) q[e] = plus_product(q[e], negative(times(q[i * N + j], by)), q[j * N + k]);
      if (i == j && k == N - 1) {
        work.signs[j] = sign;
        pivots[j] = by;
      }
    });
  }
  // V_1^H by rows, in place of the Gram matrix; V_1 itself, and U's diagonal.
  E* const adjoint = work.second.g;
  team.for_each(0, N * N, [&](int e) {
    const int i = e / N, k = e % N;
    adjoint[e] = i < k ? conjugate(times(q[k * N + i], pivots[i])) : from_real<E>(i == k ? 1 : 0);
  });
  team.for_each(0, N * N, [&](int e) {
    const int i = e / N, k = e % N;
    if (i > k) q[e] = conjugate(adjoint[k * N + i]);
    if (i == k) q[e] = plus_product(q[e], work.signs[i], from_real<E>(-1));
  });
  // Rows of M and of T, and R.
  team.for_each(0, N, [&](int j) { work.second.column[j] = from_real<E>(1); });
  team.for_each(0, 2 * N, [&](int row) {
    const int i = row % N;
    const bool of_t = row >= N;
    E x[N];
    SVD_UNROLL for (int j = 0; j < N; ++j) {
      x[j] = j < i  ? from_real<E>(0)
             : of_t ? negative(times(q[i * N + j], conjugate(work.signs[j])))
                    : work.inverse[i * N + j];
    }
    solve_row(x, of_t ? RowTriangle<E>{adjoint, work.second.column} : RowTriangle<E>{q, pivots});
    SVD_UNROLL for (int j = 0; j < N; ++j) {
      if (of_t) {
        t[j * N + i] = x[j];
      } else {
        m[i * N + j] = x[j];
      }
    }
  });
  team.for_each(0, N * N, [&](int e) {
    const int i = e % N, k = e / N;
    E sum = from_real<E>(0);
    for (int j = i; j <= k; ++j) sum = plus_product(sum, r2[i * N + j], work.r1[j * N + k]);
    r[e] = times(work.signs[i], sum);
  });
  return true;
}

// T of reflectors that are given: G = V^H V by columns, and tau as LAPACK's geqrf has it. `column`: [N] scratch.
template <int N, class E, class Team>
SVD_HD void triangle_of_reflectors(const Team& team, const E* g, const E* tau, E* t, E* column) {
  team.for_each(0, N * N, [&](int e) { t[e] = from_real<E>(0); });
  for (int j = 0; j < N; ++j) {
    // Columns before j are known. Row i, from the diagonal on.
    team.for_each(0, j, [&](int i) {
      E sum = from_real<E>(0);
      for (int l = i; l < j; ++l) sum = plus_product(sum, t[l * N + i], g[j * N + l]);
      column[i] = negative(times(sum, tau[j]));
    });
    team.for_each(0, j + 1, [&](int i) { t[j * N + i] = i == j ? tau[j] : column[i]; });
  }
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PANEL_REFLECTORS_H_
