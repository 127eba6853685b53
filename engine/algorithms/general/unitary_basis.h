// From a general eigenbasis to a unitary one: E = Q R, S = Q^H A Q; one matrix a lane, and a team for it. S is a Schur
// form of A but for rounding errors where shear_jacobi.h made E^-1 A E triangular.
//
//   columns of E by powers of two to about one
//   for j = 0 .. k - 2:   H_j = I - g u u^H takes E(j :, j) to (beta, 0, .., 0)^T;   E := H_j E,   A := H_j A
//   A := A H_0 .. H_{k-2}, a row at a time, which needs no synchronization
//   Q = H_0 .. H_{k-2}, where E was;   S where A was
//   S := U^H S U,  Q := Q U by sweeps of rotations alone, until |strict lower triangle of S|_F <= 2 k u |S|_F
//
// With a bound of k u |S|_F one matrix in ten takes a sweep, and nearly every warp of 4 x 4. With 2 k u it is one in a
// thousand.
//
// Columns of E that are nearly dependent do no harm to Q. The caller takes V = Q X with X of S from schur_vectors.h.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., algorithms 5.2.1 and 5.1.6; rotations: shear_step.h.
// Cost: 16/3 k^3 flops for R, as many for Q, 16 k^3 for S, in 3 k phases; a sweep of rotations 42 k^3. One random
// matrix in a thousand needs one.
// Accuracy: S = Q^H (A + D) Q, |D| <= c k u |A|_F.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#endif

#include "engine/algorithms/general/shear_jacobi.h"
#include "engine/algorithms/tall/householder.h"

SVD_KERNEL_BEGIN

// Column c of x := H x(:, c), H from column j of e.
template <class A, class B, class Lane, class Size>
SVD_HD void reflect_column(A x, Size k, int c, B e, int j, Lane g) {
  using C = ComplexElement<Lane>;
  const C w =
      scaled(inner_product<C>(
                 k - j, [&](int i) SVD_LAMBDA { return e(j + i, j); }, [&](int i) SVD_LAMBDA { return x(j + i, c); }),
             g);
  SVD_UNROLL for (int i = j; i < k; ++i) x(i, c) = subtract_product(x(i, c), e(i, j), w);
}

// Row r of x := x(r, :) H.
template <class A, class B, class Lane, class Size>
SVD_HD void reflect_row_of(A x, Size k, int r, B e, int j, Lane g) {
  using C = ComplexElement<Lane>;
  // Conjugated, so that w = g conj(row u): row -= conj(w) u^H.
  const C w = scaled(
      inner_product<C>(
          k - j, [&](int i) SVD_LAMBDA { return x(r, j + i); }, [&](int i) SVD_LAMBDA { return conj(C(e(j + i, j))); }),
      g);
  SVD_UNROLL for (int c = j; c < k; ++c) x(r, c) = subtract_product(x(r, c), conj(C(e(c, j))), conj(w));
}

// a := Q^H A Q; the reflectors stay in e, their g in g[j], j < k - 1. R stays above the diagonal of e, and `diagonal`,
// k elements, gets the rest of it.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED void reflect_by_basis(const Team& team, A a, A e, Size k, Lane* g, ComplexElement<Lane>* diagonal) {
  using C = ComplexElement<Lane>;
  SVD_UNROLL_DEVICE for (int j = 0; j + 1 < k; ++j) {
    const Reflector<C> h = make_reflector<C>(k - j, [&](int i) SVD_LAMBDA { return e(j + i, j); });
    team.once([&]() SVD_LAMBDA {
      e(j, j) = h.u0;
      g[j] = h.g;
      diagonal[j] = h.beta;
    });
    // Columns j + 1 .. of E, then all of A.
    const int rest = k - 1 - j;
    team.for_each(0, rest + k, [&](int x) SVD_LAMBDA {
      reflect_column(x < rest ? e : a, k, x < rest ? j + 1 + x : x - rest, e, j, h.g);
    });
  }
  team.once([&]() SVD_LAMBDA { diagonal[k - 1] = e(k - 1, k - 1); });
  team.for_each_line(0, k, [&](int r) SVD_LAMBDA {
    SVD_UNROLL_DEVICE for (int j = 0; j + 1 < k; ++j) reflect_row_of(a, k, r, e, j, g[j]);
  });
}

// e := H_0 .. H_{k-2}, from the last to the first.
template <class Team, class A, class Lane, class Size>
SVD_HD void form_basis(const Team& team, A e, Size k, const Lane* g) {
  using C = ComplexElement<Lane>;
  const C zero{Lane(0), Lane(0)}, one{Lane(1), Lane(0)};
  team.once([&]() SVD_LAMBDA { e(k - 1, k - 1) = one; });
  SVD_UNROLL_DEVICE for (int j = k - 2; j >= 0; --j) {
    const C w = scaled(conj(C(e(j, j))), g[j]);
    team.for_each(j + 1, k, [&](int c) SVD_LAMBDA {
      e(j, c) = zero;
      reflect_column(e, k, c, e, j, g[j]);
    });
    team.for_each(j, k, [&](int i) SVD_LAMBDA { e(i, j) = subtract_product(i == j ? one : zero, e(i, j), w); });
  }
}

// In: a: A, its largest component about one; e: E. Out: a: S; e: Q. Both k x k, the team's. Returns the lanes in which
// S is not triangular after max_sweeps; sweeps: of each lane. diagonal: k elements, overwritten.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED typename Lane::Mask unitary_basis(const Team& team, A a, A e, Size k, int max_sweeps, Lane* sweeps,
                                                const ShearWork<Lane>& work, ComplexElement<Lane>* diagonal) {
  using C = ComplexElement<Lane>;
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, C(e(i, j)));
    const Pow2<Lane> scale = make_pow2(-binary_exponent(largest));
    SVD_UNROLL for (int i = 0; i < k; ++i) e(i, j) = scaled(e(i, j), scale);
  });
  reflect_by_basis(team, a, e, k, work.first, diagonal);
  form_basis(team, e, k, work.first);
  return shear_jacobi<false>(team, a, e, k, max_sweeps, sweeps, work);
}

SVD_KERNEL_END

#endif
