// Singular values of k x k matrices, from raw elements to finished values: the steps that a back end launches.
//
//   1. scale:   one power of two for the matrix (BIDIAGONAL, BISECTION) or for each column (JACOBI), so that the
//               largest component is in [1, 2); a matrix with an infinity or a NaN goes on as zero
//   2. method:  s_i 2^exponents[i]
//   3. finish:  scale back (rounded once), sort descending, canonical NaN for non-finite matrices, +0 for every zero,
//               +inf and OUT_OF_RANGE for what exceeds the largest finite number
//
// matrix_values() is the whole, for a lane. Kernels that stop between the steps call them. scaled_bidiagonal() and
// scaled_jacobi() are steps 1 and 2 as far as they suit a team. bidiagonal_values() is the rest of step 2, and
// finish_values() is step 3.
//
// The elements may carry exponents already, one a column: those of the tall-skinny QR, whose columns were scaled first.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_MATRIX_VALUES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_MATRIX_VALUES_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_MATRIX_VALUES_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_MATRIX_VALUES_H_
#endif

#include "engine/algorithms/lanes/bidiagonalize.h"
#include "engine/algorithms/lanes/bisection.h"
#include "engine/algorithms/lanes/dqds.h"
#include "engine/algorithms/lanes/gk_bisection.h"
#include "engine/algorithms/lanes/one_sided_jacobi.h"
#include "engine/options.h"
#include "engine/planner.h"
#include "engine/result.h"

SVD_KERNEL_BEGIN

// Step 1. Returns the lanes whose matrix is finite; the others go on as zero. exponents[j] becomes what a(:, j) was
// divided by; given: the exponents of the columns as loaded, all equal but for kByColumn, or null for zero. The team
// shares exponents.
template <bool kByColumn, class Team, class A, class Lane, class Size>
SVD_HD typename Lane::Mask scale_matrix(const Team& team, A a, Size k, const Lane* given, Lane* exponents) {
  using E = typename A::Element;
  const Lane zero(0);
  // First the largest component of each column.
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    Lane largest = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_any_magnitude(largest, a(i, j));
    exponents[j] = largest;
  });
  Lane of_matrix = zero;
  SVD_UNROLL for (int j = 0; j < k; ++j) of_matrix = at_least_magnitude(exponents[j], of_matrix);
  const auto finite = of_matrix <= Lane(FloatTraits<typename E::Scalar>::kLargest);
  team.sync();
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    const Lane e = binary_exponent(select(finite, kByColumn ? exponents[j] : of_matrix, zero));
    const Pow2<Lane> scale = make_pow2(-e);
    exponents[j] = given != nullptr ? e + given[kByColumn ? j : 0] : e;
    SVD_UNROLL for (int i = 0; i < k; ++i) a(i, j) = scaled(a(i, j), scale.first);
    if (any_of(!(finite & (scale.second == Lane(1))))) {  // rare: a factor alone would be out of range
      SVD_UNROLL for (int i = 0; i < k; ++i) {
        a(i, j) = select_element(finite, scaled(a(i, j), scale.second), zero_element<E>());
      }
    }
  });
  return finite;
}

// BIDIAGONAL and BISECTION as far as the bidiagonal matrix. All exponents are the same. Returns as scale_matrix().
template <int kPartials = 8, class Team, class A, class Lane, class Size>
SVD_HD typename Lane::Mask scaled_bidiagonal(const Team& team, A a, Size k, const Lane* given, Lane* exponents, Lane* q,
                                             Lane* e) {
  const auto finite = scale_matrix<false>(team, a, k, given, exponents);
  bidiagonalize<kPartials>(team, a, k, q, e);
  return finite;
}

// JACOBI: s_i 2^exponents[i], where the matrix is finite and where it has not converged.
template <class Lane>
struct JacobiOutcome {
  typename Lane::Mask finite, unfinished;
};
template <class Team, class A, class Lane, class Size>
SVD_HD JacobiOutcome<Lane> scaled_jacobi(const Team& team, A a, Size k, const Lane* given, Lane* exponents,
                                         Lane tolerance, int max_sweeps, Lane* s) {
  const auto finite = scale_matrix<true>(team, a, k, given, exponents);
  return {finite, one_sided_jacobi(team, a, k, exponents, tolerance, max_sweeps, s)};
}

// s_i from the q_i of dqds, which s may replace.
template <class Lane, class Size>
SVD_HD void square_roots(Size k, const Lane* q, Lane* s) {
  const Lane zero_square(2 * FloatTraits<typename Lane::Scalar>::kNegligibleSquare);  // see `tiny` in dqds
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(q[i] > zero_square, sqrt_in_range(q[i]), Lane(0));
}

// The bidiagonal matrix as it was, and room for its values.
template <class Lane>
struct BisectionOperands {
  Lane *q, *e, *s;
};
// Step 2, BIDIAGONAL, from the bidiagonal matrix: s_i in any order, which may take the place of q. q and e are
// overwritten. backup: scratch as dqds() wants it. again() gives the operands of bisection for the lanes that dqds leaves to
// it, which are rare.
template <class Lane, class Size, class Again>
SVD_HD void bidiagonal_values(Size k, Lane* q, Lane* e, Lane* backup, Again again, Lane* s) {
  const auto failed = dqds(k, q, e, backup);
  square_roots(k, q, s);
  if (any_of(failed)) {
    const BisectionOperands<Lane> operands = again();
    gk_bisection(RuntimeSize{k}, operands.q, operands.e, operands.s);
    SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(failed, operands.s[i], s[i]);
  }
}
// The same with the operands in `kept`, 3 k lanes of scratch.
template <class Lane, class Size>
SVD_HD void bidiagonal_values(Size k, Lane* q, Lane* e, Lane* backup, Lane* kept, Lane* s) {
  SVD_UNROLL for (int i = 0; i < k; ++i) kept[i] = q[i];
  SVD_UNROLL for (int i = 0; i < k - 1; ++i) kept[k + i] = e[i];
  const auto again = [&]() SVD_LAMBDA { return BisectionOperands<Lane>{kept, kept + k, kept + 2 * k}; };
  bidiagonal_values(k, q, e, backup, again, s);
}

// Sorts numbers >= 0 by odd-even transposition: k rounds, in any of which the comparisons are independent.
template <class Lane, class Size>
SVD_HD void sort_descending(Size k, Lane* s) {
  SVD_UNROLL for (int round = 0; round < k; ++round) {
    SVD_UNROLL for (int i = round % 2; i < k - 1; i += 2) {
      const Lane x = s[i], y = s[i + 1];
      s[i] = at_least(x, y);
      s[i + 1] = at_most(x, y);
    }
  }
}

// The MatrixStatus of each lane as a number.
template <class Lane>
SVD_HD Lane status_of(typename Lane::Mask finite, typename Lane::Mask in_range, typename Lane::Mask unfinished) {
  using T = typename Lane::Scalar;
  Lane status = select(unfinished, Lane(T(MatrixStatus::kNotConverged)), Lane(T(MatrixStatus::kOk)));
  status = select(in_range, status, Lane(T(MatrixStatus::kOutOfRange)));
  return select(finite, status, Lane(T(MatrixStatus::kNonFinite)));
}
// The same of one matrix, where it has a team of threads.
SVD_HD MatrixStatus status_of(bool finite, bool in_range, bool unfinished) {
  if (!finite) return MatrixStatus::kNonFinite;
  if (!in_range) return MatrixStatus::kOutOfRange;
  return unfinished ? MatrixStatus::kNotConverged : MatrixStatus::kOk;
}

// Step 3. exponent(i): of s_i. Returns the MatrixStatus of each lane as a number.
template <class Lane, class Size, class Exponent>
SVD_HD Lane finish_values(Size k, Exponent exponent, typename Lane::Mask finite, typename Lane::Mask unfinished,
                          Lane* s) {
  using T = typename Lane::Scalar;
  const Lane zero(0);
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = at_least(s[i] * make_pow2(exponent(i)), zero);
  sort_descending(k, s);
  const auto in_range = s[0] <= Lane(FloatTraits<T>::kLargest);
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = select(finite, s[i], Lane(FloatTraits<T>::nan()));
  return status_of<Lane>(finite, in_range, unfinished);
}

// Arguments for the matrices of a pack, beside their elements: exponents, limits of the method, and scratch memory.
template <class Lane>
struct ValuesTask {
  const Lane* given;  // exponents of the columns as loaded; null means zero
  Lane tolerance;     // BISECTION: delta; JACOBI: the cosine
  int max_sweeps;     // JACOBI
  Lane* exponents;    // k lanes of scratch; a team shares them
  Lane* kept;         // BIDIAGONAL: 3 k lanes of scratch
};

// Numbers of an array of k of them.
template <Method kMethod, class Size>
inline constexpr int storage_of = Size::kValue != 0 ? Size::kValue : static_cast<int>(largest_in_lanes(kMethod));

// All three steps for a matrix in one lane: a is overwritten; s[0 .. k-1] are the finished values.
template <Method kMethod, class A, class Size>
SVD_HD typename A::Element::Lane matrix_values(A a, Size k, const ValuesTask<typename A::Element::Lane>& task,
                                               typename A::Element::Lane* s) {
  using Lane = typename A::Element::Lane;
  constexpr int kStorage = storage_of<kMethod, Size>;
  if constexpr (kMethod == Method::kJacobi) {
    const JacobiOutcome<Lane> outcome =
        scaled_jacobi(Alone(), a, k, task.given, task.exponents, task.tolerance, task.max_sweeps, s);
    const auto exponent = [&](int i) SVD_LAMBDA { return task.exponents[i]; };
    return finish_values(k, exponent, outcome.finite, outcome.unfinished, s);
  } else {
    Lane q[kStorage], e[kStorage];
    const auto finite = scaled_bidiagonal(Alone(), a, k, task.given, task.exponents, q, e);
    auto unfinished = Lane::mask(false);
    if constexpr (kMethod == Method::kBidiagonal) {
      Lane backup[2 * kStorage];
      bidiagonal_values(k, q, e, backup, task.kept, s);
    } else {
      unfinished = bisect(k, q, e, task.tolerance, s);
    }
    const auto exponent = [&](int) SVD_LAMBDA { return task.exponents[0]; };
    return finish_values(k, exponent, finite, unfinished, s);
  }
}

SVD_KERNEL_END

#endif
