// QR for general matrices: A V = V L, W^H A = L W^H, of k x k matrices. A team has a matrix in each lane.
//
//   N := 2^-e A, its largest component in [1, 2);   B := D^-1 N D                     balance.h
//   B = Z H Z^H                                                                        hessenberg.h
//   H = Q T Q^H, Z := Z Q                                                              complex_qr.h, real_qr.h
//   X, Y from T;   V := D Z X, W := D^-1 Z Y, unit columns                             schur_vectors.h, unit_columns.h
//   rho := |N V - V L|_F / |N|_F,   |N^H W - W L^H|_F / |N|_F
//   c_j := 1 / |w_j^H v_j|                                                             eigenvalue_conditions.h
//
// Eigenvalues are in the order in which T has them. Those of a real matrix are real, or exact conjugates beside each
// other, the one with a positive imaginary part first; so are its vectors.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., chapter 7.
// Cost: about 25 k^3 flops with V (complex: four times), 10 k^3 without.
// Accuracy: eigenvalues are those of B + E, |E| <= c k u |B|. rho <= 10 k u, but where balancing was too strong: the caller
// then asks for `plain`. Defective matrices of k = 3 to 5 were found with up to 27 k u.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_EIGEN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_EIGEN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_EIGEN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_EIGEN_H_
#endif

#include <type_traits>

#include "engine/algorithms/general/balance.h"
#include "engine/algorithms/general/complex_qr.h"
#include "engine/algorithms/general/eigenvalue_conditions.h"
#include "engine/algorithms/general/hessenberg.h"
#include "engine/algorithms/general/real_qr.h"
#include "engine/algorithms/general/schur_vectors.h"
#include "engine/algorithms/general/unit_columns.h"
#include "engine/core/team.h"
#include "engine/result.h"

SVD_KERNEL_BEGIN

// Memory of a call: views of k x k, and arrays.
template <class Real, class Complex, class Lane>
struct GeneralWork {
  Real h, z;                     // of real matrices; z for vectors
  Complex t;                     // of complex matrices; of real ones for vectors
  Complex v;                     // Z, then V
  Complex w;                     // W
  Lane* d;                       // k exponents of D
  ComplexElement<Lane>* lambda;  // k
  Lane* parts;                   // 2 k; at last the conditions

  // Where A is loaded.
  SVD_HD auto operand() const {
    if constexpr (Real::Element::kComplex) {
      return t;
    } else {
      return h;
    }
  }
};

// The results that are wanted beside the eigenvalues.
struct GeneralWanted {
  bool right;      // V; the others need it
  bool left;       // W; conditions need it, too
  bool condition;  // c_j, j < k
};

// a := 2^-e a. Returns the lanes whose elements are finite; the others go on as zero. parts: k lanes.
template <class Team, class A, class Lane, class Size>
SVD_HD typename Lane::Mask scale_general(const Team& team, A a, Size k, Lane* parts, Lane* e) {
  using E = typename A::Element;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_any_magnitude(largest, a(i, j));
    parts[j] = largest;
  });
  Lane largest(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) largest = at_least_magnitude(parts[j], largest);
  const auto finite = largest <= Lane(FloatTraits<typename E::Scalar>::kLargest);
  *e = binary_exponent(select(finite, largest, Lane(0)));
  const Pow2<Lane> scale = make_pow2(-*e);
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      a(i, j) = select_element(finite, scaled(a(i, j), scale), zero_element<E>());
    }
  });
  return finite;
}

// D := I
template <class Team, class Work, class Size>
SVD_HD void set_no_balance(const Team& team, const Work& work, Size k) {
  using Lane = std::remove_pointer_t<decltype(work.d)>;
  team.for_each(0, k, [&](int i) SVD_LAMBDA { work.d[i] = Lane(0); });
}

// |N V - V L|_F^2 / |N|_F^2, N = 2^-e A, and with kAdjoint N^H and L^H in their places. Zero for A = 0. parts: 2 k lanes.
template <bool kAdjoint, class Team, class A, class V, class Lane, class Size>
SVD_HD_CALLED Lane square_of_residual(const Team& team, A a, V v, Size k, const ComplexElement<Lane>* lambda, Lane e,
                                      Lane* parts) {
  using C = ComplexElement<Lane>;
  const Pow2<Lane> scale = make_pow2(-e);
  team.sync();  // the parts are written again
  team.for_each_line(0, k, [&](int i) SVD_LAMBDA {
    Lane square(0), norm(0);
    SVD_UNROLL_DEVICE for (int j = 0; j < k; ++j) {
      const C x = product(kAdjoint ? conj(lambda[j]) : lambda[j], C(v(i, j)));
      C sum{-x.re, -x.im};
      SVD_UNROLL_DEVICE for (int l = 0; l < k; ++l) {
        const C n = kAdjoint ? conj(widened(scaled(a(l, i), scale))) : widened(scaled(a(i, l), scale));
        sum = sum + product(n, C(v(l, j)));
      }
      square = add_square(square, sum);
      norm = add_square(norm, scaled(a(i, j), scale));
    }
    parts[i] = square;
    parts[k + i] = norm;
  });
  Lane square(0), norm(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    square = square + parts[i];
    norm = norm + parts[k + i];
  }
  return square / select(norm > Lane(0), norm, Lane(1));
}

// The lanes in which a value 2^e lambda is finite; lambda becomes that, with every zero +0.
template <class Team, class Lane, class Size>
SVD_HD typename Lane::Mask finish_eigenvalues(const Team& team, Size k, Lane e, ComplexElement<Lane>* lambda) {
  const Pow2<Lane> scale = make_pow2(e);
  const Lane largest(FloatTraits<typename Lane::Scalar>::kLargest);
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    lambda[j] = {lambda[j].re * scale + Lane(0), lambda[j].im * scale + Lane(0)};
  });
  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    in_range = in_range & (abs(lambda[j].re) <= largest) & (abs(lambda[j].im) <= largest);
  }
  return in_range;
}

// The MatrixStatus of each lane as a number.
template <class Lane>
SVD_HD Lane general_status(typename Lane::Mask finite, typename Lane::Mask unfinished, typename Lane::Mask in_range,
                           typename Lane::Mask near_defective) {
  using T = typename Lane::Scalar;
  Lane status = select(near_defective, Lane(T(MatrixStatus::kNearDefective)), Lane(T(MatrixStatus::kOk)));
  status = select(unfinished, Lane(T(MatrixStatus::kNotConverged)), status);
  status = select(in_range, status, Lane(T(MatrixStatus::kOutOfRange)));
  return select(finite, status, Lane(T(MatrixStatus::kNonFinite)));
}

// The Schur form of the matrix in h or t, and its eigenvalues. With vectors t is triangular and v is Z. Returns the lanes
// that have not converged.
template <class Team, class Work, class Size>
SVD_HD auto schur_form_with_vectors(const Team& team, const Work& work, Size k) {
  const auto a = work.operand();
  using E = typename decltype(a)::Element;
  if constexpr (E::kComplex) {
    reduce_to_hessenberg(team, a, work.v, k);
    const auto unfinished = complex_schur(team, a, work.v, k);
    team.for_each(0, k, [&](int j) SVD_LAMBDA { work.lambda[j] = a(j, j); });
    return unfinished;
  } else {
    reduce_to_hessenberg(team, a, work.z, k);
    const auto unfinished = real_schur(team, a, work.z, k);
    real_eigenvalues(team, a, k, work.lambda);
    team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
      SVD_UNROLL for (int i = 0; i < k; ++i) {
        work.t(i, j) = widened(E(a(i, j)));
        work.v(i, j) = widened(E(work.z(i, j)));
      }
    });
    SVD_UNROLL_DEVICE for (int j = 0; j + 1 < k; ++j) {
      triangularize_block(team, a, work.t, work.v, k, j, work.lambda[j]);
    }
    set_diagonal(team, a, work.t, k, work.lambda);
    return unfinished;
  }
}
template <class Team, class Work, class Size>
SVD_HD auto schur_form_alone(const Team& team, const Work& work, Size k) {
  const auto a = work.operand();
  using E = typename decltype(a)::Element;
  reduce_to_hessenberg(team, a, NoMatrix<E>(), k);
  if constexpr (E::kComplex) {
    const auto unfinished = complex_schur(team, a, NoMatrix<E>(), k);
    team.for_each(0, k, [&](int j) SVD_LAMBDA { work.lambda[j] = a(j, j); });
    return unfinished;
  } else {
    const auto unfinished = real_schur(team, a, NoMatrix<E>(), k);
    real_eigenvalues(team, a, k, work.lambda);
    return unfinished;
  }
}

// V, and W where it is wanted, of the Schur form in t with the basis in v, and residuals, rho^2 of both. pair() sorts
// eigenvalues and columns before they are finished. load(a): as general_eigen(). e: N's exponent. Returns the lanes that
// are near defective, where conditions are wanted.
template <class Team, class Work, class Pair, class Load, class Lane, class Size>
SVD_HD typename Lane::Mask general_vectors(const Team& team, const Work& work, Size k, GeneralWanted wanted, Pair pair,
                                           Load load, Lane e, Lane (&residuals)[2]) {
  constexpr bool kReal = !decltype(work.operand())::Element::kComplex;
  const Lane least = least_difference(team, work.t, k, work.parts);
  Lane* const heads = work.parts + k;
  if (wanted.left) left_vectors(team, work.t, work.v, work.w, k, least, heads);
  right_vectors(team, work.t, work.v, k, least, heads);
  pair();
  auto near_defective = Lane::mask(false);
  if (wanted.condition) near_defective = is_near_defective(team, work.v, work.w, k, work.parts);
  if (wanted.left) finish_columns<kReal>(team, work.w, k, work.lambda, work.d, Lane(-1));
  finish_columns<kReal>(team, work.v, k, work.lambda, work.d, Lane(1));
  const auto a = work.operand();
  load(a);
  residuals[0] = square_of_residual<false>(team, a, work.v, k, work.lambda, e, work.parts);
  if (wanted.left) residuals[1] = square_of_residual<true>(team, a, work.w, k, work.lambda, e, work.parts);
  if (wanted.condition) eigenvalue_conditions(team, work.v, work.w, k, work.parts);
  return near_defective;
}

// Out: work.lambda, finished; with vectors work.v, work.w where it is wanted, residuals, rho^2 of both, and the conditions
// in work.parts. plain: no balancing. load(a) is a phase that fills the view a with A. Returns the MatrixStatus of each lane
// as a number; nothing else means anything for matrices that are not finite.
template <bool kVectors, class Team, class Work, class Load, class Lane, class Size>
SVD_HD Lane general_eigen(const Team& team, const Work& work, Size k, bool plain, GeneralWanted wanted, Load load,
                          Lane (&residuals)[2]) {
  const auto a = work.operand();
  Lane e;
  load(a);
  const auto finite = scale_general(team, a, k, work.parts, &e);
  if (plain) {
    set_no_balance(team, work, k);
  } else {
    balance(team, a, k, work.d, work.parts);
  }
  auto unfinished = Lane::mask(false), near_defective = Lane::mask(false);
  if constexpr (kVectors) {
    unfinished = schur_form_with_vectors(team, work, k);
    near_defective = general_vectors(
        team, work, k, wanted, []() SVD_LAMBDA {}, load, e, residuals);
  } else {
    unfinished = schur_form_alone(team, work, k);
  }
  return general_status<Lane>(finite, unfinished, finish_eigenvalues(team, k, e, work.lambda), near_defective);
}

SVD_KERNEL_END

#endif
