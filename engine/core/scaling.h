// Exact scaling by powers of two, one matrix a lane: so that neither overflow nor underflow spoils a finite matrix.
#if defined(SVDSERVE_ENGINE_CORE_SCALING_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_SCALING_H_
#undef SVDSERVE_ENGINE_CORE_SCALING_H_
#else
#define SVDSERVE_ENGINE_CORE_SCALING_H_
#endif

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

// floor(log2(m)) of m >= 0, denormal or not; zero for zero.
template <class Lane>
SVD_HD Lane binary_exponent(Lane m) {
  using F = FloatTraits<typename Lane::Scalar>;
  const auto denormal = m < Lane(F::kSmallestNormal);
  const Lane lifted = select(denormal, m * Lane(F::kLift), m);
  const Lane e = exponent(lifted) - select(denormal, Lane(F::kLiftExponent), Lane(0));
  return select(m > Lane(0), e, Lane(0));
}

// 2^e as two factors, so that every exponent that occurs is in range: x * first * second.
template <class Lane>
struct Pow2 {
  Lane first, second;
};
template <class Lane>
SVD_HD Pow2<Lane> make_pow2(Lane e) {
  using T = typename Lane::Scalar;
  constexpr T kHalf = FloatTraits<T>::kBias - 7;
  const Lane first = at_least(at_most(e, Lane(kHalf)), Lane(-kHalf));
  return {pow2(first), pow2(e - first)};
}
template <class Lane>
SVD_HD Lane operator*(Lane x, const Pow2<Lane>& s) {
  return (x * s.first) * s.second;
}

template <class E>
SVD_HD E scaled(E x, const Pow2<typename E::Lane>& s) {
  x.re = x.re * s;
  if constexpr (E::kComplex) x.im = x.im * s;
  return x;
}

SVD_KERNEL_END

#endif
