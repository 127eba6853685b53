// Gradients of MIMO numbers. F is a function of the singular values of A = U S V^H; w_i = dF / ds_i.
//
//   G = U diag(w) V^H,   F(A + D) = F(A) + Re tr(G^H D) + o(|D|)
//
// G has the shape of A. For complex A it is dF / d Re A + i dF / d Im A, which is what automatic differentiation wants.
// With the definitions of mimo_answers.h, g_i = SNR s_i^2 and c = 2 / ln 2:
//
//   capacity        w_i = c SNR' s_i / (1 + SNR' s_i^2), SNR' = SNR / cols
//   water-filling   w_i = c p_i / (s_i level), p_i = max(0, level - 1 / g_i) the power of stream i: that the powers
//                   depend on A adds nothing, since they are optimal. Where g_1 is below the smallest number, so are
//                   the powers in units of the level, and w = 0
//   effective rank  w_i = -R (ln t_i + E) / (s_1 sum_j t_j), R the rank, t_i = s_i / s_1, E = -sum t_i ln t_i / sum t_i
//
// A value of zero has w_i = 0. For the capacities that is the derivative. The effective rank has none there: it grows
// like s_i ln(1 / s_i) in every direction. Equal values do no harm: w is the same for all of them, and G is unique.
// Where s_i is not finite, w_i = 0; a weight beyond the range of numbers is the largest number.
//
// G is computed as that of T = X S Y^H (engine/vector_layout.h): X diag(w) Y^H is G, or its transpose where A is wide.
// Shapes: X rows x k, Y k x k. Components of products are added as in core/reduce.h. One matrix a team. Cost: 2 rows k^2
// flops (complex: four times) for each G, and 40 k for w. Accuracy: G is that of a matrix within the backward error of
// the decomposition, and |G - U diag(w) V^H|_F <= (k + 20) u |w|. Where G varies as f'' |D|, so does its error:
// |f''| <= c SNR' for the capacity.
// Source: A. S. Lewis, "Derivatives of spectral functions", Math. Oper. Res. 21 (1996) 576-588, for Hermitian matrices;
// A. S. Lewis and H. S. Sendov, "Nonsmooth analysis of singular values", Set-Valued Anal. 13 (2005) 213-241. For the
// powers: J. M. Danskin, "The theory of max-min, with applications", SIAM J. Appl. Math. 14 (1966) 641-664.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_MIMO_GRADIENTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_MIMO_GRADIENTS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_MIMO_GRADIENTS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_MIMO_GRADIENTS_H_
#endif

#include "engine/algorithms/mimo/mimo_answers.h"
#include "engine/core/strided.h"

SVD_KERNEL_BEGIN

// Scratch that the team shares.
template <class Lane>
struct GradientWorkspace {
  Lane* weights;          // k
  Lane* terms;            // k
  Lane* totals;           // 3
  Stream<Lane>* streams;  // k

  static constexpr SVD_HD int64_t numbers(int64_t k) { return 5 * k + 3; }
  static SVD_HD GradientWorkspace in(Lane* memory, int k) {
    return {memory, memory + k, memory + 2 * k, reinterpret_cast<Stream<Lane>*>(memory + 2 * k + 3)};
  }
};

// numerator 2^exponent / s, or the largest number; zero for an s that is zero or not finite.
template <class Lane>
SVD_HD Lane over_value(Lane numerator, Lane s) {
  using T = typename Lane::Scalar;
  const Lane largest(FloatTraits<T>::kLargest);
  const auto ok = (s > Lane(0)) & (s <= largest);
  const Lane some = select(ok, s, Lane(1)), e = binary_exponent(some);
  const Lane quotient = (numerator / (some * make_pow2(-e))) * make_pow2(-e);
  return select(ok, smaller(quotient, largest), Lane(0));
}

// c SNR' s / (1 + SNR' s^2) = c (g / (1 + g)) / s, and g / (1 + g) = 1 / (1 + 1 / g). The smaller of g and 1 / g is
// taken, so that no range is left.
template <class Lane>
SVD_HD Lane capacity_weight(Lane s, const ScaledNumber<typename Lane::Scalar>& snr) {
  using T = typename Lane::Scalar;
  constexpr T kTwoOverLn2 = static_cast<T>(2.885390081777926814719849362003784);
  const Lane largest(FloatTraits<T>::kLargest), zero(0), one(1);
  const auto ok = (s > zero) & (s <= largest);
  const Lane some = select(ok, s, one), e = binary_exponent(some), m = some * make_pow2(-e);
  const Lane mantissa = (m * m) * Lane(snr.mantissa), exponent = (e + e) + Lane(snr.exponent);
  const auto large = exponent > zero;
  const Lane small_gain =
      times_pow2_or_zero(select(large, one / mantissa, mantissa), select(large, -exponent, exponent));
  const Lane numerator = select(large, one / m, m * Lane(snr.mantissa));
  const Lane power = select(large, -e, Lane(snr.exponent) + e), most(2 * (FloatTraits<T>::kBias - 7));
  const Lane weight =
      (Lane(kTwoOverLn2) * (numerator / (one + small_gain))) * make_pow2(larger(smaller(power, most), -most));
  return select(ok, smaller(weight, largest), zero);
}

// The weights of water-filling at an SNR. s: k values.
template <class Team, class Lane>
SVD_HD void water_filling_weights(const Team& team, int k, const Lane* s,
                                  const ScaledNumber<typename Lane::Scalar>& snr, const GradientWorkspace<Lane>& work) {
  using T = typename Lane::Scalar;
  constexpr T kTwoOverLn2 = static_cast<T>(2.885390081777926814719849362003784);
  team.for_each(0, k, [&](int i) SVD_LAMBDA { work.streams[i] = make_stream(s[i]); });
  team.once([&]() SVD_LAMBDA {
    const WaterLevel<Lane> water = water_level(RuntimeSize{k}, work.streams, snr, work.terms);
    work.totals[0] = water.level;
    work.totals[1] = water.level + water.least_noise;
  });
  const auto finite = s[0] <= Lane(FloatTraits<T>::kLargest);
  team.for_each(0, k, [&](int i) SVD_LAMBDA {
    const Lane power = larger(work.totals[0] - work.terms[i], Lane(0));
    const Lane weight = over_value(Lane(kTwoOverLn2) * (power / work.totals[1]), s[i]);
    work.weights[i] = select(finite, weight, Lane(0));
  });
}

// The weights of the effective rank.
template <class Team, class Lane>
SVD_HD void effective_rank_weights(const Team& team, int k, const Lane* s, const GradientWorkspace<Lane>& work) {
  using T = typename Lane::Scalar;
  constexpr T kLn2 = static_cast<T>(0.6931471805599453094172321214581766);
  const Lane one(1), least(2 * FloatTraits<T>::kSmallestNormal);
  const auto ok = has_rank(s[0]);
  const auto relative = [&](int i) SVD_LAMBDA { return select(ok, s[i], one) / select(ok, s[0], one); };
  team.once([&]() SVD_LAMBDA {
    const RankSums<Lane> sums = rank_sums(RuntimeSize{k}, relative, work.terms);
    const Lane entropy = sums.entropy / sums.sum;
    work.totals[0] = entropy;
    work.totals[1] = exp2(log2(sums.sum) + entropy) * Lane(kLn2) / sums.sum;
  });
  team.for_each(0, k, [&](int i) SVD_LAMBDA {
    const Lane t = relative(i);
    const auto counts = ok & (t >= least);
    const Lane weight = work.totals[1] * -(log2(select(counts, t, one)) + work.totals[0]);
    // Its sign is either one.
    const Lane size = over_value(abs(weight), s[0]);
    work.weights[i] = select(counts, copysign(size, weight), Lane(0));
  });
}

// Where the gradients of a matrix go: number x of a kind to `first` + x `stride` bytes; null: not wanted.
struct GradientPlaces {
  char *capacity = nullptr, *water_filling = nullptr, *effective_rank = nullptr;
  int64_t row_stride = 0, col_stride = 0;  // of T's elements, in elements
  int64_t stride = 0;                      // of a gradient, in bytes

  // Those of matrix m of a batch, from those of its first one.
  SVD_HD GradientPlaces of_matrix(int64_t m, int snrs) const {
    const auto at = [&](char* first, int count)
                        SVD_LAMBDA { return first == nullptr ? nullptr : first + m * count * stride; };
    return {at(capacity, snrs), at(water_filling, snrs), at(effective_rank, 1), row_stride, col_stride, stride};
  }
};

// One gradient, from the weights. x and y have k columns at least.
template <class Team, class E>
SVD_HD void write_gradient(const Team& team, const VectorMatrix<E>& x, const VectorMatrix<E>& y, int k, bool finite,
                           const typename E::Lane* weights, const GradientPlaces& places, char* to) {
  const VectorMatrix<E> g{{to, places.row_stride, places.col_stride, false}, x.rows, k};
  g.for_each(team, 0, k, [&](int i, int j) SVD_LAMBDA {
    if (!finite) return g.at.set_nan(i, j);
    g.at.set(i, j, sum_of(k, zero_element<E>(), [&](const E& sum, int l) SVD_LAMBDA {
               return add_product(sum, y.at(j, l), scaled(x.at(i, l), weights[l]));
             }));
  });
}

// All gradients of a matrix that are wanted.
template <class Team, class E>
SVD_HD void write_gradients(const Team& team, const VectorMatrix<E>& x, const VectorMatrix<E>& y,
                            const typename E::Lane* s, int k, bool finite, const MimoTask<typename E::Scalar>& task,
                            const GradientPlaces& places, const GradientWorkspace<typename E::Lane>& work) {
  const auto write = [&](char* to) SVD_LAMBDA {
    write_gradient(team, x, y, k, finite, work.weights, places, to);
    team.sync();  // the weights are written again
  };
  for (int n = 0; n < task.snr_count; ++n) {
    if (places.capacity != nullptr) {
      if (finite) {
        team.for_each(0, k, [&](int i) SVD_LAMBDA { work.weights[i] = capacity_weight(s[i], task.snr_over_cols[n]); });
      }
      write(places.capacity + n * places.stride);
    }
    if (places.water_filling != nullptr) {
      if (finite) water_filling_weights(team, k, s, task.snr[n], work);
      write(places.water_filling + n * places.stride);
    }
  }
  if (places.effective_rank != nullptr) {
    if (finite) effective_rank_weights(team, k, s, work);
    write(places.effective_rank);
  }
}

SVD_KERNEL_END

#endif
