// Householder reflectors H = I - g u u^H that take a vector x to (beta, 0, .., 0)^T with |beta| = |x|_2.
//
//   u = x + phase(x_0) |x| e_0,   phase(z) = z / |z| (one for z = 0),   g = 1 / (|x| (|x| + |x_0|)) = 2 / (u^H u)
//
// u is kept unnormalized, which saves the division by u_0, and H is Hermitian, so beta = -phase(x_0) |x|: complex for
// complex x. The values of a bidiagonal matrix depend on the moduli of its entries alone, so |x|^2 is reported, too.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 5.1; first used here after Capozzoli et al.,
// Electronics 2025, 14(16), 3217, section 2.3.1, eq. (2) and (3).
//
// A vector whose |x|^2 is negligible gets g = 0, the identity (FloatTraits::kNegligibleSquare; the matrix is scaled to
// a largest element of about one). The elements that stay are below any error bound, and a norm of denormal squares
// would not make H orthogonal.
//
// Cost: one square root and one division (complex: two of each). One matrix a lane; no branch on data.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_TALL_HOUSEHOLDER_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_TALL_HOUSEHOLDER_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_TALL_HOUSEHOLDER_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_TALL_HOUSEHOLDER_H_
#endif

#include "engine/core/reduce.h"

SVD_KERNEL_BEGIN

template <class E>
struct Reflector {
  typename E::Lane g;      // 2 / (u^H u), or zero for the identity
  typename E::Lane norm2;  // |x|^2
  E u0;                    // the first element of u; the others are those of x
  E beta;                  // what H makes of x_0
};

// The reflector of x with |x|^2 = norm2, from its first element.
template <class E>
SVD_HD Reflector<E> reflector_of(typename E::Lane norm2, const E& x0) {
  using Lane = typename E::Lane;
  using T = typename E::Scalar;
  constexpr T kPhaseMatters = FloatTraits<T>::kUnitRoundoff * FloatTraits<T>::kUnitRoundoff / 16;
  const Lane one(1), zero(0), negligible(FloatTraits<T>::kNegligibleSquare);
  Reflector<E> h;
  h.norm2 = norm2;
  const auto keep = h.norm2 >= negligible;
  const Lane square = at_least(h.norm2, negligible);
  const Lane norm = sqrt_in_range(square);
  if constexpr (E::kComplex) {
    // The phase must be right to u even where |x_0|^2 would be denormal, or u would not have the length that g counts
    // on. So x_0 is lifted by an exact power of two. Where |x_0| is below u |x| / 4, a phase of one is as good.
    const Lane lift(FloatTraits<T>::kLift);
    const Lane lifted2 = add_square(zero, scaled(x0, lift));
    const auto has_phase = lifted2 > (square * Lane(kPhaseMatters)) * (lift * lift);
    const Lane lifted = sqrt_in_range(select(has_phase, lifted2, one));
    const Lane modulus = select(has_phase, lifted * Lane(1 / FloatTraits<T>::kLift), zero);
    const Lane ratio = norm * lift * reciprocal(lifted);  // u_0 = x_0 (1 + |x| / |x_0|)
    h.u0.re = select(has_phase, fma(x0.re, ratio, x0.re), x0.re + norm);
    h.u0.im = select(has_phase, fma(x0.im, ratio, x0.im), x0.im);
    h.beta.re = select(keep, -select(has_phase, x0.re * ratio, norm), x0.re);
    h.beta.im = select(keep, -select(has_phase, x0.im * ratio, zero), x0.im);
    h.g = select(keep, reciprocal(norm * (norm + modulus)), zero);
  } else {
    h.u0.re = x0.re + copysign(norm, x0.re);
    h.beta.re = select(keep, -copysign(norm, x0.re), x0.re);
    h.g = select(keep, reciprocal(norm * (norm + abs(x0.re))), zero);
  }
  return h;
}

// x(i), i = 0 .. n - 1, returns an element.
template <class E, class Get>
SVD_HD Reflector<E> make_reflector(int n, Get x) {
  return reflector_of<E>(sum_of_squares<E>(n, x), x(0));
}

// y(first .., c) := H y(first .., c), with the rows from `first` on of a's column j for u.
template <class A, class Y, class Rows>
SVD_HD void reflect_rows(A a, int j, int first, Rows rows, typename A::Element::Lane g, Y y, int c) {
  using E = typename A::Element;
  const auto u = [&](int i) SVD_LAMBDA { return a(first + i, j); };
  const auto x = [&](int i) SVD_LAMBDA { return y(first + i, c); };
  const E w = scaled(inner_product<E>(rows - first, u, x), g);
  SVD_UNROLL for (int i = first; i < rows; ++i) y(i, c) = subtract_product(y(i, c), a(i, j), w);
}

// A step of a reduction, in two parts: H of a(j .., j), and columns j + 1 .. k - 1 of a := H a. u_0 is left on the
// diagonal.
template <class A, class Rows>
SVD_HD Reflector<typename A::Element> column_reflector(A a, Rows rows, int j) {
  return make_reflector<typename A::Element>(rows - j, [&](int i) SVD_LAMBDA { return a(j + i, j); });
}
template <class Team, class A, class Rows, class Size>
SVD_HD void reflect_columns(const Team& team, A a, Rows rows, Size k, int j, const Reflector<typename A::Element>& h) {
  team.once([&]() SVD_LAMBDA { a(j, j) = h.u0; });
  team.for_each(j + 1, k, [&](int c) SVD_LAMBDA { reflect_rows(a, j, j, rows, h.g, a, c); });
}

SVD_KERNEL_END

#endif
