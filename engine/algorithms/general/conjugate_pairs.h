// Conjugate pairs among the eigenvalues that a complex iteration found of a real k x k matrix; one matrix a lane.
//
//   where |Im lambda_j| > tolerance, i > j makes d = |lambda_i - conj(lambda_j)| least, and d <= |Im lambda_j|:
//     lambda_i is the other of the pair and moves to j + 1;   lambda_j := (lambda_j + conj(lambda_i)) / 2
//     lambda_{j+1} := conj(lambda_j),   v_{j+1} := conj(v_j)
//   elsewhere:   lambda_j := Re lambda_j
//
// The one with a positive imaginary part comes first. finish_columns<true> of unit_columns.h then makes the vectors of
// real eigenvalues real.
// Cost: k^2 / 2 moves of a column by masks.
// Accuracy: the sum of the eigenvalues stays. A pair has the residual of its vector v_j and d / 2, for A is real. Where d
// is large, as near a defective eigenvalue, that is for the caller to see. With A v = lambda v + r and v = x + i y, the real
// pair has A x = Re(lambda) x + Re(r) - Im(lambda) y: a product of two errors where v is nearly real. A double
// real eigenvalue may get two vectors that are nearly dependent.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_CONJUGATE_PAIRS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_CONJUGATE_PAIRS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_CONJUGATE_PAIRS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_CONJUGATE_PAIRS_H_
#endif

#include "engine/algorithms/general/complex_lane.h"

SVD_KERNEL_BEGIN

// The eigenvalue after j that is nearest to conj(lambda_j), its index, k where there is none, and how far it is.
template <class Lane>
struct NearestConjugate {
  Lane index, distance;
  ComplexElement<Lane> value;
};
template <class Lane, class Size>
SVD_HD NearestConjugate<Lane> nearest_conjugate(Size k, int j, const ComplexElement<Lane>* lambda) {
  using T = typename Lane::Scalar;
  NearestConjugate<Lane> nearest{Lane(T(k)), Lane(FloatTraits<T>::kLargest), lambda[j]};
  SVD_UNROLL for (int i = j + 1; i < k; ++i) {
    const Lane distance = magnitude(lambda[i] - conj(lambda[j]));
    const auto nearer = distance < nearest.distance;
    nearest = {select(nearer, Lane(T(i)), nearest.index), select(nearer, distance, nearest.distance),
               select_element(nearer, lambda[i], nearest.value)};
  }
  return nearest;
}

// Column `to` of v := column `from`, conjugated where `conjugated`, in the lanes of `here`.
template <class V, class Mask, class Size>
SVD_HD void copy_column(V v, Size k, int from, int to, bool conjugated, Mask here) {
  using C = typename V::Element;
  if constexpr (kIsWanted<V>) {
    SVD_UNROLL for (int r = 0; r < k; ++r) {
      const C x = v(r, from);
      v(r, to) = select_element(here, conjugated ? conj(x) : x, C(v(r, to)));
    }
  }
}

// lambda[j], j < k, and the columns of each of v, k x k or NoMatrix, in their new order. tolerance: k u |T|_F, say.
template <class Lane, class Size, class... V>
SVD_HD_CALLED void pair_conjugates(Size k, Lane tolerance, ComplexElement<Lane>* lambda, V... v) {
  const Lane zero(0);
  auto second = Lane::mask(false);
  for (int j = 0; j < k; ++j) {
    const Lane size = abs(lambda[j].im);
    const NearestConjugate<Lane> other = nearest_conjugate(k, j, lambda);
    const auto is_new = !second, paired = is_new & (size > tolerance) & (other.distance <= size);
    lambda[j].im = select(is_new & !paired, zero, lambda[j].im);
    second = paired;
    if (!any_of(paired)) continue;
    for (int i = j + 2; i < k; ++i) {
      const auto here = paired & (other.index == Lane(static_cast<typename Lane::Scalar>(i)));
      if (!any_of(here)) continue;
      lambda[i] = select_element(here, lambda[j + 1], lambda[i]);
      (copy_column(v, k, j + 1, i, false, here), ...);
    }
    const ComplexElement<Lane> middle = scaled(lambda[j] + conj(other.value), Lane(0.5f));
    lambda[j] = select_element(paired, middle, lambda[j]);
    const auto turned = paired & (lambda[j].im < zero);
    lambda[j] = select_element(turned, conj(lambda[j]), lambda[j]);
    lambda[j + 1] = select_element(paired, conj(lambda[j]), lambda[j + 1]);
    (copy_column(v, k, j, j, true, turned), ...);
    (copy_column(v, k, j, j + 1, true, paired), ...);
  }
}

SVD_KERNEL_END

#endif
