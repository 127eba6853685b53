// Balancing: B = D^-1 A D with D = diag(2^d_i), so that each row is about as long as its column. A team
// has a matrix in each lane.
//
//   c_i, r_i: the sums of |re| + |im| over column and row i without a_ii;   f: the power of two nearest sqrt(r_i / c_i)
//   where c_i f + r_i / f < 0.95 (c_i + r_i):   column i := column i f,   row i := row i / f,   d_i := d_i + log2 f
//
// Every step makes the sum of all magnitudes smaller, so that no element outgrows it. Elements that become denormal are
// below every error bound. Rows or columns of zeros are left alone; there is no permutation.
// Source: Parlett and Reinsch, Numer. Math. 13 (1969) 293-304; the factor 0.95 is theirs.
// Cost: 2 k^2 additions a sweep, at most kBalanceSweeps sweeps, one where nothing is to be scaled.
// Accuracy: exact but for elements that become denormal.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_BALANCE_H_
#endif

#include "engine/algorithms/general/complex_lane.h"
#include "engine/core/team.h"

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

// 2^f for line i in the lanes of `wanted`.
template <class Lane>
struct BalanceStep {
  Lane f;
  typename Lane::Mask wanted;
};
template <class A, class Size>
SVD_HD BalanceStep<typename A::Element::Lane> balance_step(A a, Size k, int i) {
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
  return {f, apart & ((c * make_pow2(f)) + (r * make_pow2(-f)) < Lane(0.95f) * (c + r))};
}

// Scales column i by 2^f and row i by 2^-f where that is wanted.
template <class Team, class A, class Lane, class Size>
SVD_HD void balance_line(const Team& team, A a, Size k, int i, const BalanceStep<Lane>& step, Lane* d) {
  const Lane f = select(step.wanted, step.f, Lane(0));
  const Pow2<Lane> column = make_pow2(f), row = make_pow2(-f);
  team.sync();  // all have the step
  team.for_each(0, k, [&](int l) SVD_LAMBDA {
    if (l == i) {
      d[i] = d[i] + f;
    } else {
      a(l, i) = scaled(a(l, i), column);
      a(i, l) = scaled(a(i, l), row);
    }
  });
}

// The lanes in which a line is to be scaled. parts: k lanes.
template <class Team, class A, class Size>
SVD_HD typename A::Element::Lane::Mask is_unbalanced(const Team& team, A a, Size k, typename A::Element::Lane* parts) {
  using Lane = typename A::Element::Lane;
  team.sync();  // the parts are written again
  team.for_each_line(0, k,
                     [&](int i) SVD_LAMBDA { parts[i] = select(balance_step(a, k, i).wanted, Lane(1), Lane(0)); });
  Lane lines(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) lines = lines + parts[i];
  return lines > Lane(0);
}

// a becomes B; d[i], i < k, is written. parts: k lanes.
template <class Team, class A, class Size>
SVD_HD_CALLED void balance(const Team& team, A a, Size k, typename A::Element::Lane* d,
                           typename A::Element::Lane* parts) {
  using Lane = typename A::Element::Lane;
  team.for_each(0, k, [&](int i) SVD_LAMBDA { d[i] = Lane(0); });
  for (int sweep = 0; sweep < kBalanceSweeps; ++sweep) {
    if (!any_of(is_unbalanced(team, a, k, parts))) return;
    SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) {
      const auto step = balance_step(a, k, i);
      if (any_of(step.wanted)) balance_line(team, a, k, i, step, d);
    }
  }
}

SVD_KERNEL_END

#endif
