// Eigenvalues and eigenvectors of a Schur form T, whose diagonal has the eigenvalues. A team has a matrix in each lane.
//
//   right:  (T - lambda_j I) x = 0,  x_j = 1,  x_i = - (sum_{i<l<=j} t_il x_l) / (t_ii - lambda_j),   V := Z X
//   left:   y^H (T - lambda_j I) = 0, y_j = 1, y_i = - (sum_{j<=l<i} conj(t_li) y_l) / conj(t_ii - lambda_j), W := Z Y
//
// A difference below u max |t| is replaced by that. A column is scaled down where a component becomes large. Blocks of
// order two of a real T are made triangular by a complex rotation first; their eigenvalues are exact conjugates.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., sections 7.6.4 and 7.4.1.
// Cost: k^3 / 6 and k^3 / 2 complex multiplications each.
// Accuracy: |T x - lambda x| <= c k u |T| |x|, whatever the spacing of the eigenvalues.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_VECTORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_VECTORS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_VECTORS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_VECTORS_H_
#endif

#include "engine/algorithms/general/complex_lane.h"
#include "engine/core/reduce.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// The eigenvalues of [a, b; c, d], c != 0; first: the one farther from d where they are real, that with a positive
// imaginary part where they are not.
template <class Lane>
struct BlockEigenvalues {
  ComplexElement<Lane> first, second;
};
template <class Lane>
SVD_HD BlockEigenvalues<Lane> block_eigenvalues(Lane a, Lane b, Lane c, Lane d) {
  const Lane zero(0), half = (a - d) * Lane(0.5f), bc = b * c, square = fma(half, half, bc);
  const auto real = square >= zero;
  const Lane root = sqrt(abs(square)), sum = select(half < zero, half - root, half + root);
  const auto usable = abs(sum) > zero;
  const Lane nearer = d - select(usable, bc / select(usable, sum, Lane(1)), zero), middle = d + half;
  return {{select(real, d + sum, middle), select(real, zero, root)},
          {select(real, nearer, middle), select(real, zero, -root)}};
}

// lambda[j], j < k, of a real T with blocks.
template <class Team, class A, class Lane, class Size>
SVD_HD void real_eigenvalues(const Team& team, A t, Size k, ComplexElement<Lane>* lambda) {
  const Lane zero(0);
  const auto pair_of = [&](int j) SVD_LAMBDA {
    return block_eigenvalues(t(j, j).re, t(j, j + 1).re, t(j + 1, j).re, t(j + 1, j + 1).re);
  };
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    ComplexElement<Lane> value{t(j, j).re, zero};
    if (j + 1 < k) value = select_element(abs(t(j + 1, j).re) > zero, pair_of(j).first, value);
    if (j > 0) value = select_element(abs(t(j, j - 1).re) > zero, pair_of(j - 1).second, value);
    lambda[j] = value;
  });
}

// Makes the block in rows j, j + 1 triangular in the lanes where h has one: T := G^H T G, Z := Z G, with the eigenvector
// of lambda_j in the first column of G = [x, -y; y, conj(x)] / r. T's block itself is left to set_diagonal().
template <class Team, class H, class A, class Size>
SVD_HD void triangularize_block(const Team& team, H h, A t, A z, Size k, int j, const typename A::Element& first) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const Lane zero(0), one(1);
  const Lane below = h(j + 1, j).re;
  const auto block = abs(below) > zero;
  if (!any_of(block)) return;
  const C from = first - t(j + 1, j + 1);
  const Lane inverse = one / sqrt(select(block, fma(below, below, square_of(from)), one));
  const C x{select(block, from.re * inverse, one), select(block, from.im * inverse, zero)};
  const Lane y = select(block, below * inverse, zero);
  team.sync();  // all have the corner
  team.for_each(j, k, [&](int c) SVD_LAMBDA {
    const C p = t(j, c), q = t(j + 1, c);
    t(j, c) = product(conj(x), p) + scaled(q, y);
    t(j + 1, c) = product(x, q) - scaled(p, y);
  });
  const auto columns = [&](C& p, C& q) SVD_LAMBDA {
    const C old = p;
    p = product(x, old) + scaled(q, y);
    q = product(conj(x), q) - scaled(old, y);
  };
  team.for_each(0, j + 2 + k, [&](int r) SVD_LAMBDA {
    if (r < j + 2) {
      columns(t(r, j), t(r, j + 1));
    } else {
      columns(z(r - j - 2, j), z(r - j - 2, j + 1));
    }
  });
}

// T's diagonal is lambda, and below it lie zeros, where h has blocks.
template <class Team, class H, class A, class Lane, class Size>
SVD_HD void set_diagonal(const Team& team, H h, A t, Size k, const ComplexElement<Lane>* lambda) {
  const Lane zero(0);
  team.for_each(0, k, [&](int i) SVD_LAMBDA {
    auto block = Lane::mask(false);
    if (i + 1 < k) block = block | (abs(h(i + 1, i).re) > zero);
    if (i > 0) {
      const auto ends = abs(h(i, i - 1).re) > zero;
      t(i, i - 1) = select_element(ends, {zero, zero}, t(i, i - 1));
      block = block | ends;
    }
    t(i, i) = select_element(block, lambda[i], t(i, i));
  });
}

// The least difference of eigenvalues that is divided by: u max |t|. parts: k lanes.
template <class Team, class A, class Size>
SVD_HD typename A::Element::Lane least_difference(const Team& team, A t, Size k, typename A::Element::Lane* parts) {
  using Lane = typename A::Element::Lane;
  team.sync();  // the parts are written again
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    Lane largest(0);
    SVD_UNROLL_DEVICE for (int i = 0; i <= j; ++i) largest = raise_to_magnitude(largest, t(i, j));
    parts[j] = largest;
  });
  Lane largest(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) largest = at_least(parts[j], largest);
  const Lane u(FloatTraits<typename Lane::Scalar>::kUnitRoundoff);
  return u * select(largest > Lane(0), largest, Lane(1));
}

// -sum / difference for a difference of at least `least`.
template <class Lane>
SVD_HD ComplexElement<Lane> substituted(const ComplexElement<Lane>& sum, const ComplexElement<Lane>& difference,
                                        Lane least) {
  const auto small = magnitude(difference) < least;
  const ComplexElement<Lane> divisor{select(small, least, difference.re), select(small, Lane(0), difference.im)};
  const ComplexElement<Lane> x = quotient(sum, divisor);
  return {-x.re, -x.im};
}

// The power of two that x's column is multiplied by, one unless x is large.
template <class Lane>
SVD_HD Lane column_scale(const ComplexElement<Lane>& x) {
  using F = FloatTraits<typename Lane::Scalar>;
  const Lane size = at_least(abs(x.re), abs(x.im));
  const auto large = size > Lane(F::kLift);
  return select(large, pow2(-binary_exponent(select(large, size, Lane(1)))), Lane(1));
}

// x_i, i < j, of lambda_j go to t(j, i). Returns x_j.
template <class A, class Lane, class Size>
SVD_HD Lane right_column(A t, Size, int j, Lane least) {
  using C = ComplexElement<Lane>;
  Lane head(1);
  SVD_UNROLL_DEVICE for (int i = j - 1; i >= 0; --i) {
    C sum = scaled(C(t(i, j)), head);
    SVD_UNROLL_DEVICE for (int l = i + 1; l < j; ++l) sum = sum + product(C(t(i, l)), C(t(j, l)));
    t(j, i) = substituted(sum, t(i, i) - t(j, j), least);
    const Lane scale = column_scale(t(j, i));
    if (!any_of(scale < Lane(1))) continue;
    SVD_UNROLL_DEVICE for (int l = i; l < j; ++l) t(j, l) = scaled(t(j, l), scale);
    head = head * scale;
  }
  return head;
}

// y_i, i > j, of lambda_j go to t(i, j). Returns y_j.
template <class A, class Lane, class Size>
SVD_HD Lane left_column(A t, Size k, int j, Lane least) {
  using C = ComplexElement<Lane>;
  Lane head(1);
  SVD_UNROLL_DEVICE for (int i = j + 1; i < k; ++i) {
    C sum = scaled(conj(C(t(j, i))), head);
    SVD_UNROLL_DEVICE for (int l = j + 1; l < i; ++l) sum = add_product(sum, C(t(l, i)), C(t(l, j)));
    t(i, j) = substituted(sum, conj(t(i, i) - t(j, j)), least);
    const Lane scale = column_scale(t(i, j));
    if (!any_of(scale < Lane(1))) continue;
    SVD_UNROLL_DEVICE for (int l = j + 1; l <= i; ++l) t(l, j) = scaled(t(l, j), scale);
    head = head * scale;
  }
  return head;
}

// W := Z Y. T's upper triangle is read, and Y takes the place below it. heads: k lanes.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED void left_vectors(const Team& team, A t, A z, A w, Size k, Lane least, Lane* heads) {
  using C = ComplexElement<Lane>;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA { heads[j] = left_column(t, k, j, least); });
  team.for_each_line(0, k, [&](int i) SVD_LAMBDA {
    SVD_UNROLL_DEVICE for (int j = 0; j < k; ++j) {
      C sum = scaled(C(z(i, j)), heads[j]);
      SVD_UNROLL for (int l = j + 1; l < k; ++l) sum = sum + product(C(z(i, l)), C(t(l, j)));
      w(i, j) = sum;
    }
  });
}

// V := Z X takes the place of Z. T's upper triangle is read, and X^T takes the place below it. heads: k lanes.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED void right_vectors(const Team& team, A t, A z, Size k, Lane least, Lane* heads) {
  using C = ComplexElement<Lane>;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA { heads[j] = right_column(t, k, j, least); });
  team.for_each_line(0, k, [&](int i) SVD_LAMBDA {
    SVD_UNROLL_DEVICE for (int j = k - 1; j >= 0; --j) {
      C sum = scaled(C(z(i, j)), heads[j]);
      SVD_UNROLL for (int l = 0; l < j; ++l) sum = sum + product(C(z(i, l)), C(t(j, l)));
      z(i, j) = sum;
    }
  });
}

SVD_KERNEL_END

#endif
