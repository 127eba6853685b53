// JACOBI for Hermitian matrices: eigenvalues and eigenvectors of k x k matrices by one-sided Jacobi on a shifted
// matrix; one matrix a lane.
//
//   M = U L U^H;   N := 2^-e M, its largest component in [1, 2);   B := N + c I, c a power of two in (1.25, 2.5] |N|_F
//   X := B W with orthogonal columns (definite_jacobi.h);   u_j := x_j / |x_j|
//   lambda_j := 2^e Re u_j^H (N u_j), ascending; numbered before the factor 2^e, so that those which overflow or vanish
//   keep the order of their vectors
//
// B is positive definite with a condition number of at most (1 + 0.8) / (1 - 0.8) = 9. So its left singular vectors are
// eigenvectors of M, and no column is dependent. Without the shift, pairs of eigenvalues +-lambda would be one singular
// value, whose vectors are mixed. |x_j| - c has lost the digits that the shift took; the Rayleigh quotient has them.
//
// One triangle of M is read, and of its diagonal the real parts.
// Source: the shift to a definite matrix before one-sided Jacobi: Veselic and Hari, Numer. Math. 56 (1989) 627-633;
// Rayleigh quotients: Parlett, The Symmetric Eigenvalue Problem, chapter 4.
// Cost: random 4 x 4: 4.7 sweeps; 8 x 8: 6.2; 32 x 32: 8.0. A sweep is k (k - 1) / 2 pairs of 10 k flops (complex: 32
// k). Accuracy: |lambda - exact|, |M U - U L|_F and |I - U^H U|_F |M|_F are within 10 k u |M|_F.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_HERMITIAN_EIGEN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_HERMITIAN_EIGEN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_HERMITIAN_EIGEN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_HERMITIAN_EIGEN_H_
#endif

#include "engine/algorithms/lanes/definite_jacobi.h"
#include "engine/core/hermitian.h"

SVD_KERNEL_BEGIN

// c of N, square = |N|_F^2.
template <class Lane>
SVD_HD Lane hermitian_shift(Lane square) {
  const Lane norm = sqrt(square);
  return pow2(binary_exponent(norm * Lane(1.25f)) + Lane(1));
}

// lambda 2^e, every zero +0.
template <class Lane>
SVD_HD Lane finished_eigenvalue(Lane lambda, Lane e) {
  return lambda * make_pow2(e) + Lane(0);
}

// x / norm, inverse = 1 / norm, with the error of the product taken out. So a column of one component becomes a unit
// vector, and diagonal matrices have exact eigenvalues.
template <class Lane>
SVD_HD Lane quotient(Lane x, Lane norm, Lane inverse) {
  const Lane product = x * inverse;
  return fma(fnma(norm, product, x), inverse, product);
}
template <class E>
SVD_HD E normalized(E x, typename E::Lane norm, typename E::Lane inverse) {
  x.re = quotient(x.re, norm, inverse);
  if constexpr (E::kComplex) x.im = quotient(x.im, norm, inverse);
  return x;
}

// m, its triangle as loaded, becomes N with both triangles. Returns the lanes whose triangle is finite, whose e is in
// *e; the others go on as zero.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask scale_hermitian(A m, Size k, bool upper, Lane* e) {
  using E = typename A::Element;
  Lane largest(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    m(j, j) = real_part(m(j, j));
    largest = raise_to_any_magnitude(largest, m(j, j));
    SVD_UNROLL for (int i = j + 1; i < k; ++i) {
      const E lower = upper ? conj(m(j, i)) : m(i, j);
      largest = raise_to_any_magnitude(largest, lower);
      m(i, j) = lower;
    }
  }
  const auto finite = largest <= Lane(FloatTraits<typename E::Scalar>::kLargest);
  *e = binary_exponent(select(finite, largest, Lane(0)));
  const Pow2<Lane> scale = make_pow2(-*e);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = j; i < k; ++i) {
      const E x = select_element(finite, scaled(m(i, j), scale), zero_element<E>());
      m(i, j) = x;
      if (i > j) m(j, i) = conj(x);
    }
  }
  return finite;
}

// |N|_F^2: the sum of those of its columns.
template <class A, class Size>
SVD_HD typename A::Element::Lane square_of_matrix(A n, Size k) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  return sum_of_sums(k, Lane(0), [&](Lane sum, int j) SVD_LAMBDA {
    return sum + sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return n(i, j); });
  });
}

// Re u^H (N u), u column j of x.
template <class A, class Size>
SVD_HD typename A::Element::Lane rayleigh_quotient(A n, A x, Size k, int j) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  const auto u = [&](int l) SVD_LAMBDA { return x(l, j); };
  return sum_of_sums(k, Lane(0), [&](Lane sum, int i) SVD_LAMBDA {
    const E product = inner_product<E>(
        k, [&](int l) SVD_LAMBDA { return n(l, i); }, u);
    return add_real_product(sum, E(x(i, j)), product);
  });
}

// In: m, of which one triangle counts. Out: u_j in column j of x, lambda[j] finished, rank[j] its number in ascending
// order. scales: k of scratch; m is overwritten. Returns the MatrixStatus of each lane as a number; nothing else means
// anything for matrices that are not finite.
template <class A, class Lane, class Size>
SVD_HD Lane hermitian_eigen(A x, A m, Size k, bool upper, Lane tolerance, int max_sweeps, ColumnScale<Lane>* scales,
                            Lane* lambda, Lane* rank) {
  using E = typename A::Element;
  using T = typename Lane::Scalar;
  const Lane zero(0), one(1);
  Lane e;
  const auto finite = scale_hermitian(m, k, upper, &e);
  const Lane shift = hermitian_shift(square_of_matrix(m, k));
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = m(i, j);
    x(j, j).re = x(j, j).re + shift;
  }
  typename Lane::Mask reversed;
  const auto unfinished = orthogonalize_definite(x, k, tolerance * tolerance, max_sweeps, scales, &reversed);
  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    const Lane norm = sqrt(sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return x(i, j); }));
    const Lane inverse = one / norm;
    SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = normalized(x(i, j), norm, inverse);
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) { lambda[j] = rayleigh_quotient(m, x, k, j); }
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    Lane before = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      // Equal ones are in the order of the places that their columns end in.
      if (i == j) continue;
      const auto below = lambda[i] < lambda[j], tie = lambda[i] == lambda[j];
      before = before + select(below | (tie & (i < j ? !reversed : reversed)), one, zero);
    }
    rank[j] = before;
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j] = finished_eigenvalue(lambda[j], e);
    in_range = in_range & (abs(lambda[j]) <= Lane(FloatTraits<T>::kLargest));
  }
  return status_of<Lane>(finite, in_range, unfinished);
}

SVD_KERNEL_END

#endif
