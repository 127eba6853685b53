// Singular values of a bidiagonal matrix by bisection on its Golub-Kahan form: the fallback of dqds, which cannot
// fail.
//
// The 2k x 2k matrix with zero diagonal and off-diagonal b_00, b_01, b_11, b_12, .. has the eigenvalues +s_i and -s_i,
// so for x > 0   number of s_i below x = count(x) - k.   Squares of the off-diagonal are what a Sturm count needs.
//   in:   q_i = b_ii^2 (i < k), e_i = b_{i,i+1}^2 (i < k - 1)
//   out:  s_i, ascending
// Every interval is halved a fixed number of times, kSteps, from [0, bound] down to bound 2^-kSteps: no test that
// could fail.
//
// Source: Golub and Kahan, SIAM J. Numer. Anal. 2 (1965) 205-224; counts as in sturm_count.h.
// Cost: kSteps 2 k^2 divisions.
//
// Accuracy: |error| <= 8 u s_max or so.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_GK_BISECTION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_GK_BISECTION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_GK_BISECTION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_GK_BISECTION_H_
#endif

#include "engine/algorithms/lanes/sturm_count.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

template <class Lane, class Size>
SVD_HD void gk_bisection(Size k, const Lane* q, const Lane* e, Lane* s) {
  using T = typename Lane::Scalar;
  constexpr int kSteps = FloatTraits<T>::kMantissaBits + 5;
  const Lane zero(0);
  const auto beta2 = [&](int i) SVD_LAMBDA { return i % 2 == 0 ? q[i / 2] : e[i / 2]; };
  // Gerschgorin: no value exceeds the largest sum of two neighbouring off-diagonal elements.
  Lane largest2 = q[0];
  for (int i = 1; i < 2 * k - 1; ++i) largest2 = larger(largest2, beta2(i));
  const Lane bound = Lane(2) * sqrt(largest2);
  const Lane pivmin = larger(largest2, Lane(1)) * Lane(2 / FloatTraits<T>::kLargest);
  for (int j = 0; j < k; ++j) {
    // Invariant: at most j values are below a; more than j are below b.
    Lane a = zero, b = bound;
    for (int step = 0; step < kSteps; ++step) {
      const Lane x = Lane(T(0.5)) * (a + b);
      const Lane below = sturm_count(
                             RuntimeSize{2 * k}, [&](int) SVD_LAMBDA { return zero; }, beta2, x, pivmin) -
                         Lane(T(int(k)));
      const auto go_down = below > Lane(T(j));
      b = select(go_down, x, b);
      a = select(go_down, a, x);
    }
    s[j] = Lane(T(0.5)) * (a + b);
  }
}

SVD_KERNEL_END

#endif
