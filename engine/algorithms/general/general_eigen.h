// QR for general matrices: A V = V L, W^H A = L W^H, of k x k matrices; one matrix a lane.
//
//   N := 2^-e A, its largest component in [1, 2);   B := D^-1 N D                     balance.h
//   B = Z H Z^H                                                                        hessenberg.h
//   H = Q T Q^H, Z := Z Q                                                              complex_qr.h, real_qr.h
//   X, Y from T;   V := D Z X, W := D^-1 Z Y, unit columns                             schur_vectors.h, unit_columns.h
//   rho := |N V - V L|_F / |N|_F,   |N^H W - W L^H|_F / |N|_F
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

#include "engine/algorithms/general/balance.h"
#include "engine/algorithms/general/complex_qr.h"
#include "engine/algorithms/general/hessenberg.h"
#include "engine/algorithms/general/real_qr.h"
#include "engine/algorithms/general/schur_vectors.h"
#include "engine/algorithms/general/unit_columns.h"
#include "engine/result.h"

SVD_KERNEL_BEGIN

// a := 2^-e a. Returns the lanes whose elements are finite; the others go on as zero.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask scale_general(A a, Size k, Lane* e) {
  using E = typename A::Element;
  Lane largest(0);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_any_magnitude(largest, a(i, j));
  }
  const auto finite = largest <= Lane(FloatTraits<typename E::Scalar>::kLargest);
  *e = binary_exponent(select(finite, largest, Lane(0)));
  const Pow2<Lane> scale = make_pow2(-*e);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      a(i, j) = select_element(finite, scaled(a(i, j), scale), zero_element<E>());
    }
  }
  return finite;
}

// |N V - V L|_F^2 / |N|_F^2, N = 2^-e A, and with kAdjoint N^H and L^H in their places; at(i, j) reads an element of A.
// Zero for A = 0.
template <bool kAdjoint, class A, class At, class Lane, class Size>
SVD_HD Lane square_of_residual(At at, A v, Size k, const ComplexElement<Lane>* lambda, Lane e) {
  using C = ComplexElement<Lane>;
  const Pow2<Lane> scale = make_pow2(-e);
  Lane square(0), norm(0);
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) {
      const C x = product(kAdjoint ? conj(lambda[j]) : lambda[j], v(i, j));
      C sum{-x.re, -x.im};
      for (int l = 0; l < k; ++l) {
        const C a = kAdjoint ? conj(widened(scaled(at(l, i), scale))) : widened(scaled(at(i, l), scale));
        sum = sum + product(a, v(l, j));
      }
      square = add_square(square, sum);
      norm = add_square(norm, scaled(at(i, j), scale));
    }
  }
  return square / select(norm > Lane(0), norm, Lane(1));
}

// The lanes in which a value 2^e lambda is finite; lambda becomes that, with every zero +0.
template <class Lane, class Size>
SVD_HD typename Lane::Mask finish_eigenvalues(Size k, Lane e, ComplexElement<Lane>* lambda) {
  const Pow2<Lane> scale = make_pow2(e);
  const Lane largest(FloatTraits<typename Lane::Scalar>::kLargest);
  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j] = {lambda[j].re * scale + Lane(0), lambda[j].im * scale + Lane(0)};
    in_range = in_range & (abs(lambda[j].re) <= largest) & (abs(lambda[j].im) <= largest);
  }
  return in_range;
}

// Memory of a call. Views of k x k.
template <class Real, class Complex>
struct GeneralWork {
  Real h, z;  // of real matrices: A on entry; z for vectors
  Complex t;  // A on entry of complex matrices; for vectors of real ones
  Complex v;  // Z, then V
  Complex w;  // W
};

// The Schur form of the matrix in h or t, and its eigenvalues. With vectors t is triangular and v is Z.
template <bool kVectors, class Real, class Complex, class Lane, class Size>
SVD_HD typename Lane::Mask schur_form(const GeneralWork<Real, Complex>& work, Size k, ComplexElement<Lane>* lambda) {
  using R = typename Real::Element;
  using C = ComplexElement<Lane>;
  typename Lane::Mask unfinished;
  if constexpr (R::kComplex) {
    if constexpr (kVectors) {
      reduce_to_hessenberg(work.t, work.v, k);
      unfinished = complex_schur(work.t, work.v, k);
    } else {
      reduce_to_hessenberg(work.t, NoMatrix<C>(), k);
      unfinished = complex_schur(work.t, NoMatrix<C>(), k);
    }
    SVD_UNROLL for (int j = 0; j < k; ++j) lambda[j] = work.t(j, j);
  } else if constexpr (kVectors) {
    reduce_to_hessenberg(work.h, work.z, k);
    unfinished = real_schur(work.h, work.z, k);
    real_eigenvalues(work.h, k, lambda);
    SVD_UNROLL for (int j = 0; j < k; ++j) {
      SVD_UNROLL for (int i = 0; i < k; ++i) {
        work.t(i, j) = widened(R(work.h(i, j)));
        work.v(i, j) = widened(R(work.z(i, j)));
      }
    }
    for (int j = 0; j + 1 < k; ++j) triangularize_block(work.t, work.v, k, j, lambda[j], lambda[j + 1]);
  } else {
    reduce_to_hessenberg(work.h, NoMatrix<R>(), k);
    unfinished = real_schur(work.h, NoMatrix<R>(), k);
    real_eigenvalues(work.h, k, lambda);
  }
  return unfinished;
}

// In: A in work.h or work.t. Out: lambda, finished; with vectors V, W where `left`, and residuals, rho^2 of both. plain: no
// balancing. at(i, j) reads an element of A. Returns the MatrixStatus of each lane as a number; nothing else means
// anything for matrices that are not finite.
template <bool kVectors, class At, class Real, class Complex, class Lane, class Size>
SVD_HD Lane general_eigen(const GeneralWork<Real, Complex>& work, Size k, bool plain, bool left, At at, Lane* d,
                          ComplexElement<Lane>* lambda, Lane* residuals) {
  using T = typename Lane::Scalar;
  constexpr bool kReal = !Real::Element::kComplex;
  Lane e;
  const auto a = [&]() SVD_LAMBDA {
    if constexpr (kReal) {
      return work.h;
    } else {
      return work.t;
    }
  }();
  const auto finite = scale_general(a, k, &e);
  if (plain) {
    SVD_UNROLL for (int i = 0; i < k; ++i) d[i] = Lane(0);
  } else {
    balance(a, k, d);
  }
  const auto unfinished = schur_form<kVectors>(work, k, lambda);
  if constexpr (kVectors) {
    if (left) {
      left_vectors(work.t, work.v, work.w, k, lambda);
      finish_columns<kReal>(work.w, k, lambda, d, Lane(-1));
      residuals[1] = square_of_residual<true>(at, work.w, k, lambda, e);
    }
    right_vectors(work.t, work.v, k, lambda);
    finish_columns<kReal>(work.v, k, lambda, d, Lane(1));
    residuals[0] = square_of_residual<false>(at, work.v, k, lambda, e);
  }
  const auto in_range = finish_eigenvalues(k, e, lambda);
  Lane status = select(unfinished, Lane(T(MatrixStatus::kNotConverged)), Lane(T(MatrixStatus::kOk)));
  status = select(in_range, status, Lane(T(MatrixStatus::kOutOfRange)));
  return select(finite, status, Lane(T(MatrixStatus::kNonFinite)));
}

SVD_KERNEL_END

#endif
