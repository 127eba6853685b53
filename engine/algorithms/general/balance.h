// Balancing: B = D^-1 A D with D = diag(2^d_i), so that each row is about as long as its column; one matrix a lane.
//
//   c_i, r_i: the sums of |re| + |im| over column and row i without a_ii;   f: the power of two nearest sqrt(r_i / c_i)
//   where c_i f + r_i / f < 0.95 (c_i + r_i):   column i := column i f,   row i := row i / f,   d_i := d_i + log2 f
//
// Every step makes the sum of all magnitudes smaller, so that no element outgrows it. Elements that become denormal are
// below every error bound. Rows or columns of zeros are left alone; there is no permutation.
// Source: Parlett and Reinsch, Numer. Math. 13 (1969) 293-304; the factor 0.95 is theirs.
// Cost: 2 k^2 additions a sweep, at most kBalanceSweeps sweeps, two where nothing changes in the second.
// Accuracy: exact but for elements that become denormal.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#endif

#include "engine/algorithms/general/complex_lane.h"

SVD_KERNEL_BEGIN

// Sweeps after which a matrix is balanced enough. LAPACK's gebal has no limit, but isolates eigenvalues first.
inline constexpr int kBalanceSweeps = 12;

// The integer nearest to half of e, an integer.
template <class Lane>
SVD_HD Lane rounded_half(Lane e) {
  using T = typename Lane::Scalar;
  const Lane whole(static_cast<T>(3 * (typename FloatTraits<T>::Bits{1} << (FloatTraits<T>::kMantissaBits - 1))));
  return (e * Lane(0.5f) + whole) - whole;
}

// One step: line i. Returns where it was scaled.
template <class A, class Size>
SVD_HD typename A::Element::Lane::Mask balance_line(A a, Size k, int i, typename A::Element::Lane* d) {
  using Lane = typename A::Element::Lane;
  const Lane zero(0);
  Lane c(0), r(0);
  SVD_UNROLL for (int l = 0; l < k; ++l) {
    if (l == i) continue;
    c = c + magnitude(a(l, i));
    r = r + magnitude(a(i, l));
  }
  const auto apart = (c > zero) & (r > zero);
  const Lane f = rounded_half(binary_exponent(r) - binary_exponent(c));
  const Pow2<Lane> up = make_pow2(f), down = make_pow2(-f);
  const auto wanted = apart & ((c * up) + (r * down) < Lane(0.95f) * (c + r));
  if (!any_of(wanted)) return wanted;
  const Pow2<Lane> column{select(wanted, up.first, Lane(1)), select(wanted, up.second, Lane(1))};
  const Pow2<Lane> row{select(wanted, down.first, Lane(1)), select(wanted, down.second, Lane(1))};
  SVD_UNROLL for (int l = 0; l < k; ++l) {
    if (l == i) continue;
    a(l, i) = scaled(a(l, i), column);
    a(i, l) = scaled(a(i, l), row);
  }
  d[i] = d[i] + select(wanted, f, zero);
  return wanted;
}

// a becomes B; d[i], i < k, is written.
template <class A, class Size>
SVD_HD void balance(A a, Size k, typename A::Element::Lane* d) {
  using Lane = typename A::Element::Lane;
  SVD_UNROLL for (int i = 0; i < k; ++i) d[i] = Lane(0);
  auto changed = Lane::mask(k > 1);
  for (int sweep = 0; sweep < kBalanceSweeps && any_of(changed); ++sweep) {
    changed = Lane::mask(false);
    for (int i = 0; i < k; ++i) changed = changed | balance_line(a, k, i, d);
  }
}

SVD_KERNEL_END

#endif
