// How much work a matrix is: what carries a measured time over to a shape that was not measured.
#ifndef SVDSERVE_SERVER_DEVICE_COST_WORK_ESTIMATE_H_
#define SVDSERVE_SERVER_DEVICE_COST_WORK_ESTIMATE_H_

#include <algorithm>
#include <cmath>

#include "engine/planner.h"

namespace svdserve::server {

// Sweeps of the Jacobi method that a matrix takes, mostly. Once the columns are nearly orthogonal each sweep squares
// their cosines. A hard matrix may take any number up to max_sweeps, as the cost table learns.
inline double estimate_sweeps(const Plan& plan) {
  if (plan.decomposition == Decomposition::kGeneral) {
    const double k = static_cast<double>(values_per_matrix(plan.problem));
    const double from_anywhere = 2.5 * std::log2(2 * k);
    return std::min(static_cast<double>(plan.max_sweeps), plan.starting_vectors ? from_anywhere / 2 : from_anywhere);
  }
  const double digits = std::max(1.0, -std::log2(plan.tolerance));  // binary ones, of a cosine
  return std::min(static_cast<double>(plan.max_sweeps), 1 + std::log2(digits));
}

// Floating-point operations of one matrix beyond its values. The rotations are accumulated and applied to the original
// columns, and each MIMO number takes a logarithm for each value.
inline double estimate_flops_beyond_values(const Plan& plan, Method method) {
  const Outputs& o = plan.outputs;
  const double k = static_cast<double>(values_per_matrix(plan.problem));
  const double scalar = is_complex(plan.problem.dtype) ? 4 : 1;
  double flops = o.answers() ? 20 * k * (1 + static_cast<double>(o.snr_count)) : 0;
  if (!o.vectors() || plan.decomposition != Decomposition::kSvd) return flops;
  const double left = static_cast<double>(plan.problem.rows * o.left_columns);
  const double right = static_cast<double>(plan.problem.cols * o.right_columns);
  // BIDIAGONAL's: those of the bidiagonal matrix, which is real, and their way back.
  const double of_square = method == Method::kBidiagonal ? 10 + 4 * scalar : estimate_sweeps(plan) * 3 * scalar;
  flops += of_square * k * k * k + 2 * k * (left + right) * scalar;
  const double product = 2 * k * static_cast<double>(plan.problem.rows * plan.problem.cols) * scalar;
  if (o.certificate) flops += 3 * product;
  if (o.gradients()) flops += (static_cast<double>(o.snr_count) + 1) * product;
  return flops;
}

// Floating-point operations of one matrix's values, complex ones counted as four real ones.
inline double estimate_flops_of_values(const Plan& plan, Method method) {
  const double k = static_cast<double>(values_per_matrix(plan.problem));
  const double longer = static_cast<double>(std::max(plan.problem.rows, plan.problem.cols));
  const double scalar = is_complex(plan.problem.dtype) ? 4 : 1;
  const double reduction = 4 * longer * k * k * scalar;  // Householder on both sides, or QR
  switch (method) {
    case Method::kBisection: {
      const double halvings = std::max(1.0, 1 - std::log2(plan.tolerance));
      return reduction + halvings * 5 * k * k;  // of k intervals, by a count of 5 k each
    }
    case Method::kQr:
      return (plan.outputs.vectors() ? 50 : 20) * k * k * k * scalar;  // general eigenproblems, vectors included
    case Method::kJacobi:
      if (plan.decomposition == Decomposition::kGeneral) {  // in complex arithmetic, always
        return estimate_sweeps(plan) * 58 * k * k * k;
      }
      return reduction + estimate_sweeps(plan) * 3 * k * k * k * scalar;
    case Method::kTridiagonal:
      // Rotations with a square root and a division each; of packs vectors are included.
      return reduction + (plan.outputs.vectors() ? 6 + 2 * scalar : 0) * k * k * k + 50 * k * k;
    default:
      return reduction + 30 * k * k;  // 2 dqds steps a value, divisions
  }
}

// Floating-point operations of one matrix by a method of the plan's.
inline double estimate_flops(const Plan& plan, Method method) {
  return estimate_flops_of_values(plan, method) + estimate_flops_beyond_values(plan, method);
}
inline double estimate_flops(const Plan& plan) { return estimate_flops(plan, plan.method); }

// Bytes of one matrix with its starting vectors, and of its results.
inline double estimate_bytes(const Plan& plan) {
  const double group = static_cast<double>(plan.outputs.group);
  return static_cast<double>(operand_bytes(plan)) + static_cast<double>(result_bytes(plan, plan.outputs.group)) / group;
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_WORK_ESTIMATE_H_
