// Shifted QR iteration of a complex Hessenberg matrix: H = Q T Q^H, T upper triangular; Z := Z Q; one matrix a lane.
//
//   mu: the eigenvalue of the window's last 2x2 block that is nearer to h_{hi,hi};   H - mu I = Q R,   H := Q^H H Q
//
// implicitly: rotations G_j = [c, s; -conj(s), c], c real, of rows and columns j, j + 1, j = lo .. hi - 1, the first of
// which takes (h_{lo,lo} - mu, h_{lo+1,lo})^T to a multiple of e_1. The others chase the bulge. Each lane has a window of
// its own; outside it a rotation is the identity. Nothing depends on the sign of a zero, so a lane's bits do not depend
// on its neighbours.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 7.5. Wilkinson's shift: Parlett, The Symmetric
// Eigenvalue Problem, section 8.9. Complex rotations: Bindel et al., ACM Trans. Math. Softw. 28 (2002) 206-238.
// Cost: about 2 sweeps an eigenvalue; a sweep has k - 1 rotations of 2 k (with Z 3 k) pairs of 20 flops.
// Accuracy: backward stable.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_COMPLEX_QR_H_
#endif

#include "engine/algorithms/general/schur_window.h"

SVD_KERNEL_BEGIN

// [c, s; -conj(s), c] takes (x, y)^T to (r, 0)^T.
template <class Lane>
struct ComplexRotation {
  Lane c;
  ComplexElement<Lane> s, r;
};

// The identity outside `act`. Scaled to about one first: a bulge may be a product of rounding errors.
template <class Lane>
SVD_HD ComplexRotation<Lane> make_rotation(const ComplexElement<Lane>& given_x, const ComplexElement<Lane>& given_y,
                                           typename Lane::Mask act) {
  using C = ComplexElement<Lane>;
  const Lane zero(0), one(1), negligible(FloatTraits<typename Lane::Scalar>::kNegligibleSquare);
  const Pow2<Lane> up = make_pow2(-binary_exponent(at_least(magnitude(given_x), magnitude(given_y))));
  const C x = scaled(given_x, up), y = scaled(given_y, up);
  const Lane x2 = square_of(x), y2 = square_of(y);
  const auto turn = act & (y2 >= negligible), from_x = x2 >= negligible;
  const Lane modulus = sqrt_in_range(select(from_x, x2, one));
  const Lane length = sqrt_in_range(select(turn, select(from_x, x2 + y2, y2), one));
  const Lane inverse = one / length;
  // s = x / |x| conj(y) / r; for x = 0 the phase is one, and c = 0.
  const C phase{select(from_x, x.re / modulus, one), select(from_x, x.im / modulus, zero)};
  const C s = scaled(product(phase, conj(y)), inverse);
  ComplexRotation<Lane> g;
  g.c = select(turn, select(from_x, modulus * inverse, zero), one);
  g.s = {select(turn, s.re, zero), select(turn, s.im, zero)};
  const C r = subtract_product(scaled(given_x, g.c), given_y, C{-g.s.re, -g.s.im});
  g.r = {select(turn, r.re, given_x.re), select(turn, r.im, given_x.im)};
  return g;
}

// (p, q)^T := G (p, q)^T
template <class Lane>
SVD_HD void rotate_rows(ComplexElement<Lane>& p, ComplexElement<Lane>& q, const ComplexRotation<Lane>& g) {
  const ComplexElement<Lane> old = p;
  p = subtract_product(scaled(old, g.c), q, {-g.s.re, -g.s.im});
  q = subtract_product(scaled(q, g.c), old, conj(g.s));
}
// (p, q) := (p, q) G^H
template <class Lane>
SVD_HD void rotate_columns(ComplexElement<Lane>& p, ComplexElement<Lane>& q, const ComplexRotation<Lane>& g) {
  const ComplexElement<Lane> old = p;
  p = subtract_product(scaled(old, g.c), q, {-g.s.re, g.s.im});
  q = subtract_product(scaled(q, g.c), old, g.s);
}

// The shift of the window that ends in row hi.
template <class A, class Lane, class Size>
SVD_HD ComplexElement<Lane> shift_of(A h, Size k, const Window<Lane>& window) {
  using C = ComplexElement<Lane>;
  const Lane zero(0);
  C a{zero, zero}, b = a, c = a, d = a;
  SVD_UNROLL for (int i = 1; i < k; ++i) {
    const auto here = window.hi == index_lane<Lane>(i);
    a = select_element(here, h(i - 1, i - 1), a);
    b = select_element(here, h(i - 1, i), b);
    c = select_element(here, h(i, i - 1), c);
    d = select_element(here, h(i, i), d);
  }
  // Scaled to about one: the square root squares the squares of what may be rounding errors.
  const C difference = a - d;
  const Lane e = binary_exponent(at_least(magnitude(difference), at_least(magnitude(b), magnitude(c))));
  const Lane up = pow2(-e), down = pow2(e);
  const C half = scaled(difference, up * Lane(0.5f)), bc = product(scaled(b, up), scaled(c, up));
  const C root = square_root(product(half, half) + bc);
  const Lane side = fma(half.re, root.re, half.im * root.im);
  const C sum = select_element(side < zero, half - root, half + root);
  const C mu = d - scaled(quotient(bc, sum), down);
  const auto exceptional = window.sweeps == index_lane<Lane>(kExceptionalSweep);
  return select_element(exceptional, C{fma(magnitude(c), Lane(0.75f), d.re), d.im}, mu);
}

// One sweep over the windows of the lanes in `active`.
template <class A, class Z, class Lane, class Size>
SVD_HD void chase_single_bulge(A h, Z z, Size k, const Window<Lane>& window, const ComplexElement<Lane>& mu,
                               typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  const Lane zero(0);
  for (int j = 0; j + 1 < k; ++j) {
    const auto act = active & (window.lo <= index_lane<Lane>(j)) & (index_lane<Lane>(j) < window.hi);
    if (!any_of(act)) continue;
    const auto first = window.lo == index_lane<Lane>(j);
    const int before = j > 0 ? j - 1 : 0;
    const C x = select_element(first, h(j, j) - mu, h(j, before)),
            y = select_element(first, h(j + 1, j), h(j + 1, before));
    const ComplexRotation<Lane> g = make_rotation(x, y, act);
    if (j > 0) {
      h(j, j - 1) = select_element(first, h(j, j - 1), g.r);
      h(j + 1, j - 1) = {zero, zero};
    }
    for (int c = j; c < k; ++c) rotate_rows(h(j, c), h(j + 1, c), g);
    const int last = j + 2 < k ? j + 2 : k - 1;
    for (int r = 0; r <= last; ++r) rotate_columns(h(r, j), h(r, j + 1), g);
    if constexpr (kIsWanted<Z>) {
      SVD_UNROLL for (int r = 0; r < k; ++r) rotate_columns(z(r, j), z(r, j + 1), g);
    }
  }
}

// h becomes T, zero below the diagonal; z: k x k, or NoMatrix. Returns the lanes that have not converged.
template <class A, class Z, class Size>
SVD_HD typename A::Element::Lane::Mask complex_schur(A h, Z z, Size k) {
  using Lane = typename A::Element::Lane;
  Window<Lane> window{Lane(0), Lane(0), Lane(0)};
  auto active = Lane::mask(k > 1);
  for (int sweep = 0; sweep < kSweepsPerEigenvalue * k; ++sweep) {
    deflate(h, k);
    Lane hi(0);
    SVD_UNROLL for (int i = 1; i < k; ++i) hi = select(magnitude(h(i, i - 1)) > Lane(0), index_lane<Lane>(i), hi);
    window.sweeps = next_sweep(window.sweeps, hi == window.hi);
    window.hi = hi;
    active = hi > Lane(0);
    if (!any_of(active)) return active;
    window.lo = first_of_block(h, k, hi);
    chase_single_bulge(h, z, k, window, shift_of(h, k, window), active);
  }
  return active;
}

SVD_KERNEL_END

#endif
