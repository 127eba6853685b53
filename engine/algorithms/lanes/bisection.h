// BISECTION: singular values of a bidiagonal matrix from the eigenvalues of T = B^T B by bisection with Sturm counts;
// one matrix a lane. The published method that this service started from.
//
//   T_ii = alpha_i = q_i + e_{i-1},   T_{i,i+1}^2 = beta_i^2 = q_i e_i
//   start: the Gerschgorin interval [min(alpha_i - r_i), max(alpha_i + r_i)], r_i = beta_{i-1} + beta_i, cut at zero
//   stop:  |b - a| <= max(delta (|a| + |b|), 2 u lambda_max, pivmin)
// The published test, |b - a| <= delta (|a| + |b|) alone, never ends on a singular matrix. None with delta below the
// resolution of the type ever ends. Hence the other two terms, and delta >= 4 u (planner.h).
//   in:   q_i = b_ii^2 (i < k), e_i = b_{i,i+1}^2 (i < k - 1)
//   out:  s_i = sqrt(lambda_i), ascending; returns the lanes that did not stop (there are none: kMaxSteps halvings take
//         any interval below 2 u lambda_max)
// Source: Capozzoli, Curcio, Di Donna, Liseno, Electronics 2025, 14(16), 3217, section 2.4, algorithm 4, and appendix
// A.
//
// Cost: about k^2 log2(1 / delta) divisions.
//
// Accuracy: |lambda - lambda_exact| <= 2 delta lambda + 16 k u lambda_max: values below sqrt(u) s_max lose digits.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTION_H_
#endif

#include "engine/algorithms/lanes/sturm_count.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// The tridiagonal T = B^T B, in place: q becomes alpha, e becomes beta^2.
template <class Lane, class Size>
SVD_HD void form_tridiagonal(Size k, Lane* q, Lane* e) {
  Lane above = Lane(0);  // e_{i-1}
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) {
    const Lane alpha = q[i] + above;
    if (i < k - 1) {
      above = e[i];
      e[i] = q[i] * e[i];
    }
    q[i] = alpha;
  }
}

// Where all eigenvalues lie, and what no interval needs to be narrower than.
template <class Lane>
struct BisectionStart {
  Lane low, high, pivmin, floor;
};

// q, e: alpha and beta^2.
template <class Lane, class Size>
SVD_HD BisectionStart<Lane> bisection_start(Size k, const Lane* q, const Lane* e) {
  using T = typename Lane::Scalar;
  const Lane zero(0);
  Lane low = q[0], high = q[0], largest2 = zero, before = zero;
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) {
    const Lane beta = i < k - 1 ? sqrt(e[i]) : zero;
    if (i < k - 1) largest2 = larger(largest2, e[i]);
    low = smaller(low, q[i] - (before + beta));
    high = larger(high, q[i] + (before + beta));
    before = beta;
  }
  low = larger(low, zero);
  const Lane pivmin = larger(largest2, Lane(1)) * Lane(2 / FloatTraits<T>::kLargest);
  return {low, high, pivmin, larger(Lane(2 * FloatTraits<T>::kUnitRoundoff) * high, pivmin)};
}

// One value, number j in ascending order, of alpha(i) and beta2(i); `unfinished` is set where it did not stop.
template <class Lane, class Size, class Alpha, class Beta2>
SVD_HD Lane bisect_one(Size k, Alpha alpha, Beta2 beta2, const BisectionStart<Lane>& start, Lane delta, int j,
                       typename Lane::Mask* unfinished) {
  using T = typename Lane::Scalar;
  constexpr int kMaxSteps = 2 * FloatTraits<T>::kMantissaBits;
  const Lane half(T(0.5));
  // Invariant: at most j eigenvalues are below a; more than j are below b (or equal to it, at the start).
  Lane a = start.low, b = start.high;
  auto active = (b - a) > larger(delta * (abs(a) + abs(b)), start.floor);
  for (int step = 0; step < kMaxSteps && any_of(active); ++step) {
    const Lane c = half * (a + b);
    const auto go_down = sturm_count(k, alpha, beta2, c, start.pivmin) > Lane(T(j));
    b = select(active & go_down, c, b);
    a = select(active & !go_down, c, a);
    active = active & ((b - a) > larger(delta * (abs(a) + abs(b)), start.floor));
  }
  *unfinished = *unfinished | active;
  return sqrt(half * (a + b));
}

template <class Lane, class Size>
SVD_HD typename Lane::Mask bisect(Size k, Lane* q, Lane* e, Lane delta, Lane* s) {
  form_tridiagonal(k, q, e);
  const BisectionStart<Lane> start = bisection_start(k, q, e);
  auto unfinished = Lane::mask(false);
  for (int j = 0; j < k; ++j) {
    s[j] = bisect_one(
        k, [&](int i) SVD_LAMBDA { return q[i]; }, [&](int i) SVD_LAMBDA { return e[i]; }, start, delta, j,
        &unfinished);
  }
  return unfinished;
}

SVD_KERNEL_END

#endif
