// JACOBI: singular values by one-sided Jacobi on the triangular factor of a pivoted QR; one matrix a team.
//
//   in:   A (k x k), column j standing for 2^exponents[j] a(:, j) with the largest |a(i, j)| in [1, 2) or zero
//   out:  s_i 2^exponents[i], s_i = |column i| after the last sweep; a is overwritten
//   A P = Q R;   X = R^H, each column with a power of two of its own;   X := X W by plane rotations until every two
//   columns p < q have |x_p^H x_q| <= tol |x_p| |x_q|; the singular values are the norms of the columns
// A sweep visits every pair once, in p-steps of disjoint pairs (round robin, pivot_strategy.h). It stops after a sweep
// without rotation, or after max_sweeps: those lanes are returned as not converged. A lane that is done is left alone.
// A column that shrinks within a sweep to rounding error of itself (dependent_square) is set to zero. It depends on the
// others, and its direction is noise that would be rotated for ever. That is a column-wise backward error of order u.
// R^H rather than R: its columns are nearer to orthogonal. Its scaled condition number does not depend on the scales of
// A's columns, which is the source of the relative accuracy.
// Source: Drmac and Veselic, SIAM J. Matrix Anal. Appl. 29 (2008) 1322-1342 and 1343-1362, algorithm 4 without vectors;
// Demmel and Veselic (1992), section 3. Exponents: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, appendix A.
// Cost: random 4 x 4: 4.2 sweeps; 8 x 8: 5.5. A sweep is 5 k^3 flops real.
// Accuracy: for A = B D, D diagonal, every singular value to a relative error of order k u kappa(B).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_ONE_SIDED_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_ONE_SIDED_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_ONE_SIDED_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_ONE_SIDED_JACOBI_H_
#endif

#include "engine/algorithms/jacobi/pivot_strategy.h"
#include "engine/algorithms/jacobi/rotation.h"
#include "engine/algorithms/jacobi/sweeps.h"
#include "engine/algorithms/tall/qr.h"

SVD_KERNEL_BEGIN

// R in the upper triangle of a becomes X = R^H, column i standing for 2^exponents[i] X(:, i).
template <class Team, class A, class Size>
SVD_HD void adjoint_of_triangle(const Team& team, A a, Size k, const typename A::Element::Lane* exponents) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  const Lane gap(2 * FloatTraits<typename E::Scalar>::kLargestGap);
  team.for_each(0, k, [&](int i) SVD_LAMBDA {
    a(i, i) = conj(a(i, i));
    SVD_UNROLL for (int j = i + 1; j < k; ++j) {
      const Lane difference = larger(smaller(exponents[j] - exponents[i], gap), -gap);
      a(j, i) = scaled(conj(a(i, j)), pow2(difference));
      a(i, j) = zero_element<E>();
    }
  });
}

// Scales column j so that its largest component is in [1, 2), and says so in its exponent.
template <class A, class Size>
SVD_HD void normalize_column(A a, Size k, int j, typename A::Element::Lane* exponents) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  Lane largest = Lane(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, a(i, j));
  const Lane e = binary_exponent(largest);
  const Pow2<Lane> scale = make_pow2(-e);
  SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = scaled(a(i, j), scale);
  exponents[j] = exponents[j] + e;
}

// Clears column j where a sweep that began with a largest component in [1, 2) has left rounding errors alone.
template <class A, class Size>
SVD_HD void clear_dependent_column(A a, Size k, int j) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  const Lane square = sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return a(i, j); });
  const auto dependent = square <= Lane(dependent_square<typename E::Scalar>(k));
  SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = select_element(dependent, zero_element<E>(), a(i, j));
}

// Rotates the pair (p, q) where its cosine exceeds tol; returns where it does.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask rotate_pair(A a, Size k, PivotPair pair, const Lane* exponents, Lane tol,
                                       typename Lane::Mask active) {
  using E = typename A::Element;
  const int p = pair.p, q = pair.q;
  const Lane zero(0), one(1), collapsed(FloatTraits<typename E::Scalar>::kCollapsedSquare);
  const auto x_p = [&](int i) SVD_LAMBDA { return a(i, p); };
  const auto x_q = [&](int i) SVD_LAMBDA { return a(i, q); };
  const Lane alpha = sum_of_squares<E>(k, x_p), beta = sum_of_squares<E>(k, x_q);
  const E product = inner_product<E>(k, x_p, x_q);
  Lane gamma;
  E omega;  // the conjugate of the product's phase; of a real product: its sign
  if constexpr (E::kComplex) {
    gamma = sqrt(add_square(zero, product));
    const Lane inverse = one / select(gamma > zero, gamma, one);
    omega = {product.re * inverse, -(product.im * inverse)};
  } else {
    gamma = abs(product.re);
    omega = {copysign(one, product.re)};
  }
  const auto wanted = (gamma > tol * sqrt(alpha * beta)) & active;
  const auto rotate = wanted & (alpha >= collapsed) & (beta >= collapsed);
  if (!any_of(rotate)) return wanted;
  const auto r = cosine_rotation(alpha, beta, gamma, exponents[p], exponents[q], rotate);
  omega.re = select(rotate, omega.re, one);
  if constexpr (E::kComplex) omega.im = select(rotate, omega.im, zero);
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    const E x = a(i, p);
    E w = a(i, q);
    if constexpr (E::kComplex) {
      w = {fma(w.re, omega.re, -(w.im * omega.im)), fma(w.re, omega.im, w.im * omega.re)};
    } else {
      w.re = w.re * omega.re;
    }
    a(i, p).re = r.c * fnma(r.t_p, w.re, x.re);
    a(i, q).re = r.c * fma(r.t_q, x.re, w.re);
    if constexpr (E::kComplex) {
      a(i, p).im = r.c * fnma(r.t_p, w.im, x.im);
      a(i, q).im = r.c * fma(r.t_q, x.im, w.im);
    }
  }
  return wanted;
}

template <class Team, class A, class Lane, class Size>
SVD_HD typename Lane::Mask one_sided_jacobi(const Team& team, A a, Size k, Lane* exponents, Lane tol, int max_sweeps,
                                            Lane* s) {
  using E = typename A::Element;
  using Mask = typename Lane::Mask;
  pivoted_qr(team, a, k, exponents, s);
  adjoint_of_triangle(team, a, k, exponents);
  const Mask unfinished =
      sweep_until_orthogonal(Lane::mask(k > 1), max_sweeps, [&](int sweep, const Mask& active) SVD_LAMBDA {
        team.for_each(0, k, [&](int j) SVD_LAMBDA {
          if (sweep > 0) clear_dependent_column(a, k, j);
          normalize_column(a, k, j, exponents);
        });
        auto rotated = Lane::mask(false);
        for (int step = 0; step < round_robin_steps(k); ++step) {
          team.for_each(0, round_robin_pairs(k), [&](int i) SVD_LAMBDA {
            const PivotPair pair = round_robin_pair(k, step, i);
            if (pair.q < k) rotated = rotated | rotate_pair(a, k, pair, exponents, tol, active);
          });
        }
        return team.any(rotated);
      });
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    normalize_column(a, k, j, exponents);
    s[j] = sqrt(sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return a(i, j); }));
  });
  return unfinished;
}

SVD_KERNEL_END

#endif
