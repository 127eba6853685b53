// MIMO answers from the singular values s_1 >= .. >= s_k of a system's channels; definitions at MimoOptions
// (engine/options.h). Nothing here over- or underflows for finite s and an SNR of +-300 dB: a stream's gain
// g_i = SNR s_i^2 is a mantissa and an exponent throughout.
//
//   equal_power_capacity  sum_i log2(1 + SNR s_i^2 / cols)
//   water_filling         sum_i log2(1 + y_i), y_i = max(0, level - v_i) g_i, v_i = 1 / g_i, the level such that
//                         sum_i max(0, level - v_i) = power: exactly, not by iterating to a tolerance
//   stream_snr, condition_number, effective_rank, threshold_rank
//   group_capacity, group_water_filling: the same over the streams of several matrices
//
// Water-filling of one matrix. Streams come sorted, so the level with the first r in use is (power + sum_{i<=r} v_i) /
// r and r is the largest with v_r below it. E. Telatar, "Capacity of multi-antenna Gaussian channels", Eur. Trans.
// Telecommun. 10 (1999) 585-595, doi 10.1002/ett.4460100604, section 3.1; D. Tse and P. Viswanath, "Fundamentals of
// Wireless Communication" (2005), section 5.3.3.
// Water-filling of a group: streams are not sorted. The search starts from level = power + v_1, an upper bound. Streams
// with v_i above the level are left out and the level is computed anew from the others, until none is left out. The
// sets shrink, so this ends, with the answer. It is the projection onto a simplex by C. Michelot, J. Optim. Theory
// Appl. 50 (1986) 195-200, doi 10.1007/BF00938486. Each pass with a set that shrinks by a factor 1 / (1 + q) lowers the
// level by at most q times the change of the pass before. So there are a few dozen passes at worst; 3 to 6 are usual.
// Both work with v_i - v_1, and in units of power in which the larger of 1 and v_1 is about one. So nothing cancels,
// capacities far below 1 are as accurate as large ones, and no range is left. A v_i beyond 2^900 (f32: 2^100) such
// units gets no power whatever it is; one below 2^-900 (2^-100) counts as that.
//
// Order of summation: streams of a matrix as core/reduce.h says. Over a group the terms of all streams, matrix by
// matrix and descending in each, are dealt to 8 partial sums in double precision. Term j goes to partial j mod 8;
// reduce.h's tree joins the partials. Accuracy: a few ulp of the sum of terms, relative. Near the SNR at which a
// stream comes into use its own part is absolute to that. Sums over groups carry n / 8 double roundings at worst, n
// streams. Not finite: a matrix of NaN answers NaN, and so does its group. A value of +inf, which is out of range,
// makes capacities and stream SNR +inf. The condition number of more than one value, not all infinite, is +inf, too;
// the ranks are NaN.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_ANSWERS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_ANSWERS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_ANSWERS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_MIMO_MIMO_ANSWERS_H_
#endif

#include "engine/algorithms/mimo/mimo_task.h"
#include "engine/core/logarithm.h"
#include "engine/core/reduce.h"
#include "engine/core/scaling.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// The one NaN that is written, whatever NaN x is.
template <class Lane>
SVD_HD Lane one_nan(Lane x) {
  return select(x == x, x, Lane(FloatTraits<typename Lane::Scalar>::nan()));
}

// --- one stream ----------------------------------------------------------------------------------------------------

// s^2 = square 2^exponent, square in [1, 4); inverse = 1 / square. s = 0: square 0, inverse 1, and an exponent below
// that of any other. NaN: square NaN, the rest as if it were 1.
template <class Lane>
struct Stream {
  Lane square, inverse, exponent;
};

template <class Lane>
SVD_HD Stream<Lane> make_stream(Lane s) {
  using T = typename Lane::Scalar;
  constexpr T kNothing = sizeof(T) == 4 ? -1000 : -8000;
  const Lane e = binary_exponent(s);
  const Lane m = s * make_pow2(-e);
  const Lane square = m * m;
  return {square, reciprocal(select(s > Lane(0), square, Lane(1))), select(s == Lane(0), Lane(kNothing), e + e)};
}

// log2(1 + SNR s^2); kModerate: |exponents| of both together are within moderate_exponent(), which saves a fifth.
template <bool kModerate = false, class Lane>
SVD_HD Lane capacity_term(const Stream<Lane>& stream, const ScaledNumber<typename Lane::Scalar>& snr) {
  const Lane a = stream.square * Lane(snr.mantissa), e = stream.exponent + Lane(snr.exponent);
  if constexpr (kModerate) return log2_1p(a * pow2(e));
  return log2_1p_scaled(a, e);
}

// SNR s^2, rounded once where it is denormal.
template <class Lane>
SVD_HD Lane gain(const Stream<Lane>& stream, const ScaledNumber<typename Lane::Scalar>& snr) {
  using T = typename Lane::Scalar;
  constexpr T kMost = 2 * (FloatTraits<T>::kBias - 7);  // of make_pow2(); beyond all numbers
  const Lane e = stream.exponent + Lane(snr.exponent);
  return (stream.square * Lane(snr.mantissa)) * make_pow2(larger(smaller(e, Lane(kMost)), Lane(-kMost)));
}

// The units in which power is counted at an SNR: 1, or v_1 where that is larger, but for its mantissa.
template <class Lane>
struct PowerUnit {
  using T = typename Lane::Scalar;
  ScaledNumber<T> snr;
  Lane exponent;  // of 1 / unit; <= 0

  SVD_HD PowerUnit(const Stream<Lane>& strongest, const ScaledNumber<T>& s)
      : snr(s), exponent(smaller(strongest.exponent + Lane(s.exponent), Lane(0))) {}

  SVD_HD Lane power(T p) const { return times_pow2_or_zero(Lane(p), exponent); }
  // v = 1 / g
  SVD_HD Lane noise(const Stream<Lane>& stream) const {
    const Lane most(moderate_exponent<T>());
    const Lane e = exponent - (stream.exponent + Lane(snr.exponent));
    return (stream.inverse * Lane(snr.reciprocal)) * pow2(larger(smaller(e, most), -most));
  }
  // log2(1 + power g), of the power that a stream is given
  SVD_HD Lane capacity(const Stream<Lane>& stream, Lane given) const {
    return log2_1p_scaled(larger(given, Lane(0)) * (stream.square * Lane(snr.mantissa)),
                          (stream.exponent + Lane(snr.exponent)) - exponent);
  }
};

// --- one matrix a lane -----------------------------------------------------------------------------------------------
// streams, terms: k lanes; terms is scratch. s: the largest and the smallest value where that is all that counts.

template <class Lane, class Size>
SVD_HD Lane sum_of_terms(Size k, const Lane* terms) {
  return sum_of(k, Lane(0), [&](Lane sum, int i) SVD_LAMBDA { return sum + terms[i]; });
}

template <class Lane, class Size>
SVD_HD Lane equal_power_capacity(Size k, const Stream<Lane>* streams, const ScaledNumber<typename Lane::Scalar>& snr,
                                 Lane* terms) {
  const Lane most(moderate_exponent<typename Lane::Scalar>()), e(snr.exponent);
  const auto moderate = (streams[0].exponent + e <= most) & (streams[k - 1].exponent + e >= -most);
  if (!any_of(!moderate)) {  // all but always; the bits are the same
    SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) terms[i] = capacity_term<true>(streams[i], snr);
  } else {
    SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) terms[i] = capacity_term(streams[i], snr);
  }
  return one_nan(sum_of_terms(k, terms));
}

// The level above v_1, for a power of 1. terms[i] = v_i - v_1.
template <class Lane>
struct WaterLevel {
  PowerUnit<Lane> unit;
  Lane level, least_noise;  // v_1
};
template <class Lane, class Size>
SVD_HD WaterLevel<Lane> water_level(Size k, const Stream<Lane>* streams, const ScaledNumber<typename Lane::Scalar>& snr,
                                    Lane* terms) {
  using T = typename Lane::Scalar;
  const PowerUnit<Lane> unit(streams[0], snr);
  const Lane power = unit.power(T(1)), least_noise = unit.noise(streams[0]);
  Lane level = power, sum(0);
  auto in_use = Lane::mask(true);
  terms[0] = Lane(0);
  SVD_UNROLL_DEVICE for (int i = 1; i < k; ++i) {
    terms[i] = unit.noise(streams[i]) - least_noise;
    sum = sum + terms[i];
    const Lane with_this = (power + sum) * Lane(T(1) / T(i + 1));
    in_use = in_use & (terms[i] <= with_this);
    level = select(in_use, with_this, level);
  }
  return {unit, level, least_noise};
}

// largest: s_1. The power is 1.
template <class Lane, class Size>
SVD_HD Lane water_filling(Size k, Lane largest, const Stream<Lane>* streams,
                          const ScaledNumber<typename Lane::Scalar>& snr, Lane* terms) {
  using T = typename Lane::Scalar;
  const auto [unit, level, least_noise] = water_level(k, streams, snr, terms);
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) terms[i] = unit.capacity(streams[i], level - terms[i]);
  return one_nan(select(largest <= Lane(FloatTraits<T>::kLargest), sum_of_terms(k, terms), largest));
}

template <class Lane>
SVD_HD Lane stream_snr(const Stream<Lane>& stream, const ScaledNumber<typename Lane::Scalar>& snr) {
  return one_nan(gain(stream, snr));
}

template <class Lane>
SVD_HD Lane condition_number(Lane largest, Lane smallest) {
  using T = typename Lane::Scalar;
  const Lane infinity = Lane(FloatTraits<T>::kLargest) + Lane(FloatTraits<T>::kLargest);
  return one_nan(select(smallest == Lane(0), infinity, largest / smallest));
}

// Lanes whose ranks are numbers above 0; of the others an s_1 = 0 has rank 0.
template <class Lane>
SVD_HD typename Lane::Mask has_rank(Lane largest) {
  return (largest > Lane(0)) & (largest <= Lane(FloatTraits<typename Lane::Scalar>::kLargest));
}
template <class Lane>
SVD_HD Lane rank_or(Lane largest, Lane rank) {
  const Lane other = select(largest == Lane(0), Lane(0), Lane(FloatTraits<typename Lane::Scalar>::nan()));
  return select(has_rank(largest), rank, other);
}

// sum_i -t_i log2(t_i) and sum_i t_i. relative(i) gives t_i = s_i / s_1.
template <class Lane>
struct RankSums {
  Lane entropy, sum;
};
template <class Size, class Relative, class Lane>
SVD_HD RankSums<Lane> rank_sums(Size k, Relative relative, Lane* terms) {
  const Lane one(1), least(2 * FloatTraits<typename Lane::Scalar>::kSmallestNormal);
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) {
    const Lane t = relative(i);
    terms[i] = -t * log2(select(t >= least, t, one));
  }
  const Lane entropy = sum_of_terms(k, terms);
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) terms[i] = relative(i);
  return {entropy, sum_of_terms(k, terms)};
}

// 2^H, H = log2(S) + (sum_i -t_i log2(t_i)) / S with t_i = s_i / s_1 and S their sum: no term is negative. O. Roy and
// M. Vetterli, "The effective rank", EUSIPCO 2007, section 2. value(i) gives s_i.
template <class Lane, class Size, class Value>
SVD_HD Lane effective_rank(Size k, Value value, Lane* terms) {
  const Lane largest = value(0), one(1);
  const auto ok = has_rank(largest);
  const auto relative = [&](int i) SVD_LAMBDA { return select(ok, value(i), one) / select(ok, largest, one); };
  const RankSums<Lane> sums = rank_sums(k, relative, terms);
  return rank_or(largest, exp2(log2(sums.sum) + sums.entropy / sums.sum));
}

// Counted on s_i 2^-e, s_1 2^-e in [1, 2), so that the product does not underflow.
template <class Lane, class Size, class Value>
SVD_HD Lane threshold_rank(Size k, Value value, typename Lane::Scalar threshold) {
  const Lane largest = value(0);
  const Pow2<Lane> scale = make_pow2(-binary_exponent(largest));
  const Lane bound = (largest * scale) * Lane(threshold);
  Lane rank(0);
  SVD_UNROLL_DEVICE for (int i = 0; i < k; ++i) { rank = rank + select(value(i) * scale > bound, Lane(1), Lane(0)); }
  return rank_or(largest, rank);
}

// --- a group of matrices -------------------------------------------------------------------------------------------
// Streams knows the streams of the group, lanes of double beside each other:
//   Streams::Lane
//   largest()              the largest value of all; NaN if one is
//   template sums<n>(f, sums)  sums[x] = the sum over all streams of what f(stream, terms) leaves in terms[x]; a Lane
//                          with the same number in every lane
// Every answer is a number that all lanes hold.

template <class Streams>
SVD_HD typename Streams::Lane group_capacity(const Streams& streams, const ScaledNumber<double>& snr) {
  using Lane = typename Streams::Lane;
  Lane sum[1];
  streams.template sums<1>([&](const Stream<Lane>& x, Lane* term) SVD_LAMBDA { term[0] = capacity_term(x, snr); }, sum);
  return one_nan(sum[0]);
}

// power: the number of matrices. The loop is left when a pass leaves none out, which all lanes agree on.
template <class Streams>
SVD_HD typename Streams::Lane group_water_filling(const Streams& streams, const ScaledNumber<double>& snr,
                                                  double power) {
  using Lane = typename Streams::Lane;
  const Lane largest = streams.largest();
  if (any_of(!(largest <= Lane(FloatTraits<double>::kLargest)))) return one_nan(largest);
  const Stream<Lane> strongest = make_stream(largest);
  const PowerUnit<Lane> unit(strongest, snr);
  const Lane all_power = unit.power(power), least_noise = unit.noise(strongest);
  Lane level = all_power, in_use(0);
  for (;;) {
    Lane kept[2];  // the sum of v - v_1 over those below the level, and their number
    streams.template sums<2>(
        [&](const Stream<Lane>& x, Lane* terms) SVD_LAMBDA {
          const Lane above = unit.noise(x) - least_noise;
          const auto below_level = above <= level;
          terms[0] = select(below_level, above, Lane(0));
          terms[1] = select(below_level, Lane(1), Lane(0));
        },
        kept);
    if (!any_of(!(kept[1] == in_use))) break;
    in_use = kept[1];
    level = smaller((all_power + kept[0]) / in_use, level);  // rounding never lets the set grow
  }
  Lane sum[1];
  streams.template sums<1>([&](const Stream<Lane>& x, Lane* term)
                               SVD_LAMBDA { term[0] = unit.capacity(x, level - (unit.noise(x) - least_noise)); },
                           sum);
  return one_nan(sum[0]);
}

SVD_KERNEL_END

#endif
