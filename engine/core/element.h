// Elements: what a matrix holds in one lane. Real matrices use the lane itself and never pay for complex ones.
//
//   RealElement<Lane>      one component
//   ComplexElement<Lane>   two, as stored: real part first
//
// Element operations are the few that the algorithms need; x^H is the conjugate.
#if defined(SVDSERVE_ENGINE_CORE_ELEMENT_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_ELEMENT_H_
#undef SVDSERVE_ENGINE_CORE_ELEMENT_H_
#else
#define SVDSERVE_ENGINE_CORE_ELEMENT_H_
#endif

#include "engine/core/lane.h"

SVD_KERNEL_BEGIN

template <class L>
struct RealElement {
  using Lane = L;
  using Scalar = typename L::Scalar;
  static constexpr int kComponents = 1;
  static constexpr bool kComplex = false;
  L re;
};

template <class L>
struct ComplexElement {
  using Lane = L;
  using Scalar = typename L::Scalar;
  static constexpr int kComponents = 2;
  static constexpr bool kComplex = true;
  L re, im;
};

// p points at the first lane's component; the components of an element are kLanes apart.
template <class E>
SVD_HD E load_element(const typename E::Scalar* p) {
  if constexpr (E::kComplex) {
    return {E::Lane::load(p), E::Lane::load(p + E::Lane::kLanes)};
  } else {
    return {E::Lane::load(p)};
  }
}
template <class E>
SVD_HD void store_element(const E& x, typename E::Scalar* p) {
  x.re.store(p);
  if constexpr (E::kComplex) x.im.store(p + E::Lane::kLanes);
}

template <class E>
SVD_HD E zero_element() {
  using Lane = typename E::Lane;
  if constexpr (E::kComplex) {
    return {Lane(0), Lane(0)};
  } else {
    return {Lane(0)};
  }
}

// sum + |x|^2
template <class E>
SVD_HD typename E::Lane add_square(typename E::Lane sum, const E& x) {
  sum = fma(x.re, x.re, sum);
  if constexpr (E::kComplex) sum = fma(x.im, x.im, sum);
  return sum;
}

// sum + x^H y
template <class E>
SVD_HD E add_product(E sum, const E& x, const E& y) {
  sum.re = fma(x.re, y.re, sum.re);
  if constexpr (E::kComplex) {
    sum.re = fma(x.im, y.im, sum.re);
    sum.im = fma(x.re, y.im, sum.im);
    sum.im = fnma(x.im, y.re, sum.im);
  }
  return sum;
}

// sum + Re(conj(x) y)
template <class E>
SVD_HD typename E::Lane add_real_product(typename E::Lane sum, const E& x, const E& y) {
  sum = fma(x.re, y.re, sum);
  if constexpr (E::kComplex) sum = fma(x.im, y.im, sum);
  return sum;
}

// y - x s
template <class E>
SVD_HD E subtract_product(E y, const E& x, const E& s) {
  y.re = fnma(x.re, s.re, y.re);
  if constexpr (E::kComplex) {
    y.re = fma(x.im, s.im, y.re);
    y.im = fnma(x.re, s.im, y.im);
    y.im = fnma(x.im, s.re, y.im);
  }
  return y;
}

template <class E>
SVD_HD E conj(E x) {
  if constexpr (E::kComplex) x.im = -x.im;
  return x;
}

template <class E>
SVD_HD E operator+(E x, const E& y) {
  x.re = x.re + y.re;
  if constexpr (E::kComplex) x.im = x.im + y.im;
  return x;
}

template <class E>
SVD_HD E operator-(E x, const E& y) {
  x.re = x.re - y.re;
  if constexpr (E::kComplex) x.im = x.im - y.im;
  return x;
}

// x * r for a real r
template <class E>
SVD_HD E scaled(E x, typename E::Lane r) {
  x.re = x.re * r;
  if constexpr (E::kComplex) x.im = x.im * r;
  return x;
}

template <class E>
SVD_HD E select_element(typename E::Lane::Mask m, const E& yes, const E& no) {
  E x;
  x.re = select(m, yes.re, no.re);
  if constexpr (E::kComplex) x.im = select(m, yes.im, no.im);
  return x;
}

// The largest of |re|, |im|, which is within sqrt(2) of |x|, and of big >= 0, all finite.
template <class E>
SVD_HD typename E::Lane raise_to_magnitude(typename E::Lane big, const E& x) {
  big = at_least(abs(x.re), big);
  if constexpr (E::kComplex) big = at_least(abs(x.im), big);
  return big;
}

// The same of any numbers: infinite or NaN where one of them is.
template <class E>
SVD_HD typename E::Lane raise_to_any_magnitude(typename E::Lane big, const E& x) {
  big = at_least_magnitude(x.re, big);
  if constexpr (E::kComplex) big = at_least_magnitude(x.im, big);
  return big;
}

SVD_KERNEL_END

#endif
