// The last steps for a matrix of eigenvectors: back from the balanced matrix, unit columns, phases. A team has
// a matrix in each lane.
//
//   v_i := 2^{d_i} v_i, scaled so that nothing overflows;   v := v / |v|
//   complex matrices: the component of largest modulus, the first of equals, becomes real and positive
//   real matrices: the vector of a real eigenvalue becomes real, Re(v e^{-i phi}) with 2 phi = arg(v^T v), which makes
//     it as long as it can be; of a conjugate pair, the second vector is the conjugate of the first
//
// Re(v e^{-i phi}) has a length of at least 1 / sqrt(2), and A is real: its residual grows by sqrt(2) at most.
// Cost: k^2 each. Accuracy: |v| = 1 within (k + 4) u.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNIT_COLUMNS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNIT_COLUMNS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNIT_COLUMNS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_UNIT_COLUMNS_H_
#endif

#include "engine/algorithms/general/complex_lane.h"
#include "engine/core/reduce.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// Column j times 2^(sign d_i) times a power of two that brings its largest component into [1, 2).
template <class A, class Lane, class Size>
SVD_HD void unbalance(A v, Size k, int j, const Lane* d, Lane sign) {
  using T = typename Lane::Scalar;
  const Lane highest(T(2 * FloatTraits<T>::kBias - 14));
  Lane top(T(-8 * FloatTraits<T>::kBias));
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    const Lane size = raise_to_magnitude(Lane(0), v(i, j));
    top = select(size > Lane(0), larger(top, binary_exponent(size) + sign * d[i]), top);
  }
  // A zero may lie in a row of any scale, and stays one.
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    v(i, j) = scaled(v(i, j), make_pow2(smaller(larger(sign * d[i] - top, -highest), highest)));
  }
}

// Column j to unit length; a column of zeros stays.
template <class A, class Size>
SVD_HD void to_unit_length(A v, Size k, int j) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const Lane square = sum_of_squares<C>(k, [&](int i) SVD_LAMBDA { return v(i, j); });
  const Lane inverse = Lane(1) / sqrt(select(square > Lane(0), square, Lane(1)));
  SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j) = scaled(v(i, j), inverse);
}

// Makes the largest component of column j real and positive, in the lanes of `act`.
template <class A, class Size>
SVD_HD void turn_largest(A v, Size k, int j, typename A::Element::Lane::Mask act) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const Lane zero(0), one(1);
  C pivot{one, zero};
  Lane best(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    const Lane square = square_of(v(i, j));
    const auto better = square > best;
    best = select(better, square, best);
    pivot = select_element(better, C(v(i, j)), pivot);
  }
  const auto turn = act & (best > zero);
  const Lane modulus = sqrt(select(turn, best, one));
  const C factor{select(turn, pivot.re / modulus, one), select(turn, -(pivot.im / modulus), zero)};
  auto left = turn;
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    const auto is_pivot = left & (square_of(v(i, j)) == best);
    left = left & !is_pivot;
    v(i, j) = select_element(is_pivot, C{modulus, zero}, product(factor, v(i, j)));
  }
}

// Makes column j real and of unit length in the lanes of `act`.
template <class A, class Size>
SVD_HD void make_real(A v, Size k, int j, typename A::Element::Lane::Mask act) {
  using C = typename A::Element;
  using Lane = typename C::Lane;
  const Lane zero(0), one(1);
  const C square = sum_of(k, C{zero, zero},
                          [&](const C& s, int i) SVD_LAMBDA { return add_product(s, conj(C(v(i, j))), C(v(i, j))); });
  const C root = square_root(square);
  const Lane length = sqrt(square_of(root));
  const auto turn = length > zero;
  const Lane divisor = select(turn, length, one);
  const Lane cosine = select(turn, root.re / divisor, one), sine = select(turn, root.im / divisor, zero);
  Lane sum(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    const Lane real = fma(cosine, v(i, j).re, sine * v(i, j).im);
    v(i, j) = {select(act, real, v(i, j).re), select(act, zero, v(i, j).im)};
    sum = fma(real, real, sum);
  }
  const Lane inverse = select(act, one / sqrt(select(sum > zero, sum, one)), one);
  SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j).re = v(i, j).re * inverse;
}

// All columns of right (sign 1) or left (sign -1) eigenvectors; kReal: of a real matrix.
template <bool kReal, class Team, class A, class Lane, class Size>
SVD_HD_CALLED void finish_columns(const Team& team, A v, Size k, const ComplexElement<Lane>* lambda, const Lane* d,
                                  Lane sign) {
  using C = typename A::Element;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    unbalance(v, k, j, d, sign);
    to_unit_length(v, k, j);
    if constexpr (kReal) {
      const auto is_real = lambda[j].im == Lane(0);
      turn_largest(v, k, j, !is_real);
      make_real(v, k, j, is_real);
    } else {
      turn_largest(v, k, j, Lane::mask(true));
    }
  });
  if constexpr (kReal) {
    team.for_each_line(1, k, [&](int j) SVD_LAMBDA {
      const auto second = lambda[j].im < Lane(0);
      if (!any_of(second)) return;
      SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j) = select_element(second, conj(C(v(i, j - 1))), C(v(i, j)));
    });
  }
}

SVD_KERNEL_END

#endif
