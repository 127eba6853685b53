// From a general eigenbasis to a unitary one: E = Q R, S = Q^H A Q; one matrix a lane, and a team for it. S is a Schur
// form of A but for rounding errors where shear_jacobi.h made E^-1 A E triangular.
//
//   columns of E by powers of two to about one;   E = Q R by reflectors;   S = Q^H (A Q)
//   S := U^H S U,  Q := Q U by sweeps of rotations alone, until |strict lower triangle of S|_F <= k u |S|_F
//
// Columns of E that are nearly dependent do no harm to Q. The caller takes V = Q X with X of S from schur_vectors.h,
// and keeps the better one of this and E X by their residuals.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., algorithm 5.2.1; rotations: shear_step.h.
// Cost: 16/3 k^3 flops for R, 8 k^3 for Q, 16 k^3 for S; a sweep of rotations 42 k^3. Two sweeps are enough where they
// help; most matrices need none.
// Accuracy: S = Q^H (A + D) Q, |D| <= c k u |A|_F. The better of E X and Q X: shear_jacobi.h.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNITARY_BASIS_H_
#endif

#include "engine/algorithms/general/shear_jacobi.h"
#include "engine/algorithms/tall/qr.h"

SVD_KERNEL_BEGIN

// In: a: A, its largest component about one; e: E. Out: q: Q; s: S; e is overwritten. All k x k, the team's. Returns
// the lanes in which S is not triangular after max_sweeps; sweeps: of each lane.
template <class Team, class A, class B, class Lane, class Size>
SVD_HD typename Lane::Mask unitary_basis(const Team& team, A a, B e, B q, B s, Size k, int max_sweeps, Lane* sweeps,
                                         const ShearWork<Lane>& work) {
  using C = ComplexElement<Lane>;
  const C zero{Lane(0), Lane(0)};
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, C(e(i, j)));
    const Pow2<Lane> scale = make_pow2(-binary_exponent(largest));
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      e(i, j) = scaled(e(i, j), scale);
      q(i, j) = {Lane(i == j ? 1 : 0), Lane(0)};
    }
  });
  Lane* const g = work.first;
  tall_qr(team, e, k, k, [&](int j, const Reflector<C>& h) SVD_LAMBDA { g[j] = h.g; });
  apply_tall_q(team, e, k, k - 1, g, q, k);
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA {
    const int i = x % k, j = x / k;
    e(i, j) = sum_of(k, zero, [&](const C& sum, int l) SVD_LAMBDA { return plus_product(sum, a(i, l), C(q(l, j))); });
  });
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA {
    const int i = x % k, j = x / k;
    s(i, j) = inner_product<C>(
        k, [&](int l) SVD_LAMBDA { return q(l, i); }, [&](int l) SVD_LAMBDA { return e(l, j); });
  });
  return shear_jacobi<false>(team, s, q, k, max_sweeps, sweeps, work);
}

SVD_KERNEL_END

#endif
