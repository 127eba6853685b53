// Singular values of k x k matrices, from raw elements to finished values: the steps that a back end launches.
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

// Step 1. Returns the lanes whose matrix is finite; the others go on as zero. exponents[j] becomes what a(:, j) was
// divided by; given: the exponents of the columns as loaded, all equal but for kByColumn, or null for zero. The team
// shares exponents.
template <bool kByColumn, class Team, class A, class Lane, class Size>
SVD_HD typename Lane::Mask scale_matrix(const Team& team, A a, Size k, const Lane* given, Lane* exponents) {
  using E = typename A::Element;
  const Lane zero(0);
  const Lane not_finite(FloatTraits<typename E::Scalar>::nan());
  // First the largest component of each column, or NaN.
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    auto column_finite = Lane::mask(true);
    Lane largest = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      column_finite = column_finite & is_finite(a(i, j));
      largest = raise_to_magnitude(largest, a(i, j));
    }
    exponents[j] = select(column_finite, largest, not_finite);
  });
  auto finite = Lane::mask(true);
  Lane of_matrix = zero;
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    finite = finite & (exponents[j] >= zero);
    of_matrix = larger(exponents[j], of_matrix);
  }
  team.sync();
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    const Lane e = binary_exponent(select(finite, kByColumn ? exponents[j] : of_matrix, zero));
    const Pow2<Lane> scale = make_pow2(-e);
    exponents[j] = given != nullptr ? e + given[kByColumn ? j : 0] : e;
    if (any_of(!finite)) {
      SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = select_element(finite, a(i, j), zero_element<E>());
    }
    SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = scaled(a(i, j), scale.first);
    if (any_of(!(scale.second == Lane(1)))) {  // rare: a factor alone would be out of range
      SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = scaled(a(i, j), scale.second);
    }
  });
  return finite;
}

// s_i from the q_i of dqds, which s may replace.
template <class Lane, class Size>
SVD_HD void square_roots(Size k, const Lane* q, Lane* s) {
  const Lane zero_square(2 * FloatTraits<typename Lane::Scalar>::kReciprocalSmallest);  // see `tiny` in dqds
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(q[i] > zero_square, sqrt(q[i]), Lane(0));
}

// Step 2, BIDIAGONAL, from the bidiagonal matrix: s_i in any order, which may take the place of q. q and e are
// overwritten. Scratch: backup, 2 k lanes; kept, 3 k lanes for the lanes that dqds leaves to bisection, which are rare.
template <class Lane, class Size>
SVD_HD void bidiagonal_values(Size k, Lane* q, Lane* e, Lane* backup, Lane* kept, Lane* s) {
  SVD_UNROLL for (int i = 0; i < k; ++i) kept[i] = q[i];
  SVD_UNROLL for (int i = 0; i < k - 1; ++i) kept[k + i] = e[i];
  const auto failed = dqds(k, q, e, backup);
  square_roots(k, q, s);
  if (any_of(failed)) {
    gk_bisection(RuntimeSize{k}, kept, kept + k, kept + 2 * k);
    SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(failed, kept[2 * k + i], s[i]);
  }
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

// Step 3. Returns the MatrixStatus of each lane as a number.
template <class Lane, class Size>
SVD_HD Lane finish_values(Size k, const Lane* exponents, typename Lane::Mask finite, typename Lane::Mask unfinished,
                          Lane* s) {
  using T = typename Lane::Scalar;
  const Lane zero(0);
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

// What is to be computed for the matrices of a pack, beside their elements, and where.
template <class Lane>
struct ValuesTask {
  const Lane* given;  // exponents of the columns as loaded; null means zero
  Lane tolerance;     // BISECTION: delta; JACOBI: the cosine
  int max_sweeps;     // JACOBI
  Lane* exponents;    // k lanes of scratch; a team shares them
  Lane* kept;         // BIDIAGONAL: 3 k lanes of scratch
};

// All three steps for a matrix in one lane: a is overwritten; s[0 .. k-1] are the finished values.
template <Method kMethod, class A, class Size>
SVD_HD typename A::Element::Lane matrix_values(A a, Size k, const ValuesTask<typename A::Element::Lane>& task,
                                               typename A::Element::Lane* s) {
  using Lane = typename A::Element::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : 32;
  const auto finite = scale_matrix<kMethod == Method::kJacobi>(Alone(), a, k, task.given, task.exponents);
  auto unfinished = Lane::mask(false);
  if constexpr (kMethod == Method::kJacobi) {
    unfinished = one_sided_jacobi(Alone(), a, k, task.exponents, task.tolerance, task.max_sweeps, s);
  } else {
    Lane q[kStorage], e[kStorage];
    bidiagonalize(Alone(), a, k, q, e);
    if constexpr (kMethod == Method::kBidiagonal) {
      Lane backup[2 * kStorage];
      bidiagonal_values(k, q, e, backup, task.kept, s);
    } else {
      unfinished = bisect(k, q, e, task.tolerance, s);
    }
  }
  return finish_values(k, task.exponents, finite, unfinished, s);
}

SVD_KERNEL_END

#endif
