// One step of Jacobi's method for general matrices: A := T^-1 A T, E := E T for all pairs p < q of a step at once, one
// matrix a lane. T = S U on rows and columns p and q, a shear and a rotation:
//
//   S = [1, z; conj(z), 1] / sqrt(1 - |z|^2),   U = [1, -conj(t); t, 1] / sqrt(1 + |t|^2),   det T = 1
//   d = a_qq - a_pp,   c = (A A^H - A^H A)_pq = sum_{j != p, q} (a_pj conj(a_qj) - conj(a_jp) a_jq)
//                                               + conj(d) a_pq - d conj(a_qp)
//   w = c / |c|,   xi = conj(w) a_pq - w a_qp,   g = sum_{j != p, q} |a_pj|^2 + |a_qj|^2 + |a_jp|^2 + |a_jq|^2
//   z = w min(1/2, |c| / (2 (|d|^2 + |xi|^2) + g + floor)),   floor = 4 u^2 |A|_F^2
//   t = b_qp / m for B = S^-1 A S,   m = h +- sqrt(h^2 + b_pq b_qp), the larger, h = (b_pp - b_qq) / 2;   |t| <= 1
//
// The shear makes A more normal and U annihilates b_qp. The sum for c cancels nothing: two clusters need that.
// Without the floor, rounding errors would be sheared at random, and E would become singular. A rotation of
// |b_qp| <= u |A|_F or a shear of |z| <= u is left out.
// Source: Eberlein, J. SIAM 10 (1962) 74-88; Shroff, Numer. Math. 58 (1991) 779-805, whose y and alpha are
// tanh y = -|z|, alpha = arg c - pi/2; merging S and U, c and the floor are ours.
// Cost: 16 k^2 flops for the sums of a step's pairs, 28 k^2 for A, 14 k^2 for E; five square roots and seven divisions
// a pair; two phases.
// Accuracy: T^-1 T = I within a few u; |z| <= 1/2, so that |T| |T^-1| <= 3.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_STEP_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_STEP_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_STEP_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_STEP_H_
#endif

#include "engine/algorithms/general/complex_lane.h"
#include "engine/algorithms/jacobi/pivot_strategy.h"
#include "engine/core/reduce.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// T = [pp, pq; qp, qq] of a pair. Its inverse is [qq, -pq; -qp, pp].
template <class Lane>
struct PairTransform {
  ComplexElement<Lane> pp, pq, qp, qq;
};

// The parts of c and g that come from the other rows and columns.
template <class Lane>
struct OutsideSums {
  ComplexElement<Lane> c;
  Lane g;
  friend SVD_HD OutsideSums operator+(const OutsideSums& x, const OutsideSums& y) { return {x.c + y.c, x.g + y.g}; }
};

// sum + x y
template <class Lane>
SVD_HD ComplexElement<Lane> plus_product(ComplexElement<Lane> sum, const ComplexElement<Lane>& x,
                                         const ComplexElement<Lane>& y) {
  sum.re = fnma(x.im, y.im, fma(x.re, y.re, sum.re));
  sum.im = fma(x.im, y.re, fma(x.re, y.im, sum.im));
  return sum;
}

template <class A, class Size>
SVD_HD OutsideSums<typename A::Element::Lane> outside_sums(A a, Size k, int p, int q) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  using Sums = OutsideSums<Lane>;
  return sum_of(k, Sums{{Lane(0), Lane(0)}, Lane(0)}, [&](Sums s, int j) SVD_LAMBDA {
    if (j == p || j == q) return s;
    const C pj = a(p, j), qj = a(q, j), jp = a(j, p), jq = a(j, q);
    s.c = subtract_product(add_product(s.c, qj, pj), conj(jp), jq);
    s.g = add_square(add_square(add_square(add_square(s.g, pj), qj), jp), jq);
    return s;
  });
}

// z of the pair with the elements [., pq; qp, .] and d; least = u^2 |A|_F^2.
template <class Lane>
SVD_HD ComplexElement<Lane> shear_of(const OutsideSums<Lane>& sums, const ComplexElement<Lane>& pq,
                                     const ComplexElement<Lane>& qp, const ComplexElement<Lane>& d, Lane least,
                                     typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  const Lane zero(0), one(1), u(FloatTraits<typename Lane::Scalar>::kUnitRoundoff);
  const C c = subtract_product(add_product(sums.c, d, pq), d, conj(qp));
  // Scaled to about one, for the square.
  const Lane e = binary_exponent(magnitude(c));
  const C lifted = scaled(c, make_pow2(-e));
  const Lane square = square_of(lifted);
  const auto some = square > zero;
  const Lane modulus = sqrt(select(some, square, one));
  const C w{lifted.re / modulus, lifted.im / modulus};
  const C xi = subtract_product(product(conj(w), pq), w, qp);
  const Lane inside = square_of(d) + square_of(xi);
  const Lane size = (modulus * make_pow2(e)) / (fma(Lane(2), inside, sums.g) + Lane(4) * least);
  const auto shear = active & some & (size > u);
  return scaled(w, select(shear, smaller(size, Lane(0.5f)), zero));
}

// t after the shear by z.
template <class Lane>
SVD_HD ComplexElement<Lane> rotation_of(const ComplexElement<Lane>& pq, const ComplexElement<Lane>& qp,
                                        const ComplexElement<Lane>& d, const ComplexElement<Lane>& z, Lane least,
                                        typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  using T = typename Lane::Scalar;
  constexpr T kU = FloatTraits<T>::kUnitRoundoff;
  const Lane zero(0), one(1);
  // B (1 - |z|^2) without its multiple of the identity.
  const C given_pq = subtract_product(pq, z, plus_product(d, z, qp));
  const C given_qp = plus_product(qp, conj(z), subtract_product(d, conj(z), pq));
  const C turned = subtract_product(product(conj(z), pq), z, qp);
  const C given_h = turned - scaled(d, fma(Lane(0.5f), square_of(z), Lane(0.5f)));
  // Scaled to about one, for the squares.
  const Lane largest = at_least(magnitude(given_h), at_least(magnitude(given_pq), magnitude(given_qp)));
  const Pow2<Lane> lift = make_pow2(-binary_exponent(largest));
  const C b_pq = scaled(given_pq, lift), b_qp = scaled(given_qp, lift), h = scaled(given_h, lift);
  const C root = square_root(plus_product(product(h, h), b_pq, b_qp));
  const auto apart = fma(h.re, root.re, h.im * root.im) < zero;
  const C m = select_element(apart, h - root, h + root);
  const Lane m2 = square_of(m), b2 = square_of(b_qp);
  const auto usable = m2 > Lane(kU * kU);  // else m is zero but for rounding errors, and t = 1
  const auto limited = b2 > m2;
  const Lane divisor = select(usable, select(limited, sqrt(b2 * m2), m2), one);
  const C quotient = product(b_qp, conj(m));
  const C t{select(usable, quotient.re / divisor, one), select(usable, quotient.im / divisor, zero)};
  const auto turn = active & (square_of(given_qp) > least);
  return {select(turn, t.re, zero), select(turn, t.im, zero)};
}

// T of the pair; the identity in the lanes that are not active. kShears: with z, else z = 0.
template <bool kShears, class A, class Lane, class Size>
SVD_HD PairTransform<Lane> pair_transform(A a, Size k, PivotPair pair, Lane least, typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  const Lane zero(0), one(1);
  const int p = pair.p, q = pair.q;
  if (q >= k) return {{one, zero}, {zero, zero}, {zero, zero}, {one, zero}};
  const C pq = a(p, q), qp = a(q, p), d = a(q, q) - a(p, p);
  C z{zero, zero};
  if constexpr (kShears) z = shear_of(outside_sums(a, k, p, q), pq, qp, d, least, active);
  const C t = rotation_of(pq, qp, d, z, least, active);
  const C zt = product(z, t);
  const Lane r = one / sqrt((one - square_of(z)) * (one + square_of(t)));
  return {scaled(C{one + zt.re, zt.im}, r), scaled(z - conj(t), r), scaled(conj(z) + t, r),
          scaled(C{one - zt.re, zt.im}, r)};
}

// (x_p, x_q) := (x_p, x_q) T
template <class Lane>
SVD_HD void transform_columns(ComplexElement<Lane>& x_p, ComplexElement<Lane>& x_q, const PairTransform<Lane>& t) {
  const ComplexElement<Lane> old = x_p;
  x_p = plus_product(product(old, t.pp), x_q, t.qp);
  x_q = plus_product(product(old, t.pq), x_q, t.qq);
}
// (x_p, x_q)^T := T^-1 (x_p, x_q)^T
template <class Lane>
SVD_HD void transform_rows(ComplexElement<Lane>& x_p, ComplexElement<Lane>& x_q, const PairTransform<Lane>& t) {
  const ComplexElement<Lane> old = x_p;
  x_p = subtract_product(product(t.qq, old), t.pq, x_q);
  x_q = subtract_product(product(t.pp, x_q), t.qp, old);
}

// The tile of rows r0, r1 and columns c0, c1 by T_rows^-1 where rows is wanted, and by T_columns. A line k is missing.
template <bool kRows, class A, class Lane, class Size>
SVD_HD void transform_tile(A a, Size k, PivotPair r, PivotPair c, const PairTransform<Lane>& rows,
                           const PairTransform<Lane>& columns) {
  using C = ComplexElement<Lane>;
  const C zero{Lane(0), Lane(0)};
  const bool row = r.q < k, column = c.q < k;
  C pp = a(r.p, c.p);
  C pq = column ? C(a(r.p, c.q)) : zero;
  C qp = row ? C(a(r.q, c.p)) : zero;
  C qq = row && column ? C(a(r.q, c.q)) : zero;
  if constexpr (kRows) {
    transform_rows(pp, qp, rows);
    transform_rows(pq, qq, rows);
  }
  transform_columns(pp, pq, columns);
  transform_columns(qp, qq, columns);
  a(r.p, c.p) = pp;
  if (column) a(r.p, c.q) = pq;
  if (row) a(r.q, c.p) = qp;
  if (row && column) a(r.q, c.q) = qq;
}

// One step. e: k x k, or NoMatrix. transforms: round_robin_pairs(k) of them, which the team shares.
template <bool kShears, class Team, class A, class B, class Lane, class Size>
SVD_HD void shear_step(const Team& team, A a, B e, Size k, int step, Lane least, typename Lane::Mask active,
                       PairTransform<Lane>* transforms) {
  const int pairs = round_robin_pairs(k), tiles = pairs * pairs;
  team.for_each(0, pairs, [&](int i) SVD_LAMBDA {
    transforms[i] = pair_transform<kShears>(a, k, round_robin_pair(k, step, i), least, active);
  });
  team.for_each(0, kIsWanted<B> ? 2 * tiles : tiles, [&](int x) SVD_LAMBDA {
    const int j = x % pairs, i = x / pairs;
    const PivotPair columns = round_robin_pair(k, step, j);
    if (i < pairs) {
      transform_tile<true>(a, k, round_robin_pair(k, step, i), columns, transforms[i], transforms[j]);
    } else if constexpr (kIsWanted<B>) {
      const int row = 2 * (i - pairs);
      transform_tile<false>(e, k, PivotPair{row, row + 1}, columns, transforms[j], transforms[j]);
    }
  });
}

SVD_KERNEL_END

#endif
