// The active window lo .. hi of a Hessenberg matrix, for the QR iterations of real and complex ones. A team has a
// matrix in each lane.
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
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// QR sweeps before a matrix is given up. LAPACK allows as many: 30 an eigenvalue, and 300 for small matrices.
constexpr int most_sweeps(int k) { return 30 * (k > 10 ? k : 10); }
// Every tenth sweep on one hi has shifts that are made up.
inline constexpr int kExceptionalSweep = 10;

template <class Lane>
struct Window {
  Lane lo, hi;  // hi = 0: nothing is left
  Lane sweeps;  // on this hi, modulo kExceptionalSweep
};

template <class Lane>
SVD_HD Lane index_lane(int i) {
  return Lane(static_cast<typename Lane::Scalar>(i));
}

// f(i), an element, for the i that a lane's index is; 1 <= index < k, zero for others.
template <class E, class Lane, class Size, class F>
SVD_HD E picked(Size k, Lane index, F f) {
  E x = zero_element<E>();
  if constexpr (Lane::kLanes == 1 && Size::kValue == 0) {
    const int i = static_cast<int>(index.v);
    if (i >= 1) x = f(i);
  } else {
    SVD_UNROLL for (int i = 1; i < k; ++i) x = select_element(index == index_lane<Lane>(i), f(i), x);
  }
  return x;
}

// Sets negligible subdiagonal elements to zero.
template <class Team, class A, class Size>
SVD_HD void deflate(const Team& team, A h, Size k) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  constexpr auto kU = FloatTraits<typename E::Scalar>::kUnitRoundoff;
  team.for_each(1, k, [&](int i) SVD_LAMBDA {
    const Lane below = magnitude(h(i, i - 1));
    const auto small =
        (below <= Lane(2 * kU) * (magnitude(h(i - 1, i - 1)) + magnitude(h(i, i)))) | (below <= Lane(16 * kU * kU));
    h(i, i - 1) = select_element(small, zero_element<E>(), h(i, i - 1));
  });
}

// The last window of an order of at least kLeast takes the place of `last`. Its sweeps count on where it has the same hi,
// from kExceptionalSweep to one. A new window has none.
template <int kLeast, class A, class Lane, class Size>
SVD_HD Window<Lane> next_window(A h, Size k, const Window<Lane>& last) {
  const Lane zero(0), one(1);
  Lane lo(0), hi(0), start(0);
  SVD_UNROLL for (int i = 1; i < k; ++i) {
    const auto coupled = magnitude(h(i, i - 1)) > zero;
    start = select(coupled, start, index_lane<Lane>(i));
    const auto counts = coupled & (start <= index_lane<Lane>(i - (kLeast - 1)));
    lo = select(counts, start, lo);
    hi = select(counts, index_lane<Lane>(i), hi);
  }
  const Lane counted = select(last.sweeps == index_lane<Lane>(kExceptionalSweep), zero, last.sweeps);
  return {lo, hi, select(hi == last.hi, counted + one, zero)};
}

SVD_KERNEL_END

#endif
