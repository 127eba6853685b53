// Jacobi's method for general matrices: A V = V L, W^H A = L W^H, of k x k matrices. A team has a matrix in each lane.
//
//   N := 2^-e A;   B := D^-1 N D                                as in general_eigen.h
//   B = E T E^-1, from E = I or from starting vectors           shear_jacobi.h, starting_basis.h
//   E = Q R,   S = Q^H B Q                                      unitary_basis.h
//   X, Y from S;   V := D Q X, W := D Q Y, unit columns;   rho  as in general_eigen.h
//
// E X would do, too, but Q X has the smaller residuals: E is as ill-conditioned as the eigenvectors are. Eigenvalues are
// the diagonal of S, with vectors or without: S shows whether they are right. Those of a real matrix are real, or exact
// conjugates beside each other (conjugate_pairs.h).
// Source: shear_jacobi.h, unitary_basis.h.
// Cost: as general_eigen.h, but 58 k^3 flops a sweep in place of Hessenberg and QR, and 27 k^3 for S and Q.
// Accuracy: rho, measured for random, normal, companion and Grcar's matrices, clusters, condition 1e4, hidden Jordan pairs
// and rank one: 7 k u for k = 2, 4 k u for k = 4, 1 k u for k >= 16. Real matrices with defective pairs have the pairs'
// differences, 1e7 k u. The caller decomposes by QR what has not converged, and what has more than
// kLargestJacobiResidual. The sum of the eigenvalues is the trace to 10 k u |A|_F.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_JACOBI_H_
#endif

#include "engine/algorithms/general/conjugate_pairs.h"
#include "engine/algorithms/general/general_eigen.h"
#include "engine/algorithms/general/starting_basis.h"

SVD_KERNEL_BEGIN

// Sweeps of rotations that may make S triangular, as far as max_sweeps lets them. Most matrices need none. Two are too few for one in 100 random real
// matrices of k = 16; ten were enough for all of 6000.
inline constexpr int kBasisSweeps = 10;
// In units of k u |B|_F, where the contract has 10.
inline constexpr int kLargestTraceError = 8;

// t := D^-1 2^-e A D, complex. load(a): as general_jacobi().
template <class Team, class Work, class Load, class Lane, class Size>
SVD_HD_CALLED void load_balanced(const Team& team, const Work& work, Size k, Load load, Lane* e) {
  using T = typename Lane::Scalar;
  const auto a = work.operand();
  const Lane highest(T(2 * FloatTraits<T>::kBias - 14));
  load(a);
  scale_general(team, a, k, work.parts, e);
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      const Lane d = smaller(larger(work.d[j] - work.d[i], -highest), highest);
      work.t(i, j) = widened(scaled(a(i, j), make_pow2(d)));
    }
  });
}

// The sum of t's diagonal.
template <class Work, class Lane, class Size>
SVD_HD ComplexElement<Lane> trace_of(const Work& work, Size k, Lane) {
  using C = ComplexElement<Lane>;
  return sum_of(k, C{Lane(0), Lane(0)}, [&](const C& s, int j) SVD_LAMBDA { return s + C(work.t(j, j)); });
}

// The lanes in which the vector of a real eigenvalue is not real up to a phase. Then the eigenvalue is not simple, and real
// parts of its vectors may be dependent. v: columns of any length. parts: k lanes.
template <class Team, class Work, class Lane, class Size>
SVD_HD typename Lane::Mask has_mixed_vectors(const Team& team, const Work& work, Size k, Lane* parts) {
  using C = ComplexElement<Lane>;
  const C none{Lane(0), Lane(0)};
  team.sync();  // the parts are written again
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    const Pow2<Lane> lift = column_lift(work.v, k, j);
    C product = none;
    Lane square(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      const C x = scaled(C(work.v(i, j)), lift);
      product = add_product(product, conj(x), x);
      square = add_square(square, x);
    }
    const auto mixed = (work.lambda[j].im == Lane(0)) & (square_of(product) < Lane(0.98f) * (square * square));
    parts[j] = select(mixed, Lane(1), Lane(0));
  });
  return sum_of(k, Lane(0), [&](Lane s, int j) SVD_LAMBDA { return s + parts[j]; }) > Lane(0);
}

// k u |t|_F
template <class Team, class Work, class Lane, class Size>
SVD_HD Lane pair_tolerance(const Team& team, const Work& work, Size k, Lane) {
  using C = ComplexElement<Lane>;
  using T = typename Lane::Scalar;
  team.sync();  // the parts are written again
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    work.parts[j] = sum_of_squares<C>(k, [&](int i) SVD_LAMBDA { return work.t(i, j); });
  });
  const Lane square = sum_of(k, Lane(0), [&](Lane s, int j) SVD_LAMBDA { return s + work.parts[j]; });
  return Lane(T(static_cast<int>(k)) * FloatTraits<T>::kUnitRoundoff) * sqrt(square);
}

// How JACOBI begins. load(v) is a phase that fills the view v with V_0, where there is one.
template <class LoadStart>
struct GeneralStart {
  bool warm;
  LoadStart load;
};

// T and E in work.t and work.v. Out: e: N's exponent; finite: the lanes whose A is. Returns the lanes that cannot go on:
// those whose starting vectors are singular or not finite.
template <class Team, class Work, class Load, class Start, class Lane, class Size>
SVD_HD typename Lane::Mask jacobi_form(const Team& team, const Work& work, Size k, int max_sweeps, const Start& start,
                                       const ShearWork<Lane>& shears, Load load, Lane* e, typename Lane::Mask* finite) {
  const auto a = work.operand();
  auto refused = Lane::mask(false);
  load(a);
  *finite = scale_general(team, a, k, work.parts, e);
  balance(team, a, k, work.d, work.parts);
  if (!start.warm) set_identity(team, work.v, k);
  load_balanced(team, work, k, load, e);
  if (start.warm) {
    refused = !start_from_vectors(team, work.t, work.v, k, start.load, work.d, work.lambda, work.parts);
  }
  Lane sweeps;
  shear_jacobi(team, work.t, work.v, k, max_sweeps, &sweeps, shears);
  return refused;
}

// max_sweeps: of shears, and again of rotations. Out: as general_eigen(), v always. transforms: round_robin_pairs(k). load(a)
// is a phase that fills the view a with A. Returns the MatrixStatus of each lane as a number. NOT_CONVERGED says that S is
// not triangular or has lost the trace, that real vectors are mixed, or that there is no start.
template <class Team, class Work, class Load, class Start, class Lane, class Size>
SVD_HD Lane general_jacobi(const Team& team, const Work& work, Size k, int max_sweeps, GeneralWanted wanted,
                           const Start& start, PairTransform<Lane>* transforms, Load load, Lane (&residuals)[2]) {
  constexpr bool kReal = !decltype(work.operand())::Element::kComplex;
  const ShearWork<Lane> shears{transforms, work.parts, work.parts + k};
  Lane e, sweeps;
  auto finite = Lane::mask(true);
  auto unfinished = jacobi_form(team, work, k, max_sweeps, start, shears, load, &e, &finite);
  load_balanced(team, work, k, load, &e);
  const ComplexElement<Lane> trace = trace_of(work, k, Lane(0));
  const int basis_sweeps = max_sweeps < kBasisSweeps ? max_sweeps : kBasisSweeps;
  unfinished = unfinished | unitary_basis(team, work.t, work.v, k, basis_sweeps, &sweeps, shears, work.lambda);
  team.for_each(0, k, [&](int j) SVD_LAMBDA { work.lambda[j] = work.t(j, j); });
  // Many sweeps of rotations may lose it.
  const Lane tolerance = pair_tolerance(team, work, k, Lane(0));
  unfinished = unfinished | (magnitude(trace_of(work, k, Lane(0)) - trace) > Lane(kLargestTraceError) * tolerance);
  const auto pair = [&]() SVD_LAMBDA {
    if constexpr (kReal) {
      team.once([&]() SVD_LAMBDA {
        if (!wanted.right) {
          pair_conjugates(k, tolerance, work.lambda);
        } else if (wanted.left) {
          pair_conjugates(k, tolerance, work.lambda, work.v, work.w);
        } else {
          pair_conjugates(k, tolerance, work.lambda, work.v);
        }
      });
      if (wanted.right) unfinished = unfinished | has_mixed_vectors(team, work, k, work.parts);
    }
  };
  auto near_defective = Lane::mask(false);
  if (wanted.right) {
    near_defective = general_vectors(team, work, k, wanted, pair, load, e, residuals);
  } else {
    pair();
  }
  return general_status<Lane>(finite, unfinished, finish_eigenvalues(team, k, e, work.lambda), near_defective);
}

SVD_KERNEL_END

#endif
