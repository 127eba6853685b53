// Shifted QR iteration of a complex Hessenberg matrix: H = Q T Q^H, T upper triangular; Z := Z Q. A team has a matrix in
// each lane.
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

#include "engine/algorithms/general/line_phases.h"
#include "engine/algorithms/general/schur_window.h"

SVD_KERNEL_BEGIN

// [c, s; -conj(s), c] takes (x, y)^T to (r, 0)^T.
template <class Lane>
struct ComplexRotation {
  Lane c;
  ComplexElement<Lane> s, r;
};

// Shorter vectors are not rotated. The largest component of the matrix is about one, so they are far below u^2.
template <class T>
inline constexpr T kLeastRotated = sizeof(T) == sizeof(float) ? T(0x1p-60) : T(0x1p-500);

//   a = |x|^2, b = |y|^2, w = 1 / sqrt(a (a + b)):   c = a w, s = x conj(y) w;   for x = 0:   c = 0, s = conj(y) / |y|
// The identity outside `act`. Scaled to about one first: a bulge may be a product of rounding errors.
template <class Lane>
SVD_HD ComplexRotation<Lane> make_rotation(const ComplexElement<Lane>& given_x, const ComplexElement<Lane>& given_y,
                                           typename Lane::Mask act) {
  using C = ComplexElement<Lane>;
  using F = FloatTraits<typename Lane::Scalar>;
  const Lane zero(0), one(1);
  const Lane size =
      at_least(at_least(magnitude(given_x), magnitude(given_y)), Lane(kLeastRotated<typename Lane::Scalar>));
  const Lane up = pow2(-exponent(size));
  const C x = scaled(given_x, up), y = scaled(given_y, up);
  const Lane x2 = square_of(x), y2 = square_of(y);
  // a + b is at least 1/2, but for shorter vectors.
  const auto turn = act & (x2 + y2 >= Lane(0.25f)) & (y2 >= Lane(F::kNegligibleSquare));
  const auto from_x = x2 >= Lane(4 * F::kNegligibleSquare);
  const Lane w = reciprocal(sqrt_in_range(select(turn, select(from_x, x2 * (x2 + y2), y2), one)));
  const C direction = select_element(from_x, product(x, conj(y)), conj(y));
  ComplexRotation<Lane> g;
  g.c = select(turn, select(from_x, x2 * w, zero), one);
  g.s = {select(turn, direction.re * w, zero), select(turn, direction.im * w, zero)};
  const C r = subtract_product(scaled(given_x, g.c), given_y, C{-g.s.re, -g.s.im});
  g.r = {select(turn, r.re, given_x.re), select(turn, r.im, given_x.im)};
  return g;
}

// (p, q)^T := G (p, q)^T
template <class Lane>
SVD_HD void rotate_rows(ComplexElement<Lane>& p, ComplexElement<Lane>& q, const ComplexRotation<Lane>& g) {
  const ComplexElement<Lane> x = p, y = q;
  p = subtract_product(scaled(x, g.c), y, {-g.s.re, -g.s.im});
  q = subtract_product(scaled(y, g.c), x, conj(g.s));
}
// (p, q) := (p, q) G^H
template <class Lane>
SVD_HD void rotate_columns(ComplexElement<Lane>& p, ComplexElement<Lane>& q, const ComplexRotation<Lane>& g) {
  const ComplexElement<Lane> x = p, y = q;
  p = subtract_product(scaled(x, g.c), y, {-g.s.re, g.s.im});
  q = subtract_product(scaled(y, g.c), x, g.s);
}

// The shift of the window that ends in row hi.
template <class A, class Lane, class Size>
SVD_HD ComplexElement<Lane> shift_of(A h, Size k, const Window<Lane>& window) {
  using C = ComplexElement<Lane>;
  const Lane zero(0);
  const auto element = [&](int row, int column) SVD_LAMBDA {
    return picked<C>(k, window.hi, [&](int i) SVD_LAMBDA { return C(h(i - row, i - column)); });
  };
  const C a = element(1, 1), b = element(1, 0), c = element(0, 1), d = element(0, 0);
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

// G, of step j, on rows and columns j, j + 1, and on columns of z. A later step does not read what the columns' phase
// writes before column j.
template <class Team, class A, class Z, class Lane, class Size>
SVD_HD void rotate_step(const Team& team, A h, Z z, Size k, int j, const ComplexRotation<Lane>& g,
                        typename Lane::Mask first) {
  using C = ComplexElement<Lane>;
  const Lane zero(0);
  each_line(team, j, k, [&](int c) SVD_LAMBDA { rotate_rows(h(j, c), h(j + 1, c), g); });
  team.sync();
  each_line(team, 0, j + 3 < k ? j + 3 : static_cast<int>(k),
            [&](int r) SVD_LAMBDA { rotate_columns(h(r, j), h(r, j + 1), g); });
  if constexpr (kIsWanted<Z>) {
    each_line(team, 0, k, [&](int r) SVD_LAMBDA { rotate_columns(z(r, j), z(r, j + 1), g); });
  }
  if (j > 0) {
    one(team, [&]() SVD_LAMBDA {
      h(j, j - 1) = select_element(first, C(h(j, j - 1)), g.r);
      h(j + 1, j - 1) = {zero, zero};
    });
  }
  team.sync();
}

// One sweep over the windows of the lanes in `active`.
template <class Team, class A, class Z, class Lane, class Size>
SVD_HD void chase_single_bulge(const Team& team, A h, Z z, Size k, const Window<Lane>& window,
                               const ComplexElement<Lane>& mu, typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  SVD_UNROLL_DEVICE for (int j = 0; j + 1 < k; ++j) {
    const auto act = active & (window.lo <= index_lane<Lane>(j)) & (index_lane<Lane>(j) < window.hi);
    if (!any_of(act)) continue;
    const auto first = window.lo == index_lane<Lane>(j);
    const int before = j > 0 ? j - 1 : 0;
    C x = h(j, before), y = h(j + 1, before);
    if (any_of(act & first)) {
      x = select_element(first, h(j, j) - mu, x);
      y = select_element(first, C(h(j + 1, j)), y);
      team.sync();  // the rotation of rows writes what was read
    }
    rotate_step(team, h, z, k, j, make_rotation(x, y, act), first);
  }
}

// h becomes T, zero below the diagonal; z: k x k, or NoMatrix. Returns the lanes that have not converged.
template <class Team, class A, class Z, class Size>
SVD_HD typename A::Element::Lane::Mask complex_schur(const Team& team, A h, Z z, Size k) {
  using Lane = typename A::Element::Lane;
  Window<Lane> window{Lane(0), Lane(0), Lane(0)};
  auto active = Lane::mask(k > 1);
  for (int sweep = 0; sweep < most_sweeps(k); ++sweep) {
    deflate(team, h, k);
    window = next_window<2>(h, k, window);
    active = window.hi > Lane(0);
    if (!any_of(active)) return active;
    chase_single_bulge(team, h, z, k, window, shift_of(h, k, window), active);
  }
  return active;
}

SVD_KERNEL_END

#endif
