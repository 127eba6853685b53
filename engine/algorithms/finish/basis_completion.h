// Columns that are missing from an orthonormal basis: X (rows x columns), of which the first r columns are orthonormal;
// columns r .. columns - 1 are overwritten so that X^H X = I. The first r keep their bits.
//
//   X(:, 0 .. r - 1) = Q R by Householder reflectors,   Q = H_0 H_1 .. H_(r - 1) = I - W Y^H,   x_j := Q e_j, j >= r
//
// R is diagonal up to rounding, since the columns are orthonormal, and is not kept. Column l of Y is the vector v of
// H_l = I - g v v^H, zero above row l. W follows column by column, from (I - W Y^H) (I - g v v^H) = I - [W w] [Y v]^H:
//
//   w = g (v - W (Y^H v))
//
// so that every element of every missing column is a sum of r terms by itself: x_ij = delta_ij - sum_l w_il conj(y_jl).
// r = 0 gives the identity. Columns that are not orthonormal (a matrix given up as NOT_CONVERGED) still get an
// orthonormal complement: that of Q does not depend on R.
// Sources: Golub and Van Loan, 3rd ed., section 5.1.7 (WY), algorithm 5.2.1; Bischof and Van Loan, SIAM J. Sci. Stat.
// Comput. 8 (1987) s2-s13.
//
// Cost: 4 rows r^2 flops, then 2 rows r for each missing column (complex: four times); nothing where none is missing.
// Accuracy: |I - X^H X|_F <= 10 rows u, where the given columns are within half of that. One matrix a team.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_FINISH_BASIS_COMPLETION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_FINISH_BASIS_COMPLETION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_FINISH_BASIS_COMPLETION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_FINISH_BASIS_COMPLETION_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/strided.h"
#include "engine/core/team.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// Scratch that the team shares.
template <class E>
struct BasisWorkspace {
  MatrixView<E> w, y;  // rows x k each
  E* z;                // k

  static SVD_HD int64_t elements(int rows, int k) { return (2 * static_cast<int64_t>(rows) + 1) * k; }
  static SVD_HD BasisWorkspace in(E* memory, int rows, int k) {
    E* const y = memory + static_cast<int64_t>(rows) * k;
    return {{memory, rows}, {y, rows}, y + static_cast<int64_t>(rows) * k};
  }
};

// r: how many of the first k columns come before a column of exact zeros. The columns after that one belong to singular
// values that are zero, too (perhaps after rounding), so that any orthonormal columns will do. s: k values, descending;
// or null. A positive last one says that there is no such column, without reading any.
template <class Team, class E>
SVD_HD int known_columns(const Team& team, const VectorMatrix<E>& x, int k, const typename E::Lane* s,
                         const BasisWorkspace<E>& work) {
  using Lane = typename E::Lane;
  const Lane zero(0);
  if (s != nullptr && any_of(s[k - 1] > zero)) return k;
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    Lane largest = zero;
    for (int i = 0; i < x.rows && !any_of(largest > zero); ++i) largest = raise_to_magnitude(largest, x.at(i, j));
    work.z[j].re = largest;
  });
  int r = 0;
  while (r < k && any_of(work.z[r].re > zero)) ++r;
  team.sync();  // z is written again
  return r;
}

// Y := X(:, 0 .. r - 1); then Y and W of its factorization.
template <class Team, class E>
SVD_HD void reflect_known_columns(const Team& team, const VectorMatrix<E>& x, int r, const BasisWorkspace<E>& work) {
  const MatrixView<E> w = work.w, y = work.y;
  E* const z = work.z;
  const int rows = x.rows;
  x.for_each(team, 0, r, [&](int i, int j) SVD_LAMBDA { y(i, j) = x.at(i, j); });
  for (int l = 0; l < r; ++l) {
    const auto v = [&](int i) SVD_LAMBDA { return y(l + i, l); };
    const Reflector<E> h = make_reflector<E>(rows - l, v);
    team.once([&]() SVD_LAMBDA { y(l, l) = h.u0; });
    // z_c = y_c^H v of the columns before; y_c := H y_c of those to come.
    team.for_each(0, r, [&](int c) SVD_LAMBDA {
      if (c == l) return;
      const int p = c < l ? c : l, q = c < l ? l : c;
      const auto y_p = [&](int i) SVD_LAMBDA { return y(l + i, p); };
      const auto y_q = [&](int i) SVD_LAMBDA { return y(l + i, q); };
      const E product = inner_product<E>(rows - l, y_p, y_q);
      if (c < l) {
        z[c] = product;
        return;
      }
      const E factor = scaled(product, h.g);
      for (int i = l; i < rows; ++i) y(i, c) = subtract_product(y(i, c), y(i, l), factor);
    });
    // w = g (v - W z)
    team.for_each(0, rows, [&](int i) SVD_LAMBDA {
      if (i < l) y(i, l) = zero_element<E>();  // an element of R until now
      const E sum = sum_of(l, zero_element<E>(),
                           [&](const E& so_far, int p) SVD_LAMBDA { return add_product(so_far, conj(w(i, p)), z[p]); });
      w(i, l) = scaled(y(i, l) - sum, h.g);
    });
  }
}

// x_j := Q e_j for the columns r .. x.columns - 1.
template <class Team, class E>
SVD_HD void fill_columns(const Team& team, const VectorMatrix<E>& x, int r, const BasisWorkspace<E>& work) {
  using Lane = typename E::Lane;
  const MatrixView<E> w = work.w, y = work.y;
  x.for_each(team, r, x.columns, [&](int i, int j) SVD_LAMBDA {
    const E sum = sum_of(r, zero_element<E>(),
                         [&](const E& so_far, int l) SVD_LAMBDA { return add_product(so_far, y(j, l), w(i, l)); });
    E unit = zero_element<E>();
    unit.re = Lane(i == j ? 1 : 0);
    x.at.set(i, j, unit - sum);
  });
}

// Completes x, of whose first min(k, x.columns) columns those that are zero are unknown, like all beyond k.
// x.columns <= x.rows. s: as in known_columns(). Returns how many columns were known.
template <class Team, class E>
SVD_HD int complete_basis(const Team& team, const VectorMatrix<E>& x, int k, const typename E::Lane* s,
                          const BasisWorkspace<E>& work) {
  const int r = known_columns(team, x, k < x.columns ? k : x.columns, s, work);
  if (r == x.columns) return r;
  reflect_known_columns(team, x, r, work);
  fill_columns(team, x, r, work);
  return r;
}

SVD_KERNEL_END

#endif
