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
// Cost: 16 k^2 flops for the sums of a step's pairs, 28 k^2 for A, 14 k^2 for E; five square roots and six
// divisions a pair; two phases.
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

// T = [pp, pq; qp, qq] of a pair. Its inverse is [qq, -pq; -qp, pp]. Aligned for a GPU's loads of 16 bytes.
template <class Lane>
struct alignas(Lane::kLanes == 1 ? 16 : alignof(Lane)) PairTransform {
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
  using F = FloatTraits<typename Lane::Scalar>;
  const Lane zero(0), one(1), u(F::kUnitRoundoff);
  const C c = subtract_product(add_product(sums.c, d, pq), d, conj(qp));
  // Scaled to about one, for the square.
  const Lane e = binary_exponent(magnitude(c));
  const C lifted = scaled(c, make_pow2(-e));
  const Lane square = square_of(lifted);
  const auto some = square > zero;
  const Lane modulus = sqrt_in_range(select(some, square, one));
  const C w = scaled(lifted, reciprocal(modulus));
  const C xi = subtract_product(product(conj(w), pq), w, qp);
  const Lane inside = square_of(d) + square_of(xi);
  const Lane whole = at_least(fma(Lane(2), inside, sums.g) + Lane(4) * least, Lane(F::kReciprocalSmallest));
  const Lane size = (modulus * make_pow2(e)) * reciprocal(whole);
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
  const Lane divisor = select(usable, select(limited, sqrt_in_range(select(limited, b2 * m2, one)), m2), one);
  // Divisions: a product with a reciprocal would leave one 2 x 2 matrix in forty to another sweep.
  const C over = product(b_qp, conj(m));
  const C quotient{over.re / divisor, over.im / divisor};
  const C t{select(usable, quotient.re, one), select(usable, quotient.im, zero)};
  const auto turn = active & (square_of(given_qp) > least);
  return {select(turn, t.re, zero), select(turn, t.im, zero)};
}

// All that T of a pair depends on.
template <class Lane>
struct PairNumbers {
  OutsideSums<Lane> sums;
  ComplexElement<Lane> pq, qp, d;
};
template <bool kShears, class A, class Size>
SVD_HD PairNumbers<typename A::Element::Lane> pair_numbers(A a, Size k, PivotPair pair) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const int p = pair.p, q = pair.q;
  const C zero{Lane(0), Lane(0)};
  PairNumbers<Lane> x{{zero, Lane(0)}, a(p, q), a(q, p), a(q, q) - a(p, p)};
  if constexpr (kShears) x.sums = outside_sums(a, k, p, q);
  return x;
}

// T of a pair; the identity in the lanes that are not active. kShears: with z, else z = 0.
template <bool kShears, class Lane>
SVD_HD PairTransform<Lane> transform_of(const PairNumbers<Lane>& x, Lane least, typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  const Lane zero(0), one(1);
  C z{zero, zero};
  if constexpr (kShears) z = shear_of(x.sums, x.pq, x.qp, x.d, least, active);
  const C t = rotation_of(x.pq, x.qp, x.d, z, least, active);
  const C zt = product(z, t);
  const Lane r = reciprocal(sqrt_in_range((one - square_of(z)) * (one + square_of(t))));
  return {scaled(C{one + zt.re, zt.im}, r), scaled(z - conj(t), r), scaled(conj(z) + t, r),
          scaled(C{one - zt.re, zt.im}, r)};
}

// The same of lines p < q; the identity where q = k is missing.
template <bool kShears, class A, class Lane, class Size>
SVD_HD PairTransform<Lane> pair_transform(A a, Size k, PivotPair pair, Lane least, typename Lane::Mask active) {
  const ComplexElement<Lane> zero{Lane(0), Lane(0)}, one{Lane(1), Lane(0)};
  if (pair.q >= k) return {one, zero, zero, one};
  return transform_of<kShears>(pair_numbers<kShears>(a, k, pair), least, active);
}

// The transform of lines p and q for lines q and p.
template <class Lane>
SVD_HD PairTransform<Lane> exchanged(const PairTransform<Lane>& t) {
  return {t.qq, t.qp, t.pq, t.pp};
}

// (x_p, x_q) := (x_p, x_q) T. The order of the terms does not depend on which line is p.
template <class Lane>
SVD_HD void transform_columns(ComplexElement<Lane>& x_p, ComplexElement<Lane>& x_q, const PairTransform<Lane>& t) {
  const ComplexElement<Lane> old = x_p;
  x_p = plus_product(product(x_q, t.qp), old, t.pp);
  x_q = plus_product(product(old, t.pq), x_q, t.qq);
}
// (x_p, x_q)^T := T^-1 (x_p, x_q)^T
template <class Lane>
SVD_HD void transform_rows(ComplexElement<Lane>& x_p, ComplexElement<Lane>& x_q, const PairTransform<Lane>& t) {
  const ComplexElement<Lane> old = x_p;
  x_p = subtract_product(product(t.qq, old), t.pq, x_q);
  x_q = subtract_product(product(t.pp, x_q), t.qp, old);
}

// The tile of rows r and columns c by T_rows^-1 where kRows, and by T_columns. A line k is missing.
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

// A phase over tiles: calls f(column, first, stride) that have the tiles (first, column), (first + stride, column), ..
// A team's function is found beside its class.
template <class Team, class F>
SVD_HD void deal_tiles(const Team& team, int columns, F f) {
  team.for_each(0, columns, [&](int column) SVD_LAMBDA { f(column, 0, 1); });
}

// Rows and columns x and y of a, and columns x and y of e, change places.
template <class A, class B, class Size>
SVD_HD void swap_lines(A a, B e, Size k, int x, int y) {
  using C = typename A::Element;
  const auto swap = [](C& p, C& q) SVD_LAMBDA {
    const C old = p;
    p = q;
    q = old;
  };
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    swap(a(i, x), a(i, y));
    if constexpr (kIsWanted<B>) swap(e(i, x), e(i, y));
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) swap(a(x, j), a(y, j));
}

// Matrices of k = 3 and 4 lie in the registers of a GPU thread. Their lines are swapped, so that the pairs of every
// step are (0, 1) and (2, 3), and all steps have one code. Three steps do not fit the instruction cache. Threads then
// wait for instructions three quarters of their time, and 4 x 4 has two thirds of the speed. Sums keep their order.
// The last step leaves the lines in their places.
template <class Size>
inline constexpr bool kSwapsLines = Size::kValue == 3 || Size::kValue == 4;
template <class A, class B, class Size>
SVD_HD void swap_for_step(A a, B e, Size k, int step) {
  if (step == 0) {
    swap_lines(a, e, k, 0, 1);
    swap_lines(a, e, k, 1, 2);
  } else if (step == 1) {
    swap_lines(a, e, k, 0, 2);
  } else {
    swap_lines(a, e, k, 1, 2);
  }
}

// T of (0, 1) and (2, 3). One code for both: 15 % faster in double precision, for the same reason.
template <bool kShears, class A, class Lane, class Size>
SVD_HD void two_transforms(A a, Size k, Lane least, typename Lane::Mask active, PairTransform<Lane>* transforms) {
  if constexpr (Size::kValue == 3) {
    for (int i = 0; i < 2; ++i) transforms[i] = pair_transform<kShears>(a, k, {2 * i, 2 * i + 1}, least, active);
    return;
  }
  const PairNumbers<Lane> first = pair_numbers<kShears>(a, k, {0, 1}), second = pair_numbers<kShears>(a, k, {2, 3});
#if defined(__CUDACC__)
#pragma unroll 1
#endif
  for (int i = 0; i < 2; ++i) {
    const auto is_first = Lane::mask(i == 0);
    const auto pick = [&](const auto& x, const auto& y) SVD_LAMBDA { return select_element(is_first, x, y); };
    const Lane g = select(is_first, first.sums.g, second.sums.g);
    const PairNumbers<Lane> x{{pick(first.sums.c, second.sums.c), g},
                              pick(first.pq, second.pq),
                              pick(first.qp, second.qp),
                              pick(first.d, second.d)};
    const PairTransform<Lane> t = transform_of<kShears>(x, least, active);
    if (i == 0) {
      transforms[0] = t;
    } else {
      transforms[1] = t;
    }
  }
}

// One step. e: k x k, or NoMatrix. transforms: round_robin_pairs(k) of them, which the team shares.
template <bool kShears, class Team, class A, class B, class Lane, class Size>
SVD_HD void shear_step(const Team& team, A a, B e, Size k, int step, Lane least, typename Lane::Mask active,
                       PairTransform<Lane>* transforms) {
  const int pairs = round_robin_pairs(k);
  const auto pair = [&](int i) SVD_LAMBDA {
    return kSwapsLines<Size> ? PivotPair{2 * i, 2 * i + 1} : round_robin_seats(k, step, i);
  };
  if constexpr (kSwapsLines<Size>) {
    swap_for_step(a, e, k, step);
    two_transforms<kShears>(a, k, least, active, transforms);
  } else {
    team.for_each(0, pairs, [&](int i) SVD_LAMBDA {
      const PivotPair seats = pair(i);
      const PairTransform<Lane> t = pair_transform<kShears>(a, k, in_order(seats), least, active);
      transforms[i] = seats.p < seats.q ? t : exchanged(t);
    });
  }
  // The transform of the columns stays in registers.
  deal_tiles(team, pairs, [&](int j, int first, int stride) SVD_LAMBDA {
    const PairTransform<Lane> columns = transforms[j];
    const PivotPair c = pair(j);
    SVD_UNROLL_DEVICE for (int i = first; i < pairs; i += stride) {
      transform_tile<true>(a, k, pair(i), c, transforms[i], columns);
    }
    if constexpr (kIsWanted<B>) {
      SVD_UNROLL_DEVICE for (int i = first; i < pairs; i += stride) {
        transform_tile<false>(e, k, PivotPair{2 * i, 2 * i + 1}, c, columns, columns);
      }
    }
  });
}

SVD_KERNEL_END

#endif
