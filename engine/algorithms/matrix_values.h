// Singular values of one k x k matrix a lane, from raw elements to finished values: what a back end launches.
//
//   1. scale:   one power of two for the matrix (BIDIAGONAL, BISECTION) or for each column (JACOBI), so that the
//               largest component is in [1, 2); a matrix with an infinity or a NaN goes on as zero
//   2. method:  s_i 2^exponents[i]
//   3. finish:  scale back (rounded once), sort descending, canonical NaN for non-finite matrices, +0 for every zero,
//               +inf and OUT_OF_RANGE for what exceeds the largest finite number
//
// The elements may carry exponents already, one a column: those of the tall-skinny QR, whose columns were scaled
// first.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_MATRIX_VALUES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_MATRIX_VALUES_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_MATRIX_VALUES_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_MATRIX_VALUES_H_
#endif

#include "engine/algorithms/bidiagonalize.h"
#include "engine/algorithms/bisection.h"
#include "engine/algorithms/dqds.h"
#include "engine/algorithms/gk_bisection.h"
#include "engine/algorithms/one_sided_jacobi.h"
#include "engine/options.h"
#include "engine/result.h"

SVD_KERNEL_BEGIN

// BIDIAGONAL: s_i of a, any order.
template <class E, class Size>
SVD_HD void bidiagonal_values(MatrixView<E> a, Size k, typename E::Lane* s) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : 32;
  Lane q[kStorage], e[kStorage], q_work[kStorage], e_work[kStorage];
  bidiagonalize(a, k, q, e);
  SVD_UNROLL for (int i = 0; i < k; ++i) q_work[i] = q[i];
  SVD_UNROLL for (int i = 0; i < k - 1; ++i) e_work[i] = e[i];
  const auto failed = dqds(k, q_work, e_work);
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = sqrt(larger(q_work[i], Lane(0)));
  if (any_of(failed)) {
    gk_bisection(k, q, e, q_work);
    SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(failed, q_work[i], s[i]);
  }
}

// BISECTION: s_i of a, ascending; returns the lanes that did not stop.
template <class E, class Size>
SVD_HD typename E::Lane::Mask bisection_values(MatrixView<E> a, Size k, typename E::Lane delta, typename E::Lane* s) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : 32;
  Lane q[kStorage], e[kStorage];
  bidiagonalize(a, k, q, e);
  return bisect(k, q, e, delta, s);
}

// Odd-even transposition: k rounds, in any of which the comparisons are independent.
template <class Lane, class Size>
SVD_HD void sort_descending(Size k, Lane* s) {
  SVD_UNROLL for (int round = 0; round < k; ++round) {
    SVD_UNROLL for (int i = round % 2; i < k - 1; i += 2) {
      const Lane x = s[i], y = s[i + 1];
      s[i] = larger(x, y);
      s[i + 1] = smaller(x, y);
    }
  }
}

// What is to be computed for the matrices of a pack, beside their elements.
template <class Lane>
struct ValuesTask {
  const Lane* exponents;  // of the columns as loaded; null means zero
  Lane tolerance;         // BISECTION: delta; JACOBI: the cosine
  int max_sweeps;         // JACOBI
};

// a is overwritten; s[0 .. k-1] are the finished values; returns the MatrixStatus of each lane as a number.
template <Method kMethod, class E, class Size>
SVD_HD typename E::Lane matrix_values(MatrixView<E> a, Size k, const ValuesTask<typename E::Lane>& task,
                                      typename E::Lane* s) {
  using Lane = typename E::Lane;
  using T = typename E::Scalar;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : 32;
  constexpr bool kByColumn = kMethod == Method::kJacobi;
  const Lane zero(0);

  auto finite = Lane::mask(true);
  Lane largest[kStorage];
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    largest[j] = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      finite = finite & is_finite(a(i, j));
      largest[j] = larger(magnitude(a(i, j)), largest[j]);
    }
  }
  if constexpr (!kByColumn) {
    SVD_UNROLL for (int j = 1; j < k; ++j) largest[0] = larger(largest[0], largest[j]);
  }
  Lane exponents[kStorage];
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    const Lane e = binary_exponent(select(finite, largest[kByColumn ? j : 0], zero));
    const Pow2<Lane> scale = make_pow2(-e);
    exponents[j] = task.exponents != nullptr ? e + task.exponents[j] : e;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      a(i, j) = scaled(select_element(finite, a(i, j), zero_element<E>()), scale);
    }
  }

  auto unfinished = Lane::mask(false);
  if constexpr (kMethod == Method::kBidiagonal) {
    bidiagonal_values(a, k, s);
  } else if constexpr (kMethod == Method::kBisection) {
    unfinished = bisection_values(a, k, task.tolerance, s);
  } else {
    unfinished = one_sided_jacobi(a, k, exponents, task.tolerance, task.max_sweeps, s);
  }

  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    s[i] = s[i] * make_pow2(exponents[i]);
    s[i] = select(s[i] > zero, s[i], zero);
    in_range = in_range & (s[i] <= Lane(FloatTraits<T>::kLargest));
  }
  sort_descending(k, s);
  Lane status = select(unfinished, Lane(T(MatrixStatus::kNotConverged)), Lane(T(MatrixStatus::kOk)));
  status = select(in_range, status, Lane(T(MatrixStatus::kOutOfRange)));
  status = select(finite, status, Lane(T(MatrixStatus::kNonFinite)));
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(finite, s[i], Lane(FloatTraits<T>::nan()));
  return status;
}

SVD_KERNEL_END

#endif
