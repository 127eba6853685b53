// The rotation of one-sided Jacobi for two columns that carry exponents: the columns are 2^f_p x_p and 2^f_q x_q.
//
// Let alpha = |x_p|^2 P, beta = |x_q|^2 Q, gamma = |x_p^H x_q| S, where S = 2^-|f_p - f_q| and P, Q are 1 for the
// larger exponent and S^2 for the smaller. All numbers are those of the true columns divided by one power of two, and
// none overflows, however far apart the columns are:
//   t = tan(theta) = 2 gamma / (delta + sign(delta) sqrt(delta^2 + 4 gamma^2)),   delta = beta - alpha
//   x_p := c (x_p - t_p w),   x_q := c (w + t_q x_p),   w = conj(omega) x_q,   omega = x_p^H x_q / |x_p^H x_q|
//   t_p = t 2^(f_q - f_p) = 2 |x_p^H x_q| Q / (...),   t_q = t 2^(f_p - f_q) = 2 |x_p^H x_q| P / (...),
//   c = 1 / sqrt(1 + t_p t_q)
// The textbook's zeta = (beta - alpha) / (2 gamma) needs zeta^2, which overflows for columns far apart; this form does
// not. For such columns t_p or t_q is zero, and the rotation is a step of Gram-Schmidt, as it should be.
// Sources: Rutishauser, Numer. Math. 9 (1966) 1-10; Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13 (1992) 1204-1245.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_JACOBI_JACOBI_ROTATION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_JACOBI_ROTATION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_JACOBI_ROTATION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_JACOBI_ROTATION_H_
#endif

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

template <class Lane>
struct JacobiRotation {
  Lane c, t_p, t_q;
};

// alpha, beta: |x_p|^2, |x_q|^2; gamma = |x_p^H x_q|; f_p, f_q: the exponents. Where rotate is false: the identity.
template <class Lane>
SVD_HD JacobiRotation<Lane> jacobi_rotation(Lane alpha, Lane beta, Lane gamma, Lane f_p, Lane f_q,
                                            typename Lane::Mask rotate) {
  using T = typename Lane::Scalar;
  const Lane one(1), zero(0);
  const Lane distance = smaller(abs(f_p - f_q), Lane(FloatTraits<T>::kLargestGap));
  const Lane s = pow2(-distance), s2 = s * s;
  const auto p_larger = f_p >= f_q;
  const Lane p = select(p_larger, one, s2), q = select(p_larger, select(f_p == f_q, one, s2), one);
  const Lane delta = beta * q - alpha * p;
  const Lane twice = gamma + gamma;
  const Lane cross = twice * s;
  const Lane root = sqrt(fma(delta, delta, cross * cross));
  const Lane ratio = twice / select(rotate, delta + copysign(root, delta), one);
  const Lane t_p = select(rotate, ratio * q, zero), t_q = select(rotate, ratio * p, zero);
  return {one / sqrt(fma(t_p, t_q, one)), t_p, t_q};
}

SVD_KERNEL_END

#endif
