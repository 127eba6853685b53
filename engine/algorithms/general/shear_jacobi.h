// Jacobi's method for general matrices: A = E T E^-1, T upper triangular but for rounding errors, of complex k x k
// matrices; one matrix a lane, and a team for it.
//
//   a sweep:  A := T_s^-1 A T_s,  E := E T_s for the steps s of a round robin            shear_step.h
//             then A := D^-1 A D, E := E D, D diagonal: even lines together, then odd ones
//     d_j = 2 or 1/2 where that shrinks h_j / d_j^2 + g_j d_j^2 by 5 %, else 1;   h_j, g_j = the squared norms of row
//     and column j without a_jj, both above (8 k u |A|_F)^2
//   until  |strict lower triangle of A|_F <= k u |A|_F,   A as it is now
//
// A factor of more than two a sweep, or one made from rounding errors, makes E singular. Without these limits, matrices
// of rank one had residuals of 1e15 u, hidden Jordan pairs 1e8 u. The triangle is enough: defective matrices never
// become diagonal. The caller takes V = E X with X of T from schur_vectors.h, and balances badly scaled matrices first.
// Left vectors are W^H = X^-1 E^-1; they are not made here.
//
// The calls of a phase touch different elements. A lane that is done gets identities, and in the end every zero is +0:
// its bits depend neither on the team nor on other lanes. Real matrices come as complex ones; conjugate_pairs.h makes
// pairs of their eigenvalues.
// Source: Eberlein, J. SIAM 10 (1962) 74-88; Goldstine and Horwitz, J. ACM 6 (1959) 176-195; Shroff, Numer. Math. 58
// (1991) 779-805. Powers of two: Parlett and Reinsch, Numer. Math. 13 (1969) 293-304. The limits are ours.
// Cost: a sweep takes 58 k^3 flops with E, 44 k^3 without, in 2 k + 3 phases. Random matrices take 5, 6.6, 8.2 and 10.3
// sweeps for k = 4, 8, 16, 32, in single precision one less; normal ones take 8 for k = 32, triangular ones none.
// Eigenvectors of condition 1e4 take 17. From the eigenvectors of a neighbour within 1e-3 it is 3, for k = 16.
// Accuracy: rho = |A V - V L|_F / |A|_F, measured for unit columns, k = 2 to 32. Random, normal, circulant, companion
// matrices, two clusters: 4.2 k u. Grcar's: 8.2 k u. Eigenvectors of condition 1e4: 9 k u (real ones in single
// precision: 16). Jordan pairs hidden by a unitary matrix: 30 k u, once 500; rank one: 1500 k u. unitary_basis.h makes
// all these 3.1 k u (the real one: 14). Eigenvalues of references of 80 digits: 4 k u |A|_F times their condition.
// Not for: Frank's matrices and single Jordan blocks hidden, or below the diagonal, of k >= 16; sparse matrices with
// nilpotent parts; D A D over 12 decades, k > 16. They end without convergence, or rho is above 10 k u; then take QR.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_JACOBI_H_
#endif

#include "engine/algorithms/general/shear_step.h"

SVD_KERNEL_BEGIN

// Memory of a call, which the team shares.
template <class Lane>
struct ShearWork {
  PairTransform<Lane>* transforms;  // round_robin_pairs(k)
  Lane *first, *second;             // k each
};

// |A|_F^2 and that of the strict lower triangle.
template <class Lane>
struct TriangleSquares {
  Lane all, lower;
};

template <class Team, class A, class Lane, class Size>
SVD_HD TriangleSquares<Lane> triangle_squares(const Team& team, A a, Size k, const ShearWork<Lane>& work) {
  using C = ComplexElement<Lane>;
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    work.first[j] = sum_of_squares<C>(k, [&](int i) SVD_LAMBDA { return a(i, j); });
    work.second[j] = sum_of_squares<C>(k - 1 - j, [&](int i) SVD_LAMBDA { return a(j + 1 + i, j); });
  });
  const auto sum = [&](const Lane* x)
                       SVD_LAMBDA { return sum_of(k, Lane(0), [&](Lane s, int j) SVD_LAMBDA { return s + x[j]; }); };
  const TriangleSquares<Lane> squares{sum(work.first), sum(work.second)};
  team.sync();  // before the next phase writes to both
  return squares;
}

// d_j; noise = (8 k u |A|_F)^2.
template <class A, class Lane, class Size>
SVD_HD Lane diagonal_factor(A a, Size k, int j, Lane noise, typename Lane::Mask active) {
  using C = ComplexElement<Lane>;
  const auto square = [&](auto at) SVD_LAMBDA {
    return sum_of(k, Lane(0), [&](Lane s, int i) SVD_LAMBDA { return i == j ? s : add_square(s, C(at(i))); });
  };
  const Lane h = square([&](int i) SVD_LAMBDA { return a(j, i); });
  const Lane g = square([&](int i) SVD_LAMBDA { return a(i, j); });
  const Lane four(4), quarter(0.25f), enough = Lane(0.95f) * (g + h);
  const auto scales = active & (smaller(g, h) > noise);
  const auto up = scales & (fma(four, g, quarter * h) < enough), down = scales & (fma(four, h, quarter * g) < enough);
  return select(up, Lane(2), select(down, Lane(0.5f), Lane(1)));
}

// The diagonal scaling of the lines parity, parity + 2, ..
template <class Team, class A, class B, class Lane, class Size>
SVD_HD void scale_every_other(const Team& team, A a, B e, Size k, int parity, Lane noise, typename Lane::Mask active,
                              const ShearWork<Lane>& work) {
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    const Lane d = j % 2 == parity ? diagonal_factor(a, k, j, noise, active) : Lane(1);
    work.first[j] = d;
    work.second[j] = select(d > Lane(1), Lane(0.5f), select(d < Lane(1), Lane(2), Lane(1)));
  });
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA {
    const int i = x % k, j = x / k;
    a(i, j) = scaled(a(i, j), work.first[j] * work.second[i]);
    if constexpr (kIsWanted<B>) e(i, j) = scaled(e(i, j), work.first[j]);
  });
}

// In: a: A, its largest component about one; e: I, or for a warm start V_0 where a is V_0^-1 A V_0; or NoMatrix. Out:
// a: T, with what is left below its diagonal; e: E; sweeps: of each lane. Returns the lanes that have not converged
// after max_sweeps. kShears: false leaves out shears and scalings, so that E stays unitary, and ends at 2 k u |A|_F.
template <bool kShears = true, class Team, class A, class B, class Lane, class Size>
SVD_HD_CALLED typename Lane::Mask shear_jacobi(const Team& team, A a, B e, Size k, int max_sweeps, Lane* sweeps,
                                               const ShearWork<Lane>& work) {
  using C = ComplexElement<Lane>;
  using T = typename Lane::Scalar;
  constexpr T kU = FloatTraits<T>::kUnitRoundoff;
  const Lane u2(kU * kU), k2(T(k) * T(k)), enough(T(kShears ? 1 : 4)), zero(0), one(1);
  Lane count(0);
  auto active = Lane::mask(k > 1);
  for (int sweep = 0;; ++sweep) {
    const TriangleSquares<Lane> squares = triangle_squares(team, a, k, work);
    const Lane least = u2 * squares.all;
    active = active & (squares.lower > enough * (k2 * least));
    if (sweep >= max_sweeps || !any_of(active)) break;
    count = count + select(active, one, zero);
    for (int step = 0; step < round_robin_steps(k); ++step) {
      shear_step<kShears>(team, a, e, k, step, least, active, work.transforms);
    }
    if constexpr (kShears) {
      const Lane noise = Lane(64) * k2 * least;
      SVD_UNROLL_DEVICE for (int parity = 0; parity < 2; ++parity) {
        scale_every_other(team, a, e, k, parity, noise, active, work);
      }
    }
  }
  // The sign of a zero may have come from other lanes' sweeps.
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA {
    const C none{zero, zero};
    a(x % k, x / k) = a(x % k, x / k) + none;
    if constexpr (kIsWanted<B>) e(x % k, x / k) = e(x % k, x / k) + none;
  });
  *sweeps = count;
  return active;
}

SVD_KERNEL_END

#endif
