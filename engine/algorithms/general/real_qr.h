// Double-shift QR iteration of a real Hessenberg matrix: H = Q T Q^T, T with blocks of order one and two on its
// diagonal; Z := Z Q. A team has a matrix in each lane.
//
//   mu, mu': the eigenvalues p +- i q of the window's last 2x2 block, or twice the real one nearer to h_{hi,hi}
//   (H - mu I)(H - mu' I) = Q R,   H := Q^T H Q
//
// implicitly: reflectors of three rows and columns j .. j + 2, j = lo .. hi - 1 (the last of two). The first of them
// takes to a multiple of e_1
//   ((h00 - p)^2 + q^2 + h01 h10,   h10 ((h00 - p) + (h11 - p)),   h10 h21)^T,   h00 = h_{lo,lo}
// The others chase the bulge. Conjugate pairs of eigenvalues stay together, so they come out as exact conjugates. Each
// lane has a window of its own, as in complex_qr.h.
// Source: Francis, Comput. J. 4 (1961) 265-271 and 332-345; Golub and Van Loan, Matrix Computations, 3rd ed., section
// 7.5; the exceptional shift: Martin, Peters and Wilkinson, Numer. Math. 14 (1970) 219-231.
// Cost: about 1.2 sweeps an eigenvalue; a sweep has k - 1 reflectors of 2 k (with Z 3 k) triples of 10 flops.
// Accuracy: backward stable.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_REAL_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_REAL_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_REAL_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_REAL_QR_H_
#endif

#include "engine/algorithms/general/line_phases.h"
#include "engine/algorithms/general/schur_window.h"
#include "engine/algorithms/tall/householder.h"

SVD_KERNEL_BEGIN

// p and q^2 of the shifts p +- i q; q^2 = 0 for a double real one.
template <class Lane>
struct ShiftPair {
  Lane p, q2;
};

template <class A, class Lane, class Size>
SVD_HD ShiftPair<Lane> shifts_of(A h, Size k, const Window<Lane>& window) {
  using E = typename A::Element;
  const Lane zero(0);
  const auto element = [&](int row, int column) SVD_LAMBDA {
    return picked<E>(k, window.hi, [&](int i) SVD_LAMBDA { return E(h(i - row, i - column)); }).re;
  };
  const Lane a = element(1, 1), b = element(1, 0), c = element(0, 1), d = element(0, 0);
  const Lane above = picked<E>(k, window.hi, [&](int i) SVD_LAMBDA { return E(h(i - 1, i > 1 ? i - 2 : 0)); }).re;
  const Lane half = (a - d) * Lane(0.5f), bc = b * c, square = fma(half, half, bc);
  const auto real = square >= zero;
  const Lane root = sqrt(select(real, square, zero));
  const Lane sum = select(half < zero, half - root, half + root);
  const auto usable = abs(sum) > zero;
  const Lane nearer = d - select(usable, bc / select(usable, sum, Lane(1)), zero);
  const auto exceptional = window.sweeps == index_lane<Lane>(kExceptionalSweep);
  const Lane size = abs(c) + abs(above);
  ShiftPair<Lane> shifts;
  shifts.p = select(exceptional, fma(Lane(0.75f), size, d), select(real, nearer, (a + d) * Lane(0.5f)));
  shifts.q2 = select(exceptional, Lane(0.4375f) * (size * size), select(real, zero, -square));
  return shifts;
}

// x - (x u) g u^T for three or two neighbouring elements of a row, and likewise for a column. beta: what x_0 becomes.
template <class Lane>
struct ShortReflector {
  Lane g, u0, u1, u2, beta;

  SVD_HD void apply(Lane& x0, Lane& x1, Lane& x2) const {
    const Lane w = g * fma(u2, x2, fma(u1, x1, u0 * x0));
    x0 = fnma(u0, w, x0);
    x1 = fnma(u1, w, x1);
    x2 = fnma(u2, w, x2);
  }
  SVD_HD void apply(Lane& x0, Lane& x1) const {
    const Lane w = g * fma(u1, x1, u0 * x0);
    x0 = fnma(u0, w, x0);
    x1 = fnma(u1, w, x1);
  }
};

// The vector that the reflector of step j takes to a multiple of e_1; where a window begins, the one of its shifts.
template <class Lane>
struct ShortVector {
  Lane x0, x1, x2;
};
template <bool kThree, class Team, class A, class Lane>
SVD_HD ShortVector<Lane> vector_of_step(const Team& team, A h, int j, const ShiftPair<Lane>& shifts,
                                        typename Lane::Mask first) {
  const int before = j > 0 ? j - 1 : 0;
  ShortVector<Lane> x{h(j, before).re, h(j + 1, before).re, Lane(0)};
  if constexpr (kThree) x.x2 = h(j + 2, before).re;
  if (!any_of(first)) return x;
  const Lane h10 = h(j + 1, j).re, from00 = h(j, j).re - shifts.p, from11 = h(j + 1, j + 1).re - shifts.p;
  x.x0 = select(first, fma(h(j, j + 1).re, h10, fma(from00, from00, shifts.q2)), x.x0);
  x.x1 = select(first, h10 * (from00 + from11), x.x1);
  if constexpr (kThree) x.x2 = select(first, h10 * h(j + 2, j + 1).re, x.x2);
  team.sync();  // the reflection of rows writes what was read
  return x;
}

// Scaled to about one: a bulge may be a product of rounding errors.
template <class E, class Lane>
SVD_HD ShortReflector<Lane> short_reflector(const ShortVector<Lane>& x, typename Lane::Mask act) {
  const Lane e = binary_exponent(at_least(abs(x.x0), at_least(abs(x.x1), abs(x.x2))));
  const Pow2<Lane> lift = make_pow2(-e);
  const Lane x0 = x.x0 * lift, x1 = x.x1 * lift, x2 = x.x2 * lift;
  const Reflector<E> r = reflector_of<E>(fma(x2, x2, fma(x1, x1, x0 * x0)), E{x0});
  return {select(act, r.g, Lane(0)), r.u0.re, x1, x2, r.beta.re * make_pow2(e)};
}

// Column j - 1 of h after step j.
template <bool kThree, class A, class Lane>
SVD_HD void end_column(A h, int j, Lane beta, typename Lane::Mask act, typename Lane::Mask first) {
  const Lane zero(0);
  h(j, j - 1).re = select(act & !first, beta, h(j, j - 1).re);
  h(j + 1, j - 1).re = select(act, zero, h(j + 1, j - 1).re);
  if constexpr (kThree) h(j + 2, j - 1).re = select(act, zero, h(j + 2, j - 1).re);
}

// Step j: rows and columns j .. j + 2, or j + 1 where kThree is false, and columns of z. A later step does not read what
// the columns' phase writes before column j.
template <bool kThree, class Team, class A, class Z, class Lane, class Size>
SVD_HD void reflect_step(const Team& team, A h, Z z, Size k, int j, const Window<Lane>& window,
                         const ShiftPair<Lane>& shifts, typename Lane::Mask act) {
  const auto first = window.lo == index_lane<Lane>(j);
  const auto r = short_reflector<typename A::Element>(vector_of_step<kThree>(team, h, j, shifts, act & first), act);
  each_line(team, j, k, [&](int c) SVD_LAMBDA {
    if constexpr (kThree) {
      r.apply(h(j, c).re, h(j + 1, c).re, h(j + 2, c).re);
    } else {
      r.apply(h(j, c).re, h(j + 1, c).re);
    }
  });
  team.sync();
  const auto row = [&](auto a, int i) SVD_LAMBDA {
    if constexpr (kThree) {
      r.apply(a(i, j).re, a(i, j + 1).re, a(i, j + 2).re);
    } else {
      r.apply(a(i, j).re, a(i, j + 1).re);
    }
  };
  each_line(team, 0, j + 4 < k ? j + 4 : static_cast<int>(k), [&](int i) SVD_LAMBDA { row(h, i); });
  if constexpr (kIsWanted<Z>) each_line(team, 0, k, [&](int i) SVD_LAMBDA { row(z, i); });
  if (j > 0) one(team, [&]() SVD_LAMBDA { end_column<kThree>(h, j, r.beta, act, first); });
  team.sync();
}

template <class Team, class A, class Z, class Lane, class Size>
SVD_HD void chase_double_bulge(const Team& team, A h, Z z, Size k, const Window<Lane>& window,
                               const ShiftPair<Lane>& shifts, typename Lane::Mask active) {
  SVD_UNROLL_DEVICE for (int j = 0; j + 1 < k; ++j) {
    const auto act = active & (window.lo <= index_lane<Lane>(j)) & (index_lane<Lane>(j) < window.hi);
    if (!any_of(act)) continue;
    if (j + 2 < k) {
      reflect_step<true>(team, h, z, k, j, window, shifts, act);
    } else {
      reflect_step<false>(team, h, z, k, j, window, shifts, act);
    }
  }
}

// h becomes T, z: k x k, or NoMatrix. Returns the lanes that have not converged.
template <class Team, class A, class Z, class Size>
SVD_HD typename A::Element::Lane::Mask real_schur(const Team& team, A h, Z z, Size k) {
  using Lane = typename A::Element::Lane;
  Window<Lane> window{Lane(0), Lane(0), Lane(0)};
  auto active = Lane::mask(k > 1);
  for (int sweep = 0; sweep < most_sweeps(k); ++sweep) {
    deflate(team, h, k);
    window = next_window<3>(h, k, window);  // blocks of order one and two are done
    active = window.hi > Lane(0);
    if (!any_of(active)) return active;
    chase_double_bulge(team, h, z, k, window, shifts_of(h, k, window), active);
  }
  return active;
}

SVD_KERNEL_END

#endif
