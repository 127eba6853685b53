// Double-shift QR iteration of a real Hessenberg matrix: H = Q T Q^T, T with blocks of order one and two on its
// diagonal; Z := Z Q; one matrix a lane.
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
  const Lane zero(0);
  Lane a(0), b(0), c(0), d(0), above(0);
  SVD_UNROLL for (int i = 1; i < k; ++i) {
    const auto here = window.hi == index_lane<Lane>(i);
    a = select(here, h(i - 1, i - 1).re, a);
    b = select(here, h(i - 1, i).re, b);
    c = select(here, h(i, i - 1).re, c);
    d = select(here, h(i, i).re, d);
    if (i > 1) above = select(here, h(i - 1, i - 2).re, above);
  }
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

// x - (x u) g u^T for three or two neighbouring elements of a row, and likewise for a column.
template <class Lane>
struct ShortReflector {
  Lane g, u0, u1, u2;

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

// Rows and columns j .. j + 2, or j + 1 where kThree is false.
template <bool kThree, class A, class Z, class Lane, class Size>
SVD_HD void reflect_rows_and_columns(A h, Z z, Size k, int j, const ShortReflector<Lane>& r) {
  for (int c = j; c < k; ++c) {
    if constexpr (kThree) {
      r.apply(h(j, c).re, h(j + 1, c).re, h(j + 2, c).re);
    } else {
      r.apply(h(j, c).re, h(j + 1, c).re);
    }
  }
  const int last = j + 3 < k ? j + 3 : k - 1;
  const auto row = [&](auto a, int i) SVD_LAMBDA {
    if constexpr (kThree) {
      r.apply(a(i, j).re, a(i, j + 1).re, a(i, j + 2).re);
    } else {
      r.apply(a(i, j).re, a(i, j + 1).re);
    }
  };
  for (int i = 0; i <= last; ++i) row(h, i);
  if constexpr (kIsWanted<Z>) {
    SVD_UNROLL for (int i = 0; i < k; ++i) row(z, i);
  }
}

// The reflector of step j.
template <bool kThree, class A, class Lane>
SVD_HD ShortReflector<Lane> reflector_of_step(A h, int j, const Window<Lane>& window, const ShiftPair<Lane>& shifts,
                                              typename Lane::Mask act) {
  using E = typename A::Element;
  const Lane zero(0);
  const auto first = window.lo == index_lane<Lane>(j);
  const int before = j > 0 ? j - 1 : 0;
  const Lane h10 = h(j + 1, j).re, from00 = h(j, j).re - shifts.p, from11 = h(j + 1, j + 1).re - shifts.p;
  Lane x0 = select(first, fma(h(j, j + 1).re, h10, fma(from00, from00, shifts.q2)), h(j, before).re);
  Lane x1 = select(first, h10 * (from00 + from11), h(j + 1, before).re), x2(0);
  if constexpr (kThree) x2 = select(first, h10 * h(j + 2, j + 1).re, h(j + 2, before).re);
  // Scaled to about one: a bulge may be a product of rounding errors.
  const Lane e = binary_exponent(at_least(abs(x0), at_least(abs(x1), abs(x2))));
  const Pow2<Lane> lift = make_pow2(-e);
  x0 = x0 * lift;
  x1 = x1 * lift;
  x2 = x2 * lift;
  const Reflector<E> r = reflector_of<E>(fma(x2, x2, fma(x1, x1, x0 * x0)), E{x0});
  if (j > 0) {
    h(j, j - 1).re = select(act & !first, r.beta.re * make_pow2(e), h(j, j - 1).re);
    h(j + 1, j - 1).re = select(act, zero, h(j + 1, j - 1).re);
    if constexpr (kThree) h(j + 2, j - 1).re = select(act, zero, h(j + 2, j - 1).re);
  }
  return {select(act, r.g, zero), r.u0.re, x1, x2};
}

template <class A, class Z, class Lane, class Size>
SVD_HD void chase_double_bulge(A h, Z z, Size k, const Window<Lane>& window, const ShiftPair<Lane>& shifts,
                               typename Lane::Mask active) {
  for (int j = 0; j + 1 < k; ++j) {
    const auto act = active & (window.lo <= index_lane<Lane>(j)) & (index_lane<Lane>(j) < window.hi);
    if (!any_of(act)) continue;
    if (j + 2 < k) {
      reflect_rows_and_columns<true>(h, z, k, j, reflector_of_step<true>(h, j, window, shifts, act));
    } else {
      reflect_rows_and_columns<false>(h, z, k, j, reflector_of_step<false>(h, j, window, shifts, act));
    }
  }
}

// h becomes T, z: k x k, or NoMatrix. Returns the lanes that have not converged.
template <class A, class Z, class Size>
SVD_HD typename A::Element::Lane::Mask real_schur(A h, Z z, Size k) {
  using Lane = typename A::Element::Lane;
  const Lane zero(0), one(1);
  Window<Lane> window{zero, index_lane<Lane>(k - 1), zero};
  auto active = Lane::mask(k > 1);
  for (int sweep = 0; sweep < kSweepsPerEigenvalue * k; ++sweep) {
    deflate(h, k);
    for (;;) {  // blocks of order one and two are done
      window.lo = first_of_block(h, k, window.hi);
      const auto done = (window.hi >= zero) & (window.lo >= window.hi - one);
      if (!any_of(done)) break;
      window.hi = select(done, window.lo - one, window.hi);
      window.sweeps = select(done, zero, window.sweeps);
    }
    active = window.hi > zero;
    if (!any_of(active)) return active;
    window.sweeps = next_sweep(window.sweeps, active);
    chase_double_bulge(h, z, k, window, shifts_of(h, k, window), active);
  }
  return active;
}

SVD_KERNEL_END

#endif
