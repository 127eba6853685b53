// Rotations of two columns that have signs and carry exponents, in double precision: the pointwise level of large
// matrices. The true columns are 2^f_p x_p and 2^f_q x_q, with the signs J_p and J_q.
//
//   J_p = J_q    trigonometric:  tan 2 theta = 2 gamma / (beta - alpha)
//   J_p != J_q   hyperbolic:     tanh 2 phi = -2 gamma / (alpha + beta), which keeps x_p^H x_p - x_q^H x_q
//
// alpha = |x_p|^2 P, beta = |x_q|^2 Q, gamma = |x_p^H x_q| S, with S, P and Q of rotation.h. A rotation puts the longer
// of its two columns first, or last where both signs are -1 (sorting), unless their signs differ.
//
// One formula is evaluated in two ways, since each suits a processor, and their bits are those of a back end's results:
//
//   tangent_rotation()   by tan theta; three divisions and two roots. The columns are at hand, so a pair's work is in
//                        them (host/p_steps/pair_rotations.h)
//   gram_rotation()      by tan (theta / 2), of which a rough value will do; no division. A GPU's warp has four pairs of
//                        8 x 8 matrices and waits for their rotations (blocks/gram_jacobi.h)
//
// Sources: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, section 4.3, eqs. (13)-(18): t = 1 is the trigonometric
// case, t = -1 the hyperbolic one. Veselic, Numer. Math. 64 (1993) 241-269: the hyperbolic rotation. Rotations by
// approximate angles: Goetze, Paul, Sauer, IEEE Trans. Comput. 42 (1993) 1058-1065.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SIGNED_ROTATION_H_
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SIGNED_ROTATION_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "engine/core/complex.h"

namespace svdserve {

// Which way a pair is sorted, and whether its rotation is hyperbolic.
enum class PairSigns : uint8_t {
  kBothPositive,  // the longer column first
  kBothNegative,  // the longer column last
  kOpposite,      // not sorted
  kUnsorted,      // both positive, and not sorted
};

SVD_HD PairSigns pair_signs(bool p_positive, bool q_positive) {
  if (p_positive != q_positive) return PairSigns::kOpposite;
  return p_positive ? PairSigns::kBothPositive : PairSigns::kBothNegative;
}

// Whether the columns are to change places. size_p, size_q: their squared norms, divided by the same power of two.
SVD_HD bool out_of_order(PairSigns signs, double size_p, double size_q) {
  return (signs == PairSigns::kBothPositive && size_p < size_q) ||
         (signs == PairSigns::kBothNegative && size_p > size_q);
}

// --- by its tangent ----------------------------------------------------------------------------------------------------

// x_p := c (x_p - t_p w), x_q := c (w + t_q x_p), w = conj(omega) x_q. Hyperbolic ones have t_q < 0.
struct TangentRotation {
  double c = 1, t_p = 0, t_q = 0;
};

// S, P and Q. Unlike those of gram_rotation() they are not limited, and may be zero.
struct TangentWeights {
  double s = 1, p = 1, q = 1;
};
SVD_HD TangentWeights tangent_weights(int32_t f_p, int32_t f_q) {
  TangentWeights result;
  if (f_p == f_q) return result;
  result.s = std::ldexp(1.0, -std::abs(f_p - f_q));
  (f_p > f_q ? result.q : result.p) = result.s * result.s;
  return result;
}

// t = tan theta = 2 gamma / (delta + sign(delta) sqrt(delta^2 + 4 gamma^2)),  delta = beta - alpha
SVD_HD TangentRotation trigonometric_rotation(double alpha, double beta, double gamma, const TangentWeights& weights) {
  const double delta = beta * weights.q - alpha * weights.p;
  const double cross = 2 * gamma * weights.s;
  const double root = std::sqrt(delta * delta + cross * cross);
  const double ratio = 2 * gamma / (delta + std::copysign(root, delta));
  TangentRotation r;
  r.t_p = ratio * weights.q;
  r.t_q = ratio * weights.p;
  r.c = 1 / std::sqrt(1 + r.t_p * r.t_q);
  return r;
}

// tanh phi = -2 gamma / (alpha + beta + sqrt((alpha + beta)^2 - 4 gamma^2)), and 1/2 where the root is zero, which is the
// paper's 5/4 for |coth 2 phi| = 1;  cosh phi = 1 / sqrt((1 - tanh)(1 + tanh))
SVD_HD TangentRotation hyperbolic_rotation(double alpha, double beta, double gamma, const TangentWeights& weights) {
  const double sum = beta * weights.q + alpha * weights.p;
  const double cross = 2 * gamma * weights.s;
  const double difference = sum - cross;
  double tanh = 0.5;
  TangentRotation r;
  if (difference > 0x1p-52 * sum) {
    const double ratio = 2 * gamma / (sum + std::sqrt(difference * (sum + cross)));
    r.t_p = ratio * weights.q;
    r.t_q = -(ratio * weights.p);
    tanh = ratio * weights.s;
  } else {
    // The true columns are about equal, so that the exponents are, too.
    r.t_p = tanh * std::sqrt(weights.q / weights.p);
    r.t_q = -tanh * std::sqrt(weights.p / weights.q);
  }
  r.c = 1 / std::sqrt((1 - tanh) * (1 + tanh));
  return r;
}

// alpha, beta: |x_p|^2, |x_q|^2; gamma = |x_p^H x_q|
SVD_HD TangentRotation tangent_rotation(double alpha, double beta, double gamma, const TangentWeights& weights,
                                        PairSigns signs) {
  return signs == PairSigns::kOpposite ? hyperbolic_rotation(alpha, beta, gamma, weights)
                                       : trigonometric_rotation(alpha, beta, gamma, weights);
}

// --- by tan (theta / 2) ------------------------------------------------------------------------------------------------

// A column of J - I, (x_p, x_q) := (x_p, x_q) J: its entry on the diagonal, and the other one. Transformations are kept,
// multiplied and applied without their identity. Cosines near one are rounded up more often than down, and all columns
// would grow, by 200 u in ten sweeps of 256 columns.
template <class E>
struct alignas(16) RotatedColumn {
  E own, other;
};
// A rotation of a pair, by numbers that both columns need. The sines have the signs that they have in J.
template <class E>
struct GramRotation {
  double sine_p, sine_q, cosine_less_one;
  E phase;        // of x_p^H x_q
  double change;  // |x_p|^2 becomes alpha + sine_p change, |x_q|^2 beta + sine_q change
  bool proper;    // the angle is not negligible
  bool swapped;   // with their exponents
};
// One column of the pair afterwards.
template <class E>
struct GramColumn {
  RotatedColumn<E> by;
  double norm2;
  bool lost;  // rounding errors are left of it
};

SVD_HD double power_of_two(int e) {  // -1022 <= e <= 1023
  return __builtin_bit_cast(double, static_cast<uint64_t>(e + 1023) << 52);
}
template <class T>
SVD_HD void exchange(T& x, T& y) {
  const T t = x;
  x = y;
  y = t;
}
// 1 / sqrt(x) and 1 / x to some 20 bits.
SVD_HD double rough_root(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, 1 / std::sqrt(x)) >> 32 << 32);  // as rough as there
#endif
}
SVD_HD double rough_reciprocal(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, 1 / x) >> 32 << 32);
#endif
}

// 1 / sqrt(x) and 1 / x to about an ulp, for normal x in 2^-1022 .. 2^1022. A device uses the hardware's approximation
// of 20 bits and one step of third order, a third of the latency of a division.
SVD_HD double reciprocal_root(double x) {
#if defined(__CUDA_ARCH__)
  const double y = rough_root(x);
  const double error = std::fma(-(x * y), y, 1.0);
  return std::fma(y * error, std::fma(0.375, error, 0.5), y);
#else
  return 1 / std::sqrt(x);
#endif
}
SVD_HD double reciprocal(double x) {
#if defined(__CUDA_ARCH__)
  const double y = rough_reciprocal(x);
  const double error = std::fma(-x, y, 1.0);
  return std::fma(y, std::fma(error, error, error), y);
#else
  return 1 / x;
#endif
}

// 1 - (tanh 2 theta)^2 is kept this far from zero. Columns that no hyperbolic rotation can make orthogonal, which exist
// by rounding alone, are brought nearer, and looked at again.
inline constexpr double kLeastHyperbolicGap = 0x1p-40;
// A column whose squared norm falls to this part was a combination of the others but for rounding.
inline constexpr double kLostNorm2 = 0x1p-48;
// Columns whose exponents are further apart: of the shorter one nothing is in the longer one.
inline constexpr int kLargestDistance = 480;
// Nothing, beside columns of norm one: keeps roots' arguments normal numbers.
inline constexpr double kNegligible2 = 0x1p-900;

SVD_HD bool needs_rotation(double alpha, double beta, double gamma2, double tolerance2) {
  return gamma2 > tolerance2 * (alpha * beta) && gamma2 >= kNegligible2;
}
SVD_HD double modulus_of(double x, double) { return std::fabs(x); }
SVD_HD double phase_of(double x, double) { return x < 0 ? -1 : 1; }
SVD_HD double modulus_of(Complex x, double inverse_modulus) { return squared_modulus(x) * inverse_modulus; }
SVD_HD Complex phase_of(Complex x, double inverse_modulus) { return times_real(x, inverse_modulus); }

// The powers of two of a pair: s = 2^-|f_p - f_q|, and the squares of the two true columns' own, divided by the larger.
struct GramWeights {
  double s, s2, p, q;
};
SVD_HD GramWeights gram_weights(int f_p, int f_q) {
  const int distance = f_p > f_q ? f_p - f_q : f_q - f_p, d = distance < kLargestDistance ? distance : kLargestDistance;
  const double s2 = power_of_two(-2 * d);
  return {power_of_two(-d), s2, f_p >= f_q ? 1 : s2, f_q >= f_p ? 1 : s2};
}

// The sine of theta (or phi) divided by s, and the cosine less one.
struct GramAngle {
  double sine, cosine_less_one;
};

// tan(theta / 2) / s to some 20 bits; |theta| <= pi / 4. delta = beta q - alpha p.
//   tan 2 theta = 2 |gamma| s / delta;  2 cos^2 theta = 1 + cos 2 theta;  tan(theta / 2) = sin theta / (1 + cos theta)
SVD_HD double half_tangent(double delta, double modulus, double s2) {
  const double cross = 2 * modulus;
  const double inverse_root = rough_root(std::fma(delta, delta, std::fma(cross * s2, cross, 0x1p-1000)));
  const double c2 = std::fma(0.5, std::fabs(delta) * inverse_root, 0.5), inverse_c = rough_root(c2);
  return modulus * inverse_root * inverse_c * rough_reciprocal(std::fma(c2, inverse_c, 1.0));
}

// t = tan(theta / 2):  sin theta = 2 t / (1 + t^2);  cos theta - 1 = -t sin theta
// Sine and cosine belong together to the last bits whatever t is. So t need not be accurate. An angle that is off by
// 2^-20 of itself leaves as much of the cosine between the columns, for the next sweep.
SVD_HD GramAngle trigonometric_angle(double delta, double modulus, double s2) {
  const double t = half_tangent(delta, modulus, s2), weighted = t * s2;
  const double sine = (delta < 0 ? -2 : 2) * t * reciprocal(std::fma(weighted, t, 1.0));
  return {sine, -weighted * std::fabs(sine)};
}
// tanh 2 phi = cross / sum;  cosh 2 phi = sum / root;  cosh^2 phi = (1 + cosh 2 phi) / 2;  sinh phi = sinh 2 phi / (2 cosh phi)
SVD_HD GramAngle hyperbolic_angle(double sum, double modulus, const GramWeights& w) {
  const double cross = 2 * modulus * w.s;
  const double least = std::fma(kLeastHyperbolicGap * sum, sum, kNegligible2 * w.s2);
  const double inverse_root = reciprocal_root(std::fmax((sum - cross) * (sum + cross), std::fmax(least, 0x1p-1000)));
  const double c2 = std::fma(0.5, sum * inverse_root, 0.5), inverse_c = reciprocal_root(c2), c = c2 * inverse_c;
  const double sine = modulus * inverse_root * inverse_c;
  return {sine, sine * w.s2 * sine * reciprocal(1 + c)};
}

// x, but zero where it is negative.
SVD_HD double not_negative(double x) { return (__builtin_bit_cast(uint64_t, x) >> 63) != 0 ? 0 : x; }

// alpha, beta: |x_p|^2, |x_q|^2; gamma = x_p^H x_q; f_p, f_q: exponents. Not `needed`: J = I.
template <class E>
SVD_HD GramRotation<E> gram_rotation(double alpha, double beta, E gamma, int f_p, int f_q, PairSigns signs,
                                     bool needed) {
  const GramWeights w = gram_weights(f_p, f_q);
  double inverse_modulus = 0;  // a real number's is not needed
  if constexpr (kIsComplex<E>) inverse_modulus = reciprocal_root(needed ? squared_modulus(gamma) : 1);
  const double modulus = modulus_of(gamma, inverse_modulus);
  const bool opposite = signs == PairSigns::kOpposite;
  const double delta = std::fma(beta, w.q, -(alpha * w.p));
  GramAngle angle = opposite ? hyperbolic_angle(std::fma(alpha, w.p, beta * w.q), modulus, w)
                             : trigonometric_angle(delta, modulus, w.s2);
  if (!needed) angle = {0, 0};
  const double sine_q = angle.sine * w.p, c = 1 + angle.cosine_less_one;
  GramRotation<E> r;
  r.sine_p = -(angle.sine * w.q);
  r.sine_q = opposite ? -sine_q : sine_q;
  r.cosine_less_one = angle.cosine_less_one;
  r.phase = phase_of(gamma, inverse_modulus);
  // |c x_p - s_p x_q|^2 = alpha - s_p change, without what cancels. Hyperbolic: alpha - |gamma| tanh phi.
  r.change = opposite ? modulus * reciprocal(c) : std::fma(sine_q, alpha, std::fma(r.sine_p, beta, 2 * modulus * c));
  r.proper = c != 1;
  // The rotation has made the longer one longer.
  r.swapped =
      needed && (signs == PairSigns::kBothPositive ? delta >= 0 : signs == PairSigns::kBothNegative && delta < 0);
  return r;
}

// One column of the pair after its rotation: the one that was x_q, or the one that was x_p. Where they are swapped it has
// the other's place.
template <class E>
SVD_HD GramColumn<E> column_after(const GramRotation<E>& r, double alpha, double beta, bool was_q) {
  const double norm2 = was_q ? beta : alpha, sine = was_q ? r.sine_q : r.sine_p;
  const E off = times_real(was_q ? r.phase : conjugate(r.phase), sine);
  GramColumn<E> column;
  column.by = {r.swapped ? plus_real(off, -1) : from_real<E>(r.cosine_less_one),
               r.swapped ? from_real<E>(1 + r.cosine_less_one) : off};
  // The shorter of parallel columns may come out negative: it becomes zero, and is left alone until computed anew.
  const double after = std::fma(sine, r.change, norm2);
  column.lost = after <= kLostNorm2 * norm2;
  column.norm2 = not_negative(after);
  return column;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SIGNED_ROTATION_H_
