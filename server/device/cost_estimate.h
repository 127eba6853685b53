// A first idea of how long work takes on a host device: good to an order of magnitude, which is what its two uses ask
// for (may it run on the calling thread? which device has less to do?). No result depends on it.
#ifndef SVDSERVE_SERVER_DEVICE_COST_ESTIMATE_H_
#define SVDSERVE_SERVER_DEVICE_COST_ESTIMATE_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "engine/planner.h"

namespace svdserve::server {

// Floating-point operations of one matrix, complex ones counted as four real ones.
constexpr double estimate_flops(const Plan& plan) {
  const double k = static_cast<double>(values_per_matrix(plan.problem));
  const double longer = static_cast<double>(std::max(plan.problem.rows, plan.problem.cols));
  const double scalar = is_complex(plan.problem.dtype) ? 4 : 1;
  const double reduction = 4 * longer * k * k * scalar;  // Householder on both sides, or QR
  switch (plan.method) {
    case Method::kBisection:
      return reduction + 250 * k * k;  // 50 halvings of k counts of 5 k
    case Method::kJacobi:
      return reduction + 6 * 3 * k * k * k * scalar;  // 6 sweeps of 3 k^3
    default:
      return reduction + 30 * k * k;  // 2 dqds steps a value, divisions
  }
}

// One core, 2 flops a nanosecond, matrices in packs of 8 (a last pack costs as much as a full one), 1 us to get going.
inline absl::Duration estimate_compute(const Plan& plan, int64_t count) {
  constexpr double kFlopsPerNanosecond = 2;
  constexpr int64_t kPack = 8;
  const double packs = static_cast<double>((count + kPack - 1) / kPack);
  return absl::Microseconds(1) + absl::Nanoseconds(packs * kPack * estimate_flops(plan) / kFlopsPerNanosecond);
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_ESTIMATE_H_
