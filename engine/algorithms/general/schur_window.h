// The active window lo .. hi of a Hessenberg matrix, for the QR iterations of real and complex ones; one matrix a lane.
// Indices are numbers in lanes. A matrix falls apart where
//
//   h_{i,i-1} := 0   where |h_{i,i-1}| <= 2 u (|h_{i-1,i-1}| + |h_ii|), or <= 16 u^2, |x| = |re| + |im|
//
// The matrix is scaled to a largest component of about one, so that the second bound is one of its norm.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 7.5.1.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_WINDOW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_WINDOW_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_WINDOW_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SCHUR_WINDOW_H_
#endif

#include "engine/algorithms/general/complex_lane.h"

SVD_KERNEL_BEGIN

// QR sweeps for each eigenvalue, on average, before a matrix is given up. LAPACK allows 30 as well.
inline constexpr int kSweepsPerEigenvalue = 30;
// Every tenth sweep on one hi has shifts that are made up.
inline constexpr int kExceptionalSweep = 10;

template <class Lane>
struct Window {
  Lane lo, hi;  // hi < 0, or hi = 0 for single shifts: nothing is left
  Lane sweeps;  // on this hi, modulo kExceptionalSweep
};

template <class Lane>
SVD_HD Lane index_lane(int i) {
  return Lane(static_cast<typename Lane::Scalar>(i));
}

// The number of the next sweep: after kExceptionalSweep comes one, and zero where the window is new.
template <class Lane>
SVD_HD Lane next_sweep(Lane sweeps, typename Lane::Mask same_window) {
  const Lane counted = select(sweeps == index_lane<Lane>(kExceptionalSweep), Lane(0), sweeps);
  return select(same_window, counted + Lane(1), Lane(0));
}

// Sets negligible subdiagonal elements to zero.
template <class A, class Size>
SVD_HD void deflate(A h, Size k) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  constexpr auto kU = FloatTraits<typename E::Scalar>::kUnitRoundoff;
  SVD_UNROLL for (int i = 1; i < k; ++i) {
    const Lane below = magnitude(h(i, i - 1));
    const auto small =
        (below <= Lane(2 * kU) * (magnitude(h(i - 1, i - 1)) + magnitude(h(i, i)))) | (below <= Lane(16 * kU * kU));
    h(i, i - 1) = select_element(small, zero_element<E>(), h(i, i - 1));
  }
}

// The first row of the block that ends in row hi.
template <class A, class Size>
SVD_HD typename A::Element::Lane first_of_block(A h, Size k, typename A::Element::Lane hi) {
  using Lane = typename A::Element::Lane;
  Lane lo(0);
  SVD_UNROLL for (int i = 1; i < k; ++i) {
    const auto starts = (magnitude(h(i, i - 1)) == Lane(0)) & (index_lane<Lane>(i) <= hi);
    lo = select(starts, index_lane<Lane>(i), lo);
  }
  return lo;
}

SVD_KERNEL_END

#endif
