// Which of several attempts at a general matrix is kept. QR (general_eigen.h): the balanced one, unless balancing has
// spoilt it and the plain one is better. JACOBI (general_jacobi.h): its own, unless it missed its bound; then QR's. Both
// back ends decide by these functions.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_OUTCOME_H_
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_OUTCOME_H_

#include "engine/core/float_traits.h"
#include "engine/planner.h"
#include "engine/result.h"

namespace svdserve {

// residual: the square of the largest residual, NaN where one is; zero without vectors.
template <class T>
struct GeneralOutcome {
  MatrixStatus status;
  T residual;
};

// Whether the square of a residual is above `limit` units of k u, or NaN.
template <class T>
constexpr bool is_above(T residual, int limit, int k) {
  const T bound = static_cast<T>(limit * k) * FloatTraits<T>::kUnitRoundoff;
  return !(residual <= bound * bound);
}

// The larger of two squares, NaN where one of them is.
template <class T>
constexpr T worst_of(T right, T left) {
  return right >= left || right != right ? right : left;
}

// Whether a plain attempt may be better.
template <class T>
constexpr bool is_spoilt(const GeneralOutcome<T>& balanced, int k) {
  if (balanced.status == MatrixStatus::kNonFinite) return false;
  return balanced.status == MatrixStatus::kNotConverged || is_above(balanced.residual, kLargestBalancedResidual, k);
}

// Whether QR takes the matrix after JACOBI. A tenth of the limit is left for rounding errors of the residual.
template <class T>
constexpr bool is_missed(const GeneralOutcome<T>& jacobi, int k) {
  if (jacobi.status == MatrixStatus::kNonFinite) return false;
  return jacobi.status == MatrixStatus::kNotConverged || is_above(T(1.25) * jacobi.residual, kLargestJacobiResidual, k);
}
// The status of a matrix that QR took after JACOBI.
constexpr MatrixStatus status_by_qr(MatrixStatus of_qr) {
  return of_qr == MatrixStatus::kOk ? MatrixStatus::kByQr : of_qr;
}

// Whether the plain attempt replaces the balanced one: it converges alone, or has the smaller residual.
template <class T>
constexpr bool is_better(const GeneralOutcome<T>& plain, const GeneralOutcome<T>& balanced) {
  const bool converged = plain.status != MatrixStatus::kNotConverged;
  if (converged != (balanced.status != MatrixStatus::kNotConverged)) return converged;
  return plain.residual < balanced.residual || balanced.residual != balanced.residual;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_GENERAL_GENERAL_OUTCOME_H_
