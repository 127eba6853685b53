// Singular values of a bidiagonal matrix by dqds, the differential quotient-difference algorithm with shifts; one
// matrix a lane.
//
//   in:   q_i = b_ii^2 (i < k), e_i = b_{i,i+1}^2 (i < k - 1); the largest element of B is about one or more
//   out:  q_i = s_i^2, in no order; q and e are overwritten
//
// One pass with shift s takes B^T B - sigma I to one nearer to diagonal, d being carried along:
//   d_0 = q_0 - s;   q'_i = d_i + e_i,  t = q_{i+1} / q'_i,  e'_i = e_i t,  d_{i+1} = d_i t - s;   q'_{n-1} = d_{n-1}
// It is exact to a few ulps in every q and e as long as no d_i is negative, that is as long as s is at most the least
// eigenvalue. The last e falls fastest; once it is negligible, sigma + q_{n-1} is an eigenvalue and n shrinks by one.
//   negligible: e <= (u / 4)^2 (1 + sigma + q), which moves no singular value by more than u / 2 s_max
//   shift: the lower eigenvalue of the last 2 x 2 block, times (g + a - f) / (g + a + f) for its coupling
//     f = e_{n-3} to the rest (a = q_{n-2}, g = q_{n-3}). Of fifteen rules tried on 4 x 4 .. 32 x 32 random matrices,
//     it and one with a division more took the fewest divisions when 8 or 16 lanes wait for the slowest.
//   a failed pass (a negative d) is undone. If only the last d was negative, s + d_{n-1} is a lower bound of the least
//     eigenvalue and the next shift; else a quarter of the shift, then zero.
// All lanes work on the same n; a lane that is done keeps its numbers, so its result does not depend on its
// neighbours. The last two values come from the closed form of the 2 x 2 block.
//
// A lane that does not converge in kMaxPasses passes for one value, or whose pass with shift zero fails (a zero q next
// to a zero e: 0/0), is left to bisection (gk_bisection.h): rare, slower, and it cannot fail. Which lanes go there is
// a function of their own matrix.
// Source: Fernando and Parlett, Numer. Math. 67 (1994) 191-229; Parlett and Marques, LAWN 155 (2000), for late
// failures.
//
// Cost: random 4 x 4: 11 passes, 34 divisions a matrix; 8 x 8: 163 divisions; 16 x 16: 670.
//
// Accuracy: relative error of each s_i - sigma-shifted value of order k u; here |error| <= (16 + 2 k) u s_max.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_DQDS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_DQDS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_DQDS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_DQDS_H_
#endif

#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// The shift after a pass: zero or positive, at most slightly above the least eigenvalue of the leading n x n block.
template <class Lane>
SVD_HD Lane dqds_shift(const Lane* q, const Lane* e, int n) {
  const Lane a = q[n - 2], b = e[n - 2], c = q[n - 1];
  const Lane sum = (a + b) + c;
  const Lane gap = a - c;
  // 4 x discriminant of [a + b, sqrt(b c); sqrt(b c), c], as a sum of positive terms.
  const Lane root = sqrt(fma(gap, gap, b * (sum + (a + c))));
  Lane numerator = Lane(2) * (a * c), denominator = sum + root;
  if (n > 2) {
    const Lane f = e[n - 3], ga = q[n - 3] + a;
    numerator = numerator * larger(ga - f, Lane(0));
    denominator = denominator * (ga + f);
  }
  const Lane s = numerator / denominator;
  return select(s > Lane(0), s, Lane(0));  // also for 0/0
}

// Returns the lanes whose q are not the values: those left to bisection.
template <class Lane, class Size>
SVD_HD typename Lane::Mask dqds(Size k, Lane* q, Lane* e) {
  using T = typename Lane::Scalar;
  constexpr int kMaxPasses = 40;
  constexpr T kNegligible = FloatTraits<T>::kUnitRoundoff * FloatTraits<T>::kUnitRoundoff / 16;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : 32;
  const Lane zero(0), one(1);
  auto failed = Lane::mask(false);
  Lane sigma = zero;
  Lane next_q[kStorage], next_e[kStorage];

  SVD_UNROLL_DEVICE for (int n = k; n > 2; --n) {
    Lane s = n == k ? zero : dqds_shift(q, e, n);
    Lane failures = zero;
    for (int pass = 0;; ++pass) {
      const auto negligible = e[n - 2] <= Lane(kNegligible) * ((one + sigma) + q[n - 1]);
      const auto active = !(negligible | failed);
      if (!any_of(active)) break;
      if (pass == kMaxPasses) {
        failed = failed | active;
        break;
      }
      Lane d = q[0] - s;
      auto early = d >= zero;  // no d_i but perhaps the last is negative or NaN
      SVD_UNROLL for (int i = 0; i < n - 2; ++i) {
        next_q[i] = d + e[i];
        const Lane t = q[i + 1] / next_q[i];
        next_e[i] = e[i] * t;
        d = fma(d, t, -s);
        early = early & (d >= zero);
      }
      next_q[n - 2] = d + e[n - 2];
      const Lane t = q[n - 1] / next_q[n - 2];
      next_e[n - 2] = e[n - 2] * t;
      d = fma(d, t, -s);
      next_q[n - 1] = d;
      const auto good = early & (d >= zero) & (d <= Lane(FloatTraits<T>::kLargest)) & active;
      SVD_UNROLL for (int i = 0; i < n; ++i) q[i] = select(good, next_q[i], q[i]);
      SVD_UNROLL for (int i = 0; i < n - 1; ++i) e[i] = select(good, next_e[i], e[i]);
      sigma = select(good, sigma + s, sigma);

      const auto bad = active & !good;
      failed = failed | (bad & (s == zero));
      failures = select(good, zero, failures + one);
      const auto late = early & (d < zero) & (failures == one);
      const Lane lower = select(late, larger(s + d, zero), select(failures <= Lane(2), s * Lane(T(0.25)), zero));
      s = select(bad, lower, dqds_shift(q, e, n));
    }
    q[n - 1] = sigma + q[n - 1];
  }
  if (k >= 2) {
    // [a + b, sqrt(b c); sqrt(b c), c]: the larger eigenvalue has no cancellation, the smaller is a c / larger.
    const Lane a = q[0], b = e[0], c = q[1];
    const Lane gap = a - c;
    const Lane sum = (a + b) + c;
    const Lane big = Lane(T(0.5)) * (sum + sqrt(fma(gap, gap, b * (sum + (a + c)))));
    const Lane small = a * (c / select(big > zero, big, one));
    q[0] = sigma + big;
    q[1] = sigma + small;
  }
  return failed;
}

SVD_KERNEL_END

#endif
