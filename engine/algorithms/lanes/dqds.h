// Singular values of a bidiagonal matrix by dqds, the differential quotient-difference algorithm, with Laguerre's
// shifts; one matrix a lane.
//
//   in:   q_i = b_ii^2 (i < k), e_i = b_{i,i+1}^2 (i < k - 1); the largest element of B is about one or more
//   out:  q_i = s_i^2, in no order; q and e are overwritten
//
// One pass with shift s takes B B^T - sigma I = L U to U L - s I, d being carried along:
//   d_0 = q_0 - s;   p_i = d_i + e_i,  t = q_{i+1} / p_i,  q'_i = p_i,  e'_i = e_i t,  d_{i+1} = d_i t - s;
//   q'_{n-1} = d
// It is exact to a few ulps in every q and e as long as no d_i is negative. That holds as long as s is at most the
// least eigenvalue. The pass itself tells where that is: with g_i = -d d_i / d s and h_i = d g_i / d s,
//   g_0 = 1,  g_{i+1} = 1 + c g_i;   h_0 = 0,  h_{i+1} = c (h_i + 2 g_i^2 / p_i);   c = e'_i / p_i
//   f  = sum g_i / p_i                    = sum over the eigenvalues of 1 / (lambda - s)
//   f2 = sum (h_i + g_i^2 / p_i) / p_i    = sum over the eigenvalues of 1 / (lambda - s)^2
//   next shift  n / (f + sqrt((n - 1) (n f2 - f^2)))
// Laguerre's step for a polynomial whose roots are real: a lower bound of the least, cubically convergent where it is
// simple. So passes succeed, and lanes need about the same number of them: what counts where 8 .. 32 wait for the
// slowest. (Compared with the lower eigenvalue of the last 2 x 2 block as the shift, the slowest of 32 random 4 x 4
// takes 8 to 9 passes, not 17 to 19. Nearly equal singular values converge, too.
// In the code's terms, with G = g_i / p_i and H = h_i / p_i:
//   c = e'_i / p_{i+1},  G' = 1 / p_{i+1} + c G,  H' = c (H + 2 G^2);   f = sum G,  f2 = sum (H + G^2)
//
// A value is found, and n shrinks by one, when
//   e_{n-2} <= (u / 4)^2              the last row has come loose: no s_i moves by more than u / 2 s_max
//   q_{n-1}^2 <= u^2 sigma + u^4      sigma is an eigenvalue: no lambda moves by more than q_{n-1}, and no
//                                     s_i, each at least sqrt(sigma), by more than u / 2
// e_{n-2} then joins q_{n-2} in the first pass of what is left.
//
// The first shift is zero. The first for each n after that is Laguerre's step for the first n rows of the pass that
// found the value. Its sums have been formed on the way to those of all n + 1. Eigenvalues interlace, so it is a lower
// bound of the rest, but for a row that came loose with another value than the least. A pass that fails all the same (a
// negative d, which no later d can leave) is undone, and its shift lowered. All lanes work on the same n; a lane that
// is done keeps its numbers, so its result does not depend on its neighbours. The last two values come from the closed
// form of the 2 x 2 block.
//
// A lane that does not converge in kMaxPasses passes for one value is left to bisection (gk_bisection.h): rare, slower,
// and it cannot fail. Which lanes go there is a function of their own matrix.
// Sources: Fernando and Parlett, Numer. Math. 67 (1994) 191-229 (dqds); von Matt, SIAM J. Matrix Anal. Appl. 18 (1997)
// 1163-1186 (Laguerre's shifts for qd). The recurrences of g and h are those of d, differentiated.
//
// Cost: n + 1 divisions and a square root a pass. Random 4 x 4: 5.5 to 7 passes (f32, f64), 8 to 9.5 for the slowest of
// 32; 8 x 8: 17 to 21, and 25 to 29.
//
// Accuracy: relative error of each s_i - sigma-shifted value of order k u; here |error| <= (16 + 2 k) u s_max.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_DQDS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_DQDS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_DQDS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_DQDS_H_
#endif

#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// The sums of a pass, with G = g_i / p_i and twice = h_i / p_i + 2 G^2. The next row starts from these two.
template <class Lane>
struct LaguerreSums {
  Lane G, twice, f, f2;

  // r = 1 / p_0
  SVD_HD void begin(Lane r) {
    G = r;
    f = r;
    f2 = r * r;
    twice = f2 + f2;
  }
  // r = 1 / p_{i+1}, last_e = e'_i
  SVD_HD void add(Lane r, Lane last_e) {
    const Lane c = last_e * r;
    const Lane H = c * twice;
    G = fma(c, G, r);
    const Lane once = fma(G, G, H);
    twice = fma(G, G, once);
    f = f + G;
    f2 = f2 + once;
  }
};

// Zero or positive; by rounding at most slightly above the least of n eigenvalues. Zero where a sum overflowed.
template <class Lane>
SVD_HD Lane laguerre_shift(int n, Lane f, Lane f2) {
  using T = typename Lane::Scalar;
  using F = FloatTraits<T>;
  const Lane spread = Lane(T(n - 1)) * fma(Lane(T(n)), f2, -(f * f));
  const Lane root = sqrt_in_range(at_least(spread, Lane(F::kNegligibleSquare)));
  const Lane s = Lane(T(n) * (1 - 8 * F::kUnitRoundoff)) * reciprocal(f + root);
  return select(spread <= Lane(F::kRangeLargest), s, Lane(0));
}

// other: 2 k lanes of scratch, or 2 N where k is a BoundedSize<N>. Returns the lanes whose q are not the values: those
// left to bisection.
template <class Lane, class Size>
SVD_HD typename Lane::Mask dqds(Size k, Lane* q, Lane* e, Lane* other) {
  using T = typename Lane::Scalar;
  // Where arrays are registers a pass leaves q and e alone until it is known to be good. In memory it writes at once,
  // and the replaced numbers can be brought back.
#if defined(__CUDA_ARCH__)
  constexpr bool kInRegisters = Size::kValue != 0;
#else
  constexpr bool kInRegisters = false;
#endif
  constexpr int kMaxPasses = 40;
  constexpr T kU = FloatTraits<T>::kUnitRoundoff;
  constexpr T kLoose = kU * kU / 16, kFound = kU * kU;
  constexpr T kLower = 1 - 0x1p-6;
  const int half = Size::kLimit != 0 ? Size::kLimit : k;  // of `other`
  const Lane zero(0), one(1);
  // Takes the place of a shift of zero: it moves no value that could be told from zero; without it a p could be.
  const Lane tiny(FloatTraits<T>::kNegligibleSquare);
  auto failed = Lane::mask(false);
  Lane sigma = zero;
  Lane s = zero;        // the next shift
  Lane joining = zero;  // e of the value found last, until it has joined the q before it

  SVD_UNROLL_DEVICE for (int n = k; n > 2; --n) {
    Lane lower(kLower), leading_f = zero, leading_f2(FloatTraits<T>::kRangeLargest);
    auto active = !(failed | (at_least(e[n - 2], joining) <= Lane(kLoose)));
    for (int pass = 0; any_of(active); ++pass) {
      if (pass == kMaxPasses) {
        failed = failed | active;
        break;
      }
      const Lane step = tiny - s;
      Lane this_q = q[0], last_e = zero;
      Lane d = this_q + step;
      LaguerreSums<Lane> sums;
      for_each_below<Size>(n - 1, [&](int i) SVD_LAMBDA {
        const Lane next_q = q[i + 1], this_e = e[i];
        const Lane p = at_least(d + this_e, tiny);
        const Lane r = reciprocal(p);
        const Lane t = next_q * r;
        i == 0 ? sums.begin(r) : sums.add(r, last_e);
        last_e = this_e * t;
        if constexpr (kInRegisters) {
          other[i] = p;
          other[half + i] = last_e;
        } else {
          other[i] = this_q;
          other[half + i] = this_e;
          q[i] = select(active, p, this_q);
          e[i] = select(active, last_e, this_e);
        }
        d = fma(d, t, step);
        this_q = next_q;
      });
      leading_f = select(active, sums.f, leading_f);
      leading_f2 = select(active, sums.f2, leading_f2);
      const Lane p = at_least(d + joining, tiny);
      sums.add(reciprocal(p), last_e);

      const auto good = active & (d >= zero), bad = active & !(d >= zero);
      if constexpr (kInRegisters) {
        SVD_UNROLL for (int i = 0; i < n - 1; ++i) {
          q[i] = select(good, other[i], q[i]);
          e[i] = select(good, other[half + i], e[i]);
        }
      } else if (any_of(bad)) {
        for_each_below<Size>(n - 1, [&](int i) SVD_LAMBDA {
          q[i] = select(bad, other[i], q[i]);
          e[i] = select(bad, other[half + i], e[i]);
        });
      }
      q[n - 1] = select(good, p, q[n - 1]);
      sigma = select(good, sigma + s, sigma);
      joining = select(good, zero, joining);
      s = s * lower;  // of use where the pass was bad
      lower = select(good, Lane(kLower), lower * Lane(T(0.25)));
      const auto loose = e[n - 2] <= Lane(kLoose);
      const auto found = q[n - 1] * q[n - 1] <= fma(Lane(kFound), sigma, Lane(kFound * kFound));
      active = bad | (active & !(loose | found));
      if (!any_of(active)) break;
      s = select(good, laguerre_shift(n, sums.f, sums.f2), s);
    }
    if (n > 3) s = laguerre_shift(n - 1, leading_f, leading_f2);
    joining = e[n - 2];
    q[n - 1] = sigma + q[n - 1];
  }
  if (k >= 2) {
    // [a + b, sqrt(b c); sqrt(b c), c + x]: the larger eigenvalue has no cancellation, the smaller is the determinant,
    // a sum of positive terms, over the larger.
    const Lane a = q[0], b = e[0], c = q[1], x = joining;
    const Lane gap = (a + b) - (c + x);
    const Lane square = fma(gap, gap, Lane(4) * (b * c));
    const Lane root = select(square > tiny, sqrt_in_range(square), zero);
    const Lane big = Lane(T(0.5)) * (((a + b) + (c + x)) + root);
    const Lane inverse = reciprocal(at_least(big, tiny));
    const Lane small = fma(a, (c + x) * inverse, b * (x * inverse));
    q[0] = sigma + big;
    q[1] = sigma + small;
  }
  return failed;
}

SVD_KERNEL_END

#endif
