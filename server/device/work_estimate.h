// How much work a matrix is: what carries a measured time over to a shape that was not measured.
#ifndef SVDSERVE_SERVER_DEVICE_WORK_ESTIMATE_H_
#define SVDSERVE_SERVER_DEVICE_WORK_ESTIMATE_H_

#include <algorithm>
#include <cmath>

#include "engine/planner.h"

namespace svdserve::server {

// Floating-point operations of one matrix, complex ones counted as four real ones.
inline double estimate_flops(const Plan& plan) {
  const double k = static_cast<double>(values_per_matrix(plan.problem));
  const double longer = static_cast<double>(std::max(plan.problem.rows, plan.problem.cols));
  const double scalar = is_complex(plan.problem.dtype) ? 4 : 1;
  const double reduction = 4 * longer * k * k * scalar;  // Householder on both sides, or QR
  switch (plan.method) {
    case Method::kBisection: {
      const double halvings = std::max(1.0, 1 - std::log2(plan.tolerance));
      return reduction + halvings * 5 * k * k;  // of k intervals, by a count of 5 k each
    }
    case Method::kJacobi:
      return reduction + 6 * 3 * k * k * k * scalar;  // 6 sweeps of 3 k^3
    default:
      return reduction + 30 * k * k;  // 2 dqds steps a value, divisions
  }
}

// Bytes of one matrix and its values.
inline double estimate_bytes(const Plan& plan) {
  return static_cast<double>(matrix_bytes(plan.problem) + values_bytes(plan.problem));
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_WORK_ESTIMATE_H_
