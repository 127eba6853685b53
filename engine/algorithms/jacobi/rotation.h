// The rotation of one-sided Jacobi for two columns that carry exponents: the columns are 2^f_p x_p and 2^f_q x_q. It has
// two forms, which share their weights. In both, |tan(theta)| <= 1.
//
// By its cosine (values). Let alpha = |x_p|^2 P, beta = |x_q|^2 Q, gamma = |x_p^H x_q| S, where S = 2^-|f_p - f_q| and
// P, Q are 1 for the larger exponent and S^2 for the smaller. All numbers are those of the true columns divided by one
// power of two, and none overflows, however far apart the columns are:
//   t = tan(theta) = 2 gamma / (delta + sign(delta) sqrt(delta^2 + 4 gamma^2)),   delta = beta - alpha
//   x_p := c (x_p - t_p w),   x_q := c (w + t_q x_p),   w = conj(omega) x_q,   omega = x_p^H x_q / |x_p^H x_q|
//   t_p = t 2^(f_q - f_p) = 2 |x_p^H x_q| Q / (...),   t_q = t 2^(f_p - f_q) = 2 |x_p^H x_q| P / (...),
//   c = 1 / sqrt(1 + t_p t_q)
// The textbook's zeta = (beta - alpha) / (2 gamma) needs zeta^2, which overflows for columns far apart; this form does
// not. For such columns t_p or t_q is zero, and the rotation is a step of Gram-Schmidt, as it should be.
//
// Self-scaling (vectors). The columns are 2^f_p d_p x_p and 2^f_q d_q x_q, those of V d_p v_p and d_q v_q. A rotation
// multiplies no column by its cosine but d_p^2 and d_q^2 by cos^2, which needs no square root. With g = x_p^H x_q and
// P, Q as above times d_p^2, d_q^2:
//   delta = Q |x_q|^2 - P |x_p|^2,   r = 2 / (delta + sign(delta) sqrt(delta^2 + 4 |g|^2 P Q))
//   x_p := x_p - conj(g) r Q x_q,   x_q := x_q + g r P x_p,   d^2 := d^2 / (1 + |g|^2 r^2 P Q)
// A complex pair needs no phase of its own, since g carries it.
//
// Sources: Rutishauser, Numer. Math. 9 (1966) 1-10; Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13 (1992) 1204-1245;
// self-scaling: Gentleman, J. Inst. Math. Appl. 12 (1973) 329-336, Anda and Park, SIAM J. Matrix Anal. Appl. 15 (1994)
// 162-174.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ROTATION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ROTATION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ROTATION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ROTATION_H_
#endif

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

// S, P and Q.
template <class Lane>
struct ColumnWeights {
  Lane s, p, q;
};
template <class Lane>
SVD_HD ColumnWeights<Lane> column_weights(Lane f_p, Lane f_q) {
  const Lane one(1);
  const Lane distance = smaller(abs(f_p - f_q), Lane(FloatTraits<typename Lane::Scalar>::kLargestGap));
  const Lane s = pow2(-distance), s2 = s * s;
  return {s, select(f_p >= f_q, one, s2), select(f_q >= f_p, one, s2)};
}

// --- by its cosine -----------------------------------------------------------------------------------------------------

template <class Lane>
struct CosineRotation {
  Lane c, t_p, t_q;
};

// alpha, beta: |x_p|^2, |x_q|^2; gamma = |x_p^H x_q|; f_p, f_q: the exponents. Where rotate is false: the identity.
template <class Lane>
SVD_HD CosineRotation<Lane> cosine_rotation(Lane alpha, Lane beta, Lane gamma, Lane f_p, Lane f_q,
                                            typename Lane::Mask rotate) {
  const Lane one(1), zero(0);
  const auto [s, p, q] = column_weights(f_p, f_q);
  const Lane delta = beta * q - alpha * p;
  const Lane twice = gamma + gamma;
  const Lane cross = twice * s;
  const Lane root = sqrt(fma(delta, delta, cross * cross));
  const Lane ratio = twice / select(rotate, delta + copysign(root, delta), one);
  const Lane t_p = select(rotate, ratio * q, zero), t_q = select(rotate, ratio * p, zero);
  return {one / sqrt(fma(t_p, t_q, one)), t_p, t_q};
}

// --- self-scaling ------------------------------------------------------------------------------------------------------

// The scale of column j: the column stands for 2^exponent d x_j in X, and for d v_j in V.
template <class Lane>
struct ColumnScale {
  Lane exponent;
  Lane square;  // d^2 kScaleSquare; d^2 is in [1/2, 4) at the start of a sweep
};

// x_p := x_p - a x_q, x_q := x_q - b x_p
template <class E>
struct ColumnUpdate {
  E a, b;
  typename E::Lane shrink;        // of d_p^2 and d_q^2
  typename E::Lane::Mask wanted;  // the pair was not orthogonal
};
// The same, and v_p := v_p - v_a v_q, v_q := v_q - v_b v_p.
template <class E>
struct PairUpdate : ColumnUpdate<E> {
  E v_a, v_b;
};

// Where a pair is not orthogonal; g_square = |g|^2.
template <class Lane>
SVD_HD typename Lane::Mask exceeds_cosine(Lane g_square, Lane alpha, Lane beta, Lane tol_square) {
  return g_square > tol_square * (alpha * beta);
}

// Roots and reciprocals of rotations, which are rounded correctly: by the operations in range of core/lane.h, or by the
// general ones, with the same results. Which is faster depends on the kernel.
struct InRange {
  template <class Lane>
  static SVD_HD Lane root(Lane x) {
    return sqrt_in_range(x);
  }
  template <class Lane>
  static SVD_HD Lane inverse(Lane x) {
    return reciprocal(x);
  }
};
struct InGeneral {
  template <class Lane>
  static SVD_HD Lane root(Lane x) {
    return sqrt(x);
  }
  template <class Lane>
  static SVD_HD Lane inverse(Lane x) {
    return Lane(1) / x;
  }
};

// r; where rotate is false: zero, which is the identity's. p, q: P and Q.
template <class Roots = InRange, class Lane>
SVD_HD Lane self_scaled_tangent(Lane alpha, Lane beta, Lane g_square, Lane p, Lane q, typename Lane::Mask rotate) {
  const Lane zero(0), one(1);
  const Lane delta = fma(beta, q, -(alpha * p));
  const Lane twice = g_square + g_square;
  const Lane root = Roots::root(fma(delta, delta, (twice + twice) * (p * q)));
  const Lane sum = delta + copysign(root, delta);
  const Lane inverse = Roots::inverse(select(rotate, sum, one));
  return select(rotate, inverse + inverse, zero);
}
// cos^2 of the rotation; r_p, r_q: r P and r Q.
template <class Roots = InRange, class Lane>
SVD_HD Lane self_scaled_shrink(Lane g_square, Lane r_p, Lane r_q) {
  return Roots::inverse(fma(g_square * r_p, r_q, Lane(1)));
}

// alpha, beta: |x_p|^2, |x_q|^2; g = x_p^H x_q. Where the pair is not rotated: the identity.
template <class Roots = InRange, class E, class Lane>
SVD_HD PairUpdate<E> pair_update(Lane alpha, Lane beta, const E& g, const ColumnScale<Lane>& p,
                                 const ColumnScale<Lane>& q, Lane tol_square, typename Lane::Mask active) {
  using F = FloatTraits<typename E::Scalar>;
  const Lane zero(0), collapsed(F::kCollapsedSquare * F::kScaleSquare);
  PairUpdate<E> u;
  const Lane g_square = add_square(zero, g);
  u.wanted = exceeds_cosine(g_square, alpha, beta, tol_square) & active;
  const auto rotate = u.wanted & (alpha * p.square >= collapsed) & (beta * q.square >= collapsed);
  const auto [s, of_p, of_q] = column_weights(p.exponent, q.exponent);
  const Lane big_p = p.square * of_p, big_q = q.square * of_q;
  const Lane r = self_scaled_tangent<Roots>(alpha, beta, g_square, big_p, big_q, rotate);
  const Lane r_p = r * big_p, r_q = r * big_q;
  u.a = scaled(conj(g), r_q);
  u.b = scaled(g, -r_p);
  u.v_a = scaled(conj(g), (r * q.square) * s);
  u.v_b = scaled(g, -((r * p.square) * s));
  u.shrink = self_scaled_shrink<Roots>(g_square, r_p, r_q);
  return u;
}

SVD_KERNEL_END

#endif
