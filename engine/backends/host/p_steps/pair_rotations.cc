#include "engine/backends/host/p_steps/pair_rotations.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/p_steps/pair_rotations.cc"
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/algorithms/jacobi/signed_rotation.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace svdserve::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using Tag = hn::CappedTag<double, kPlaneAlignment>;
using Vec = hn::Vec<Tag>;

// A rotation of scaled columns, and conj(omega).
struct Rotation {
  TangentRotation by;
  double omega_re = 1, omega_im = 0;
};

// The same as x_p := x_p - s_p (w + tau_q x_p), x_q := w + s_q (x_p - tau_p w), s = c t, tau = s / (1 + c), which is
// Rutishauser's form: 1 - c = s_p s_q / (1 + c), of the hyperbolic one as well. Eq. 13 as it stands
// makes all columns grow, by 400 u in 10 sweeps of n = 256: cosines near 1 are rounded up more often than down.
struct Increments {
  double s_p, s_q, tau_p, tau_q;
  explicit Increments(const TangentRotation& r)
      : s_p(r.c * r.t_p), s_q(r.c * r.t_q), tau_p(s_p / (1 + r.c)), tau_q(s_q / (1 + r.c)) {}
};

// r_p^H r_q
template <int kPlanes>
HWY_INLINE void inner_product(const double* x, const double* y, int ld, double& re, double& im) {
  const Tag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  Vec re0 = hn::Zero(d), re1 = hn::Zero(d), im0 = hn::Zero(d), im1 = hn::Zero(d);
  for (int i = 0; i < ld; i += lanes) {
    const Vec x_re = hn::Load(d, x + i), y_re = hn::Load(d, y + i);
    re0 = hn::MulAdd(x_re, y_re, re0);
    if constexpr (kPlanes == 2) {
      const Vec x_im = hn::Load(d, x + ld + i), y_im = hn::Load(d, y + ld + i);
      re1 = hn::MulAdd(x_im, y_im, re1);
      im0 = hn::MulAdd(x_re, y_im, im0);
      im1 = hn::MulAdd(x_im, y_re, im1);
    } else if (i + lanes < ld) {
      i += lanes;
      re1 = hn::MulAdd(hn::Load(d, x + i), hn::Load(d, y + i), re1);
    }
  }
  re = hn::GetLane(hn::SumOfLanes(d, hn::Add(re0, re1)));
  if constexpr (kPlanes == 2) im = hn::GetLane(hn::SumOfLanes(d, hn::Sub(im0, im1)));
}

HWY_INLINE double square(const double* x, int count) {
  double re, im;
  inner_product<1>(x, x, count, re, im);
  return re;
}

// `swap`: the two columns change places.
template <int kPlanes>
HWY_INLINE void rotate(double* x, double* y, int ld, const Rotation& rotation, bool swap) {
  const Tag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const Increments by(rotation.by);
  const Vec s_p = hn::Set(d, by.s_p), s_q = hn::Set(d, by.s_q);
  const Vec tau_p = hn::Set(d, by.tau_p), tau_q = hn::Set(d, by.tau_q);
  const Vec o_re = hn::Set(d, rotation.omega_re), o_im = hn::Set(d, rotation.omega_im);
  double* to_p = swap ? y : x;
  double* to_q = swap ? x : y;
  for (int i = 0; i < ld; i += lanes) {
    const Vec x_re = hn::Load(d, x + i), y_re = hn::Load(d, y + i);
    if constexpr (kPlanes == 1) {
      const Vec w = hn::Mul(o_re, y_re);
      hn::Store(hn::NegMulAdd(s_p, hn::MulAdd(tau_q, x_re, w), x_re), d, to_p + i);
      hn::Store(hn::MulAdd(s_q, hn::NegMulAdd(tau_p, w, x_re), w), d, to_q + i);
    } else {
      const Vec x_im = hn::Load(d, x + ld + i), y_im = hn::Load(d, y + ld + i);
      const Vec w_re = hn::NegMulAdd(o_im, y_im, hn::Mul(o_re, y_re));
      const Vec w_im = hn::MulAdd(o_im, y_re, hn::Mul(o_re, y_im));
      hn::Store(hn::NegMulAdd(s_p, hn::MulAdd(tau_q, x_re, w_re), x_re), d, to_p + i);
      hn::Store(hn::NegMulAdd(s_p, hn::MulAdd(tau_q, x_im, w_im), x_im), d, to_p + ld + i);
      hn::Store(hn::MulAdd(s_q, hn::NegMulAdd(tau_p, w_re, x_re), w_re), d, to_q + i);
      hn::Store(hn::MulAdd(s_q, hn::NegMulAdd(tau_p, w_im, x_im), w_im), d, to_q + ld + i);
    }
  }
}

template <int kPlanes>
class Solver {
 public:
  Solver(const PairFactor& factor, double tolerance) : a_(factor), tolerance_squared_(tolerance * tolerance) {}

  RotationCounts run(const std::vector<PivotPair>& order, int max_sweeps) {
    for (int sweep = 0; sweep < max_sweeps; ++sweep) {
      for (int j = 0; j < a_.size; ++j) a_.squares[j] = square(a_.r_column(j), kPlanes * a_.ld);
      const int64_t before = counts_.rotations;
      for (const PivotPair pair : order) treat(pair.p, pair.q);
      if (counts_.rotations == before) break;
    }
    return counts_;
  }

 private:
  HWY_INLINE void treat(int p, int q) {
    double* const x = a_.r_column(p);
    double* const y = a_.r_column(q);
    double re, im = 0;
    inner_product<kPlanes>(x, y, a_.ld, re, im);
    double& alpha = a_.squares[p];
    double& beta = a_.squares[q];
    const double gamma_squared = re * re + im * im;
    if (!(gamma_squared > tolerance_squared_ * (alpha * beta))) return;
    const double gamma = kPlanes == 1 ? std::abs(re) : std::sqrt(gamma_squared);
    Rotation rotation;
    if constexpr (kPlanes == 1) {
      rotation.omega_re = std::copysign(1.0, re);
    } else {
      rotation.omega_re = re / gamma;
      rotation.omega_im = -im / gamma;
    }
    const TangentWeights weights = tangent_weights(a_.f[p], a_.f[q]);
    const PairSigns signs = pair_signs(p < a_.positive, q < a_.positive);
    rotation.by = tangent_rotation(alpha, beta, gamma, weights, signs);
    const double next_alpha = alpha - rotation.by.t_p * gamma, next_beta = beta + rotation.by.t_q * gamma;
    const bool swap = out_of_order(signs, next_alpha * weights.p, next_beta * weights.q);
    rotate<kPlanes>(x, y, a_.ld, rotation, swap);
    rotate<kPlanes>(a_.w_column(p), a_.w_column(q), a_.ld, rotation, swap);
    // Where much was cancelled the difference has lost digits.
    const bool exact_alpha = next_alpha < 0.25 * alpha, exact_beta = next_beta < 0.25 * beta;
    alpha = next_alpha;
    beta = next_beta;
    if (swap) {
      std::swap(alpha, beta);
      std::swap(a_.f[p], a_.f[q]);
    }
    if (exact_alpha) (swap ? beta : alpha) = square(swap ? y : x, kPlanes * a_.ld);
    if (exact_beta) (swap ? alpha : beta) = square(swap ? x : y, kPlanes * a_.ld);
    ++counts_.rotations;
    counts_.proper += rotation.by.c != 1;
  }

  const PairFactor a_;
  const double tolerance_squared_;
  RotationCounts counts_;
};

}  // namespace

RotationCounts rotate_pairs_of_target(const PairFactor& factor, const std::vector<PivotPair>& order, double tolerance,
                                      int max_sweeps) {
  return factor.planes == 1 ? Solver<1>(factor, tolerance).run(order, max_sweeps)
                            : Solver<2>(factor, tolerance).run(order, max_sweeps);
}

}  // namespace svdserve::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace svdserve::host {
HWY_EXPORT(rotate_pairs_of_target);
RotationCounts rotate_pairs(const PairFactor& factor, const std::vector<PivotPair>& order, double tolerance,
                            int max_sweeps) {
  return HWY_DYNAMIC_DISPATCH(rotate_pairs_of_target)(factor, order, tolerance, max_sweeps);
}
}  // namespace svdserve::host
#endif
