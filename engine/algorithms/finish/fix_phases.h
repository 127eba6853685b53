// The phases of singular vectors, which A = U S V^H leaves open. The component of largest modulus of every column of U
// (the first of equals) becomes real and positive. The column of V follows, so that the product stays.
//
//   u_j := u_j p,   v_j := v_j p,   p = conj(u_ij) / |u_ij|,   i: the first with the largest |u_ij|^2
//
// Real matrices: p = +-1, exact. That component becomes |u_ij| itself, its imaginary part +0. In terms of X and Y
// (engine/vector_layout.h) U is X, or conj(Y) of a wide matrix, and V is Y or conj(X). Conjugating both columns
// conjugates p, so the same is done to X and Y, whichever of them is the leading one. Columns of a full basis that have
// no partner are fixed by themselves.
// Source: the usual convention; that of Golub and Van Loan leaves signs open.
// Cost: each element is read twice and written once. Accuracy: moduli change by about 2 u of themselves (complex).
// Range: a column of length one has a component of at least 1 / sqrt(rows), so squares that underflow cannot win.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_FINISH_FIX_PHASES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_FINISH_FIX_PHASES_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_FINISH_FIX_PHASES_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_FINISH_FIX_PHASES_H_
#endif

#include "engine/core/strided.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// A component that is to become real: its row, its modulus, and conj of it over its modulus.
template <class E>
struct Phase {
  int row;
  typename E::Lane modulus;
  E factor;
};

// That of column j; the identity for a column of zeros.
template <class E>
SVD_HD Phase<E> phase_of_column(const VectorMatrix<E>& u, int j) {
  using Lane = typename E::Lane;
  const Lane zero(0), one(1);
  Phase<E> phase{0, zero, zero_element<E>()};
  E pivot = zero_element<E>();
  Lane best = zero;
  for (int i = 0; i < u.rows; ++i) {
    const E x = u.at(i, j);
    const Lane square = add_square(zero, x);
    const auto better = square > best;
    best = select(better, square, best);
    pivot = select_element(better, x, pivot);
    phase.row = any_of(better) ? i : phase.row;
  }
  const auto nonzero = best > zero;
  if constexpr (E::kComplex) {
    phase.modulus = sqrt(best);
    const Lane divisor = select(nonzero, phase.modulus, one);
    phase.factor.re = select(nonzero, pivot.re / divisor, one);
    phase.factor.im = -(pivot.im / divisor);
  } else {
    phase.modulus = abs(pivot.re);
    phase.factor.re = copysign(one, pivot.re);
  }
  return phase;
}

template <class E>
SVD_HD void multiply_column(const VectorMatrix<E>& x, int j, const E& factor) {
  for (int i = 0; i < x.rows; ++i) x.at.set(i, j, add_product(zero_element<E>(), conj(x.at(i, j)), factor));
}

// lead: X or Y, whichever holds the columns of U; follow: the other one. Columns 0 .. pairs - 1 of both belong
// together; pairs <= k, lead.columns, follow.columns. Every other column is fixed by itself.
template <class Team, class E>
SVD_HD void fix_phases(const Team& team, const VectorMatrix<E>& lead, const VectorMatrix<E>& follow, int pairs) {
  team.for_each(0, lead.columns + follow.columns - pairs, [&](int c) SVD_LAMBDA {
    const bool leads = c < lead.columns;
    const VectorMatrix<E> u = leads ? lead : follow;
    const int j = leads ? c : c - lead.columns + pairs;
    const Phase<E> phase = phase_of_column(u, j);
    multiply_column(u, j, phase.factor);
    E real = zero_element<E>();
    real.re = phase.modulus;
    u.at.set(phase.row, j, real);
    if (c < pairs) multiply_column(follow, j, phase.factor);
  });
}

SVD_KERNEL_END

#endif
