// Sturm counts of symmetric tridiagonal matrices, one matrix a lane.
//
// count(x) = number of eigenvalues of T below x = number of negative pivots of T - x I = L D L^T:
//   d_0 = alpha_0 - x,   d_i = alpha_i - x - beta_{i-1}^2 / d_{i-1}
// A pivot nearer to zero than pivmin is replaced by -pivmin. So the division cannot overflow and the count stays
// monotonic in x: |d_i| >= pivmin, and beta^2 / pivmin <= largest / 2.
// Source: Kahan 1966; Demmel, Dhillon, Ren, ETNA 3 (1995) 116-149; Capozzoli et al., Electronics 2025, 14(16), 3217,
// appendix A, algorithm A1, whose pivmin = 2 max(1, beta^2) / largest. (A1 replaces a small pivot by +pivmin, which
// counts an eigenvalue at x as not below x; LAPACK's dlaebz takes -pivmin. Both are within the error of x.)
// Cost: n divisions. Exact in the sense that the counts are those of a matrix whose beta^2 and x differ by few ulps.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_STURM_COUNT_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_STURM_COUNT_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_STURM_COUNT_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_STURM_COUNT_H_
#endif

#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// alpha(i), i = 0 .. n - 1, and beta2(i), i = 0 .. n - 2, return lanes. Returns the count as a number.
template <class Lane, class Size, class Alpha, class Beta2>
SVD_HD Lane sturm_count(Size n, Alpha alpha, Beta2 beta2, Lane x, Lane pivmin) {
  const Lane zero(0), one(1);
  Lane d = alpha(0) - x;
  Lane count = zero;
  SVD_UNROLL_DEVICE for (int i = 0; i < n - 1; ++i) {
    d = select(abs(d) < pivmin, -pivmin, d);
    count = count + select(d < zero, one, zero);
    d = (alpha(i + 1) - x) - beta2(i) / d;
  }
  d = select(abs(d) < pivmin, -pivmin, d);
  return count + select(d < zero, one, zero);
}

SVD_KERNEL_END

#endif
