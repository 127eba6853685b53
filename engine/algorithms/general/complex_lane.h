// Complex arithmetic of one matrix a lane, for numbers whose squares do not overflow. The matrices are scaled to a
// largest component of about one.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_LANE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_LANE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_LANE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_LANE_H_
#endif

#include "engine/core/scaling.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// x y
template <class Lane>
SVD_HD ComplexElement<Lane> product(const ComplexElement<Lane>& x, const ComplexElement<Lane>& y) {
  return {fnma(x.im, y.im, x.re * y.re), fma(x.re, y.im, x.im * y.re)};
}

// |re| + |im|, within sqrt(2) of |x|.
template <class E>
SVD_HD typename E::Lane magnitude(const E& x) {
  if constexpr (E::kComplex) {
    return abs(x.re) + abs(x.im);
  } else {
    return abs(x.re);
  }
}

template <class Lane>
SVD_HD Lane square_of(const ComplexElement<Lane>& x) {
  return fma(x.im, x.im, x.re * x.re);
}

// x / y; zero where |y|^2 is below the range of reciprocal().
template <class Lane>
SVD_HD ComplexElement<Lane> quotient(const ComplexElement<Lane>& x, const ComplexElement<Lane>& y) {
  const Lane square = square_of(y), zero(0);
  const auto usable = square >= Lane(FloatTraits<typename Lane::Scalar>::kReciprocalSmallest);
  const Lane inverse = reciprocal(select(usable, square, Lane(1)));
  const Lane re = fma(x.re, y.re, x.im * y.im), im = fnma(x.re, y.im, x.im * y.re);
  return {select(usable, re * inverse, zero), select(usable, im * inverse, zero)};
}

// The square root with a real part that is not negative. |re| is halved and added, so that nothing cancels. It is within
// a factor of sqrt(2) where |x|^2 is below the range of sqrt_in_range().
template <class Lane>
SVD_HD ComplexElement<Lane> square_root(const ComplexElement<Lane>& x) {
  using F = FloatTraits<typename Lane::Scalar>;
  const Lane zero(0), square = square_of(x);
  const auto wide = square >= Lane(F::kNegligibleSquare);
  const Lane modulus = select(wide, sqrt_in_range(select(wide, square, Lane(1))), larger(abs(x.re), abs(x.im)));
  const Lane half = (modulus + abs(x.re)) * Lane(0.5f);
  const auto nonzero = half >= Lane(F::kNegligibleSquare);
  const Lane t = select(nonzero, sqrt_in_range(select(nonzero, half, Lane(1))), zero);
  const Lane other = select(nonzero, x.im * reciprocal(select(nonzero, t + t, Lane(1))), zero);
  const auto right = x.re >= zero;
  return {select(right, t, abs(other)), select(right, other, select(x.im < zero, -t, t))};
}

// x of a real or complex matrix as a complex number.
template <class E>
SVD_HD ComplexElement<typename E::Lane> widened(const E& x) {
  if constexpr (E::kComplex) {
    return x;
  } else {
    return {x.re, typename E::Lane(0)};
  }
}

SVD_KERNEL_END

#endif
