// Eigenvalues and eigenvectors of a Schur form T; one matrix a lane.
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
template <class A, class Lane, class Size>
SVD_HD void real_eigenvalues(A t, Size k, ComplexElement<Lane>* lambda) {
  const Lane zero(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) lambda[j] = {t(j, j).re, zero};
  SVD_UNROLL for (int j = 0; j + 1 < k; ++j) {
    const auto block = abs(t(j + 1, j).re) > zero;
    const auto pair = block_eigenvalues(t(j, j).re, t(j, j + 1).re, t(j + 1, j).re, t(j + 1, j + 1).re);
    lambda[j] = select_element(block, pair.first, lambda[j]);
    lambda[j + 1] = select_element(block, pair.second, lambda[j + 1]);
  }
}

// Makes the block in rows j, j + 1 triangular where there is one: T := G^H T G, Z := Z G, with the eigenvector of
// first = lambda_j in the first column of G = [x, -y; y, conj(x)] / r.
template <class A, class Size>
SVD_HD void triangularize_block(A t, A z, Size k, int j, const typename A::Element& first,
                                const typename A::Element& second) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const Lane zero(0), one(1);
  const Lane below = t(j + 1, j).re;
  const auto block = abs(below) > zero;
  if (!any_of(block)) return;
  const C from = first - t(j + 1, j + 1);
  const Lane inverse = one / sqrt(select(block, fma(below, below, square_of(from)), one));
  const C x{select(block, from.re * inverse, one), select(block, from.im * inverse, zero)};
  const Lane y = select(block, below * inverse, zero);
  const auto columns = [&](C& p, C& q) SVD_LAMBDA {
    const C old = p;
    p = product(x, old) + scaled(q, y);
    q = product(conj(x), q) - scaled(old, y);
  };
  SVD_UNROLL for (int c = j; c < k; ++c) {
    C &p = t(j, c), &q = t(j + 1, c);
    const C old = p;
    p = product(conj(x), old) + scaled(q, y);
    q = product(x, q) - scaled(old, y);
  }
  SVD_UNROLL for (int r = 0; r <= j + 1; ++r) columns(t(r, j), t(r, j + 1));
  SVD_UNROLL for (int r = 0; r < k; ++r) columns(z(r, j), z(r, j + 1));
  t(j, j) = select_element(block, first, t(j, j));
  t(j + 1, j + 1) = select_element(block, second, t(j + 1, j + 1));
  t(j + 1, j) = select_element(block, C{zero, zero}, t(j + 1, j));
}

// The least difference of eigenvalues that is divided by: u max |t|.
template <class A, class Size>
SVD_HD typename A::Element::Lane least_difference(A t, Size k) {
  using Lane = typename A::Element::Lane;
  Lane largest(0);
  for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i <= j; ++i) largest = raise_to_magnitude(largest, t(i, j));
  }
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

// x_i, i <= j, of lambda_j replace t_ij.
template <class A, class Lane>
SVD_HD void right_column(A t, int j, const ComplexElement<Lane>* lambda, Lane least) {
  using C = ComplexElement<Lane>;
  for (int i = j - 1; i >= 0; --i) {
    C sum = t(i, j);
    sum = product(sum, t(j, j));  // x_j may have been scaled
    for (int l = i + 1; l < j; ++l) sum = sum + product(t(i, l), t(l, j));
    t(i, j) = substituted(sum, lambda[i] - lambda[j], least);
    const Lane scale = column_scale(t(i, j));
    if (!any_of(scale < Lane(1))) continue;
    for (int l = i; l <= j; ++l) t(l, j) = scaled(t(l, j), scale);
  }
}

// y_i, i > j, of lambda_j fill column j below the diagonal. Returns y_j.
template <class A, class Lane, class Size>
SVD_HD Lane left_column(A t, Size k, int j, const ComplexElement<Lane>* lambda, Lane least) {
  using C = ComplexElement<Lane>;
  Lane head(1);
  for (int i = j + 1; i < k; ++i) {
    C sum = scaled(conj(t(j, i)), head);
    for (int l = j + 1; l < i; ++l) sum = add_product(sum, t(l, i), t(l, j));
    t(i, j) = substituted(sum, conj(lambda[i] - lambda[j]), least);
    const Lane scale = column_scale(t(i, j));
    if (!any_of(scale < Lane(1))) continue;
    for (int l = j + 1; l <= i; ++l) t(l, j) = scaled(t(l, j), scale);
    head = head * scale;
  }
  return head;
}

// W := Z Y; t keeps its upper triangle.
template <class A, class Lane, class Size>
SVD_HD void left_vectors(A t, A z, A w, Size k, const ComplexElement<Lane>* lambda) {
  using C = ComplexElement<Lane>;
  const Lane least = least_difference(t, k);
  for (int j = 0; j < k; ++j) {
    const Lane head = left_column(t, k, j, lambda, least);
    for (int i = 0; i < k; ++i) {
      C sum = scaled(z(i, j), head);
      for (int l = j + 1; l < k; ++l) sum = sum + product(z(i, l), t(l, j));
      w(i, j) = sum;
    }
  }
}

// V := Z X replaces z; t is overwritten on and above its diagonal.
template <class A, class Lane, class Size>
SVD_HD void right_vectors(A t, A z, Size k, const ComplexElement<Lane>* lambda) {
  using C = ComplexElement<Lane>;
  const Lane least = least_difference(t, k);
  for (int j = k - 1; j >= 0; --j) {
    t(j, j) = {Lane(1), Lane(0)};
    right_column(t, j, lambda, least);
    for (int i = 0; i < k; ++i) {
      C sum = product(z(i, 0), t(0, j));
      for (int l = 1; l <= j; ++l) sum = sum + product(z(i, l), t(l, j));
      z(i, j) = sum;
    }
  }
}

SVD_KERNEL_END

#endif
