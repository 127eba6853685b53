// Logarithms and powers of two that are the same on every target. They are IEEE additions, multiplications, divisions
// and explicit fused multiply-adds in one order, compare and select: no library, no tables, no branches on data.
//
//   log1p(x)              ln(1 + x)           x >= 0; x itself where it is infinite or NaN
//   log2_1p(x)            log2(1 + x)         x >= 0; the same
//   log2_1p_scaled(a, e)  log2(1 + a 2^e)     a 2^e may be far out of range
//   log2(x)               log2(x)             2 kSmallestNormal <= x <= kRangeLargest
//   exp2(y)               2^y                 |y| <= 100
//
// Method: 1 + x = (1 + f) 2^k with 1 + f in [1/sqrt(2), sqrt(2)); the rounding error of 1 + x, which is exact by two
// differences (Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B), is added to f. With
// s = f / (2 + f), z = s^2,
//
//   ln(1 + f) = 2 artanh(s) = f - f^2/2 + s (f^2/2 + z P(z))
//
// an identity that keeps the leading terms exact: P.-T. P. Tang, "Table-driven implementation of the logarithm function
// in IEEE floating-point arithmetic", ACM TOMS 16 (1990) 378-400, doi 10.1145/98267.98294, has the argument s. The
// regrouping around f^2/2 is that of fdlibm (Sun Microsystems, 1993). f - f^2/2 is kept as an unevaluated sum of two,
// as is k ln 2. P and the polynomial of exp2 are minimax, computed for this file by Remez' algorithm in 60 digits; the
// error of s z P(z) is below 2^-60 (f32: 2^-31).
// Accuracy: at most 2 ulp is promised, 0.8 are measured, of every function, denormal arguments included
// (tests/engine/logarithm_test.cc prints them).
// Cost: 40 operations and a division for a logarithm (f32: 36), 17 for exp2 (f32: 12).
#if defined(SVDSERVE_ENGINE_CORE_LOGARITHM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_LOGARITHM_H_
#undef SVDSERVE_ENGINE_CORE_LOGARITHM_H_
#else
#define SVDSERVE_ENGINE_CORE_LOGARITHM_H_
#endif

#include "engine/core/lane.h"

SVD_KERNEL_BEGIN

// c0 + c1 x + c2 x^2 + ..
template <class Lane, class T>
SVD_HD Lane polynomial(Lane, T c0) {
  return Lane(c0);
}
template <class Lane, class T, class... More>
SVD_HD Lane polynomial(Lane x, T c0, More... more) {
  return fma(x, polynomial(x, more...), Lane(c0));
}

// An unevaluated sum, |low| far below |high|.
template <class Lane>
struct LogarithmSum {
  Lane high, low;
};

// A positive number as (1 + f + f_low) 2^k, 1 + f in [1/sqrt(2), sqrt(2)).
template <class Lane>
struct ReducedArgument {
  Lane k, f, f_low;
};

// 1 + x, x >= 0 finite. Nothing is lost where x >= u / 2.
template <class Lane>
SVD_HD ReducedArgument<Lane> reduce_1p(Lane x) {
  using T = typename Lane::Scalar;
  const Lane one(1), quarter(T(0.25));
  const Lane u = one + x;
  const Lane x_part = u - one;
  const Lane lost = (one - (u - x_part)) + (x - x_part);
  const Lane k = exponent(u * Lane(T(0.70710678118654752))) + one;
  const Lane scale = pow2(Lane(2) - k);  // a quarter is factored out, so that k may be the largest exponent
  const Lane head = (u * quarter) * scale - one, tail = (lost * quarter) * scale;
  const Lane f = head + tail;
  return {k, f, tail - (f - head)};
}

// ln(1 + f + f_low)
template <class Lane>
SVD_HD LogarithmSum<Lane> log_of_reduced(Lane f, Lane f_low) {
  using T = typename Lane::Scalar;
  const Lane half_f = Lane(T(0.5)) * f;
  const Lane square = half_f * f;  // f^2 / 2
  const Lane square_low = fma(half_f, f, -square);
  const Lane s = f * reciprocal(Lane(2) + f);
  const Lane z = s * s;
  Lane p;
  if constexpr (sizeof(T) == 4) {
    p = polynomial(z, 0x1.55557ap-1f, 0x1.995eb4p-2f, 0x1.31e3b2p-2f);
  } else {
    p = polynomial(z, 0x1.5555555555592p-1, 0x1.999999997fd37p-2, 0x1.24924941f8dd5p-2, 0x1.c71c5202a6d82p-3,
                   0x1.7466405e758bcp-3, 0x1.39a192f3e055cp-3, 0x1.2f07082c2c062p-3);
  }
  const Lane high = f - square;
  const Lane low = ((f - high) - square) - square_low;
  return {high, low + fma(s, fma(z, p, square), fnma(f_low, f, f_low))};
}

// k ln 2 + l
template <class Lane>
SVD_HD Lane natural(Lane k, const LogarithmSum<Lane>& l) {
  using T = typename Lane::Scalar;
  // ln 2 with as many zeros at its end as k has bits; the rest of it.
  constexpr T kHigh = sizeof(T) == 4 ? T(0x1.62e4p-1) : T(0x1.62e42fefa38p-1);
  constexpr T kLow = sizeof(T) == 4 ? T(0x1.7f7d1cp-20) : T(0x1.ef35793c7673p-45);
  const Lane head = k * Lane(kHigh);
  const Lane sum = head + l.high;
  return sum + ((l.high - (sum - head)) + fma(k, Lane(kLow), l.low));
}

// log2(e), rounded, and the rest of it.
template <class T>
SVD_HD constexpr T log2_e() {
  return sizeof(T) == 4 ? T(0x1.715476p+0) : T(0x1.71547652b82fep+0);
}
template <class T>
SVD_HD constexpr T log2_e_low() {
  return sizeof(T) == 4 ? T(0x1.4ae0cp-26) : T(0x1.777d0ffda0d24p-56);
}

// k + l log2(e)
template <class Lane>
SVD_HD Lane binary(Lane k, const LogarithmSum<Lane>& l) {
  using T = typename Lane::Scalar;
  const Lane factor(log2_e<T>());
  const Lane high = l.high * factor;
  const Lane low = fma(l.high, factor, -high) + fma(l.low, factor, l.high * Lane(log2_e_low<T>()));
  const Lane sum = k + high;
  return sum + ((high - (sum - k)) + low);
}

// Where ln(1 + x) is neither x to the last bit nor infinite nor NaN.
template <class Lane>
SVD_HD typename Lane::Mask needs_logarithm(Lane x) {
  using F = FloatTraits<typename Lane::Scalar>;
  return (x >= Lane(F::kUnitRoundoff)) & (x <= Lane(F::kLargest));
}

template <class Lane>
SVD_HD Lane log1p(Lane x) {
  const ReducedArgument<Lane> r = reduce_1p(x);
  return select(needs_logarithm(x), natural(r.k, log_of_reduced(r.f, r.f_low)), x);
}

template <class Lane>
SVD_HD Lane log2_1p(Lane x) {
  const ReducedArgument<Lane> r = reduce_1p(x);
  return select(needs_logarithm(x), binary(r.k, log_of_reduced(r.f, r.f_low)),
                x * Lane(log2_e<typename Lane::Scalar>()));
}

// Exponents up to which numbers of moderate size can be multiplied by 2^e and 2^-e.
template <class T>
SVD_HD constexpr T moderate_exponent() {
  return sizeof(T) == 4 ? T(100) : T(900);
}

// x 2^e, zero below 2^-moderate_exponent(); e <= moderate_exponent().
template <class Lane>
SVD_HD Lane times_pow2_or_zero(Lane x, Lane e) {
  const Lane least(-moderate_exponent<typename Lane::Scalar>());
  return select(e >= least, x * pow2(larger(e, least)), Lane(0));
}

// log2(1 + a 2^e) for integral e and a = 0, or a >= 2^-40 (f32; f64: 2^-800) where e > moderate_exponent(); a infinite
// or NaN is the answer. Above moderate_exponent() the 1 is nothing: what is beyond is taken out of the logarithm. An
// a 2^e below 2^-moderate_exponent() is zero.
template <class Lane>
SVD_HD Lane log2_1p_scaled(Lane a, Lane e) {
  const Lane most(moderate_exponent<typename Lane::Scalar>());
  const Lane beyond = larger(e - most, Lane(0));
  return log2_1p(times_pow2_or_zero(a, e - beyond)) + select(a > Lane(0), beyond, Lane(0));
}

template <class Lane>
SVD_HD Lane log2(Lane x) {
  using T = typename Lane::Scalar;
  const Lane one(1);
  const Lane k = exponent(x * Lane(T(0.70710678118654752))) + one;
  return binary(k, log_of_reduced(x * pow2(-k) - one, Lane(0)));
}

// 2^y = 2^n (1 + r q(r)), n the nearest integer of y.
template <class Lane>
SVD_HD Lane exp2(Lane y) {
  using T = typename Lane::Scalar;
  const Lane to_integer(sizeof(T) == 4 ? T(0x1.8p23) : T(0x1.8p52));  // where neighbouring numbers are integers
  const Lane n = (y + to_integer) - to_integer;
  const Lane r = y - n;
  Lane q;
  if constexpr (sizeof(T) == 4) {
    q = polynomial(r, 0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6aecep-5f, 0x1.3b29a2p-7f, 0x1.5f4804p-10f, 0x1.4495f8p-13f);
  } else {
    q = polynomial(r, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c5a5p-3, 0x1.c6b08d704a0d7p-5, 0x1.3b2ab6fb9ff53p-7,
                   0x1.5d87fe78a0e1bp-10, 0x1.4309130f2ff0fp-13, 0x1.ffcbfc7c4e1ap-17, 0x1.62bfc6cbc9bc4p-20,
                   0x1.b524cdda33ac1p-24, 0x1.e61ca9d7ca51p-28, 0x1.ea1861642e161p-32);
  }
  return fma(r, q, Lane(1)) * pow2(n);
}

SVD_KERNEL_END

#endif
