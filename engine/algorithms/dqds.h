// Singular values of a bidiagonal matrix by dqds, the differential quotient-difference algorithm, with Laguerre's
// shifts; one matrix a lane.
//
//   in:   q_i = b_ii^2 (i < k), e_i = b_{i,i+1}^2 (i < k - 1); the largest element of B is about one or more
//   out:  q_i = s_i^2, in no order; q and e are overwritten
//
// One pass with shift s takes B B^T - sigma I = L U to U L - s I, d being carried along:
//   d_0 = q_0 - s;   p_i = d_i + e_i,  t = q_{i+1} / p_i,  q'_i = p_i,  e'_i = e_i t,  d_{i+1} = d_i t - s;  q'_{n-1} =
//   d
// It is exact to a few ulps in every q and e as long as no d_i is negative, that is as long as s is at most the least
// eigenvalue. The pass itself tells where that is: with g_i = -d d_i / d s and h_i = d g_i / d s,
//   g_0 = 1,  g_{i+1} = 1 + c g_i;   h_0 = 0,  h_{i+1} = c (h_i + 2 g_i^2 / p_i);   c = e'_i / p_i
//   f  = sum g_i / p_i                    = sum over the eigenvalues of 1 / (lambda - s)
//   f2 = sum (h_i + g_i^2 / p_i) / p_i    = sum over the eigenvalues of 1 / (lambda - s)^2
//   next shift  n / (f + sqrt((n - 1) (n f2 - f^2)))
// Laguerre's step for a polynomial whose roots are real: a lower bound of the least, cubically convergent where it is
// simple. So passes succeed, and lanes need about the same number of them: what counts where 8 .. 32 wait for the
// slowest. (Against the lower eigenvalue of the last 2 x 2 block as the shift: 8 to 9 passes, not 17 to 19, for the
// slowest of 32 random 4 x 4, and nearly equal singular values converge.)
//   A value is found, and n shrinks by one, when
//     e_{n-2} <= (u / 4)^2 (1 + sigma + q_{n-1})    the last row has come loose: no s_i moves by more than u / 2 s_max
//     q_{n-1} <= (u / 4)^2 + u / 4 sigma            sigma is an eigenvalue: no lambda moves by more than q_{n-1};
//                                                   e_{n-2} then joins q_{n-2} in the first pass of what is left
//   The first pass for each n has shift zero. A pass that fails all the same (a negative d) is undone, and its shift
//   lowered.
// All lanes work on the same n; a lane that is done keeps its numbers, so its result does not depend on its
// neighbours. The last two values come from the closed form of the 2 x 2 block.
//
// A lane that does not converge in kMaxPasses passes for one value, or whose pass with shift zero fails, is left to
// bisection (gk_bisection.h): rare, slower, and it cannot fail. Which lanes go there is
// a function of their own matrix.
// Sources: Fernando and Parlett, Numer. Math. 67 (1994) 191-229 (dqds); von Matt, SIAM J. Matrix Anal. Appl. 18 (1997)
// 1163-1186 (Laguerre's shifts for qd). The recurrences of g and h are those of d, differentiated.
//
// Cost: random 4 x 4: 7 to 8 passes, 31 to 36 divisions a matrix (f32, f64); 8 x 8: 22 to 26 and 145 to 169.
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

// What a pass sums up, and the shift that follows from it.
template <class Lane>
struct LaguerreSums {
  Lane g, h, f, f2;  // 1, 0, 0, 0 at the start of a pass

  // r = 1 / p_i, c = e'_i / p_i; leaves g and h of i + 1.
  SVD_HD void add(Lane r) {
    const Lane gr = g * r;
    f = f + gr;
    f2 = fma(gr, gr, fma(h, r, f2));
  }
  SVD_HD void advance(Lane r, Lane c) {
    const Lane gr = g * r;
    h = c * fma(g + g, gr, h);
    g = fma(c, g, Lane(1));
  }
  // Zero or positive; by rounding at most slightly above the least eigenvalue. Zero where a sum overflowed.
  SVD_HD Lane shift(int n) const {
    using T = typename Lane::Scalar;
    using F = FloatTraits<T>;
    const Lane spread = Lane(T(n - 1)) * fma(Lane(T(n)), f2, -(f * f));
    const Lane root = sqrt_in_range(at_least(spread, Lane(F::kNegligibleSquare)));
    const Lane s = Lane(T(n) * (1 - 8 * F::kUnitRoundoff)) * reciprocal(f + root);
    return select(spread <= Lane(F::kRangeLargest), s, Lane(0));
  }
};

// backup: 2 k lanes of scratch. Returns the lanes whose q are not the values: those left to bisection.
template <class Lane, class Size>
SVD_HD typename Lane::Mask dqds(Size k, Lane* q, Lane* e, Lane* backup) {
  using T = typename Lane::Scalar;
  constexpr int kMaxPasses = 40;
  constexpr T kU = FloatTraits<T>::kUnitRoundoff;
  const Lane zero(0), one(1), negligible(kU * kU / 16);
  // Added to a d, it moves no value that could be told from zero; without it a p could be.
  const Lane tiny(FloatTraits<T>::kReciprocalSmallest);
  auto failed = Lane::mask(false);
  Lane sigma = zero;
  Lane joining = zero;  // e of a value found by its q, until it has joined the q before it

  SVD_UNROLL_DEVICE for (int n = k; n > 2; --n) {
    Lane s = zero, failures = zero;
    auto loose = Lane::mask(false);
    for (int pass = 0;; ++pass) {
      loose = e[n - 2] <= negligible * ((one + sigma) + q[n - 1]);
      const auto found = q[n - 1] <= fma(Lane(kU / 4), sigma, negligible);
      const auto active = !(((loose | found) & (joining == zero)) | failed);
      if (!any_of(active)) break;
      if (pass == kMaxPasses) {
        failed = failed | active;
        break;
      }
      LaguerreSums<Lane> sums{one, zero, zero, zero};
      Lane this_q = q[0];
      Lane d = this_q - s;
      auto good = d >= zero;
      SVD_UNROLL for (int i = 0; i < n - 1; ++i) {
        const Lane next_q = q[i + 1], this_e = e[i];
        backup[i] = this_q;
        backup[k + i] = this_e;
        const Lane p = at_least(d, tiny) + this_e;
        const Lane r = reciprocal(p);
        const Lane t = next_q * r;
        const Lane new_e = this_e * t;
        sums.add(r);
        sums.advance(r, new_e * r);
        q[i] = select(active, p, this_q);
        e[i] = select(active, new_e, this_e);
        d = fma(at_least(d, tiny), t, -s);
        good = good & (d >= zero);
        this_q = next_q;
      }
      backup[n - 1] = this_q;
      const Lane p = d + joining;
      good = good & (p <= Lane(FloatTraits<T>::kRangeLargest));
      sums.add(reciprocal(at_least(p, tiny)));
      q[n - 1] = select(active, p, this_q);

      const auto bad = active & !good;
      failures = select(bad, failures + one, zero);
      sigma = select(active & good, sigma + s, sigma);
      joining = select(active & good, zero, joining);
      Lane next_s = sums.shift(n);
      if (any_of(bad)) {
        SVD_UNROLL for (int i = 0; i < n; ++i) q[i] = select(bad, backup[i], q[i]);
        SVD_UNROLL for (int i = 0; i < n - 1; ++i) e[i] = select(bad, backup[k + i], e[i]);
        failed = failed | (bad & (s == zero));
        const Lane lower = s * select(failures <= one, Lane(T(1 - 0x1p-6)), Lane(T(0.25)));
        next_s = select(bad, select(failures <= Lane(2), lower, zero), next_s);
      }
      s = next_s;
    }
    joining = select(loose, zero, e[n - 2]);
    q[n - 1] = sigma + q[n - 1];
  }
  if (k >= 2) {
    // [a + b, sqrt(b c); sqrt(b c), c + x]: the larger eigenvalue has no cancellation, the smaller is the determinant,
    // a sum of positive terms, over the larger.
    const Lane a = q[0], b = e[0], c = q[1], x = joining;
    const Lane gap = (a + b) - (c + x);
    const Lane big = Lane(T(0.5)) * (((a + b) + (c + x)) + sqrt(fma(gap, gap, Lane(4) * (b * c))));
    const Lane inverse = one / select(big > zero, big, one);
    const Lane small = fma(a, (c + x) * inverse, b * (x * inverse));
    q[0] = sigma + big;
    q[1] = sigma + small;
  }
  return failed;
}

SVD_KERNEL_END

#endif
