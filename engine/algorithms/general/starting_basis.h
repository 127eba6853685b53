// The start of Jacobi's method from approximate eigenvectors V_0: A := V_0^-1 A V_0, nearly diagonal where V_0 is good; one
// matrix a lane, and a team for it.
//
//   V_0 := D^-1 V_0 for a balanced A, columns by powers of two to about one
//   V_0 = Q R,   S = Q^H A Q                                                           unitary_basis.h
//   A := R^-1 S R
//
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., algorithm 3.1.2 for R^-1; Shroff, Numer. Math. 58 (1991) 779-805
// for the iteration that follows (shear_jacobi.h).
// Cost: 16/3 k^3 flops for R, 16 k^3 for S, 8 k^3 for both products with R.
// Accuracy: A = V_0^-1 (A + D) V_0, |D| <= c k u |A|_F kappa(V_0). Errors of A show in the sweeps alone: the caller takes the
// results from the given matrix.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_STARTING_BASIS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_STARTING_BASIS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_STARTING_BASIS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_STARTING_BASIS_H_
#endif

#include "engine/algorithms/general/unit_columns.h"
#include "engine/algorithms/general/unitary_basis.h"

SVD_KERNEL_BEGIN

// v := D^-1 V_0 with its columns scaled, of the identity in the lanes where an element is not finite. Returns the lanes
// where all are. load(v) is a phase that fills v with V_0. d: k exponents of D; parts: k lanes.
template <class Team, class A, class Lane, class Size, class Load>
SVD_HD_CALLED typename Lane::Mask load_starting_vectors(const Team& team, A v, Size k, Load load, const Lane* d,
                                                        Lane* parts) {
  using C = ComplexElement<Lane>;
  load(v);
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_any_magnitude(largest, C(v(i, j)));
    parts[j] = largest;
  });
  Lane largest(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) largest = at_least_magnitude(parts[j], largest);
  const auto finite = largest <= Lane(FloatTraits<typename Lane::Scalar>::kLargest);
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      const C of_identity{Lane(i == j ? 1.0f : 0.0f), Lane(0)};
      v(i, j) = select_element(finite, C(v(i, j)), of_identity);
    }
    unbalance(v, k, j, d, Lane(-1));
  });
  return finite;
}

// t := t R. r: R above its diagonal, which `diagonal` has.
template <class Team, class A, class Lane, class Size>
SVD_HD void multiply_by_triangle(const Team& team, A t, A r, Size k, const ComplexElement<Lane>* diagonal) {
  using C = ComplexElement<Lane>;
  team.for_each_line(0, k, [&](int i) SVD_LAMBDA {
    for (int j = k - 1; j >= 0; --j) {
      C sum = product(C(t(i, j)), diagonal[j]);
      for (int l = 0; l < j; ++l) sum = plus_product(sum, C(t(i, l)), C(r(l, j)));
      t(i, j) = sum;
    }
  });
}

// t := R^-1 t.
template <class Team, class A, class Lane, class Size>
SVD_HD void solve_triangle(const Team& team, A t, A r, Size k, const ComplexElement<Lane>* diagonal) {
  using C = ComplexElement<Lane>;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    for (int i = k - 1; i >= 0; --i) {
      C sum = t(i, j);
      for (int l = i + 1; l < k; ++l) sum = subtract_product(sum, C(r(i, l)), C(t(l, j)));
      t(i, j) = quotient(sum, diagonal[i]);
    }
  });
}

// t := V^-1 A V and v := V = D^-1 V_0 in the lanes where V_0 is finite and V far from singular; elsewhere what is left is
// finite. In: t: A, its largest component about one. load(v), d: as load_starting_vectors(). diagonal: k elements, parts:
// k lanes. Returns the lanes that have a start.
template <class Team, class A, class Lane, class Size, class Load>
SVD_HD typename Lane::Mask start_from_vectors(const Team& team, A t, A v, Size k, Load load, const Lane* d,
                                              ComplexElement<Lane>* diagonal, Lane* parts) {
  using T = typename Lane::Scalar;
  using C = ComplexElement<Lane>;
  const Lane least(T(static_cast<int>(k)) * FloatTraits<T>::kUnitRoundoff);
  auto good = load_starting_vectors(team, v, k, load, d, parts);
  reflect_by_basis(team, t, v, k, parts, diagonal);
  for (int j = 0; j < k; ++j) good = good & (magnitude(diagonal[j]) > least);
  team.sync();  // the diagonal is written again
  team.for_each(0, k, [&](int j) SVD_LAMBDA { diagonal[j] = select_element(good, diagonal[j], C{Lane(1), Lane(0)}); });
  multiply_by_triangle(team, t, v, k, diagonal);
  solve_triangle(team, t, v, k, diagonal);
  (void)load_starting_vectors(team, v, k, load, d, parts);
  return good;
}

SVD_KERNEL_END

#endif
