// Condition numbers of eigenvalues, from left and right eigenvectors; one matrix a lane, and a team for it.
//
//   c_j = |v_j| |w_j| / |w_j^H v_j| >= 1
//
// A change D of A changes a simple eigenvalue by at most c_j |D|, to first order. With unit columns V^-1 has the rows
// w_j^H / (w_j^H v_j), so that |V|_F |V^-1|_F = sqrt(k sum_j c_j^2).
// A defective matrix lies within about |B| / c_j of B = D^-1 A D. A is near defective where c_j > 1 / (40 sqrt u) for an
// eigenvalue of B. With rounding errors of e u |B|, the eigenvalues that a defective matrix is found to have differ by
// 2 sqrt(e u) |B|. Their conditions are some 1 / (2 sqrt(e u)): the limit leaves room for e = 400. The c_j of A itself may
// be as large where A is badly scaled only.
// Source: Wilkinson, The Algebraic Eigenvalue Problem (1965), chapter 2; Golub and Van Loan, Matrix Computations, 3rd ed.,
// section 7.2.2.
// Cost: k^2 complex multiplications for the c_j, 3 k^2 for the test. Accuracy: c_j within 3 k u c_j, relative, for the given
// vectors, whose own errors are about u |A| c_j / gap.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_EIGENVALUE_CONDITIONS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_EIGENVALUE_CONDITIONS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_EIGENVALUE_CONDITIONS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_EIGENVALUE_CONDITIONS_H_
#endif

#include <limits>

#include "engine/algorithms/general/complex_lane.h"
#include "engine/core/reduce.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// 2^-e for column j of v, whose largest component is in [2^e, 2^(e+1)).
template <class A, class Size>
SVD_HD Pow2<typename A::Element::Lane> column_lift(A v, Size k, int j) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  Lane largest(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, C(v(i, j)));
  return make_pow2(-binary_exponent(largest));
}

// The lanes with c_j > 1 / (40 sqrt u) for some j. v, w: eigenvectors of the balanced matrix, columns of any length.
// parts: k lanes.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED typename Lane::Mask is_near_defective(const Team& team, A v, A w, Size k, Lane* parts) {
  using C = typename A::Element;
  using T = typename Lane::Scalar;
  const Lane limit(T(40 * 40) * FloatTraits<T>::kUnitRoundoff);
  team.sync();  // the parts are written again
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    const Pow2<Lane> of_v = column_lift(v, k, j), of_w = column_lift(w, k, j);
    C product{Lane(0), Lane(0)};
    Lane v2(0), w2(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      const C x = scaled(C(v(i, j)), of_v), y = scaled(C(w(i, j)), of_w);
      product = add_product(product, y, x);
      v2 = add_square(v2, x);
      w2 = add_square(w2, y);
    }
    parts[j] = select(square_of(product) < limit * v2 * w2, Lane(1), Lane(0));
  });
  Lane count(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) count = count + parts[j];
  return count > Lane(0);
}

// conditions[j] := c_j, +inf where w_j^H v_j = 0. v, w: unit columns.
template <class Team, class A, class Lane, class Size>
SVD_HD_CALLED void eigenvalue_conditions(const Team& team, A v, A w, Size k, Lane* conditions) {
  using C = typename A::Element;
  using T = typename Lane::Scalar;
  const Lane one(1), infinity(std::numeric_limits<T>::infinity());
  team.sync();  // conditions may have been read
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    C product{Lane(0), Lane(0)};
    SVD_UNROLL for (int i = 0; i < k; ++i) product = add_product(product, C(w(i, j)), C(v(i, j)));
    // Scaled to about one, for the square.
    const Lane e = binary_exponent(magnitude(product));
    const C lifted = scaled(product, make_pow2(-e));
    const Lane square = square_of(lifted);
    const auto some = square > Lane(0);
    const Lane inverse = one / sqrt(select(some, square, one));
    conditions[j] = select(some, larger(inverse * make_pow2(-e), one), infinity);
  });
}

SVD_KERNEL_END

#endif
