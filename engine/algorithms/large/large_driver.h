// The driver of a plan and its predicted time: block_jacobi.h, hermitian_tridiagonal.h, or hermitian_factored.h and leading_triplets.h, which
// have the first as a part.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/algorithms/large/hermitian_factored.h"
#include "engine/algorithms/large/hermitian_tridiagonal.h"
#include "engine/algorithms/large/leading_triplets.h"
#include "engine/algorithms/large/predicted_work.h"

namespace svdserve::large {

// Every plan has one. A subspace is expected to be enough.
inline double predicted_seconds(const LargePlan& plan, const WorkSpeeds& speeds) {
  const LargeOptions& o = plan.options;
  if (o.kind == LargeKind::kGeneral) return seconds_from(general_parts(plan, speeds), 0);
  if (o.method == Method::kTridiagonal) return seconds_from(tridiagonal_parts(plan, speeds), 0);
  if (is_factored(plan)) {
    const LargePlan svd = factor_svd_plan(plan, plan.problem.cols, LargeKind::kHyperbolicSvd);
    return seconds_from(factored_parts(plan, svd, speeds), 0);
  }
  if (plan.subspace_columns > 0) return seconds_from(leading_parts(plan, speeds), 0);
  return seconds_from(svd_parts(plan, expected_start(plan, speeds), speeds), 0);
}

// Whether its driver has states (LargeStateStore): those of block_jacobi.h, as far as that is not a part of others' work.
inline bool has_states(const LargePlan& plan) {
  const LargeOptions& o = plan.options;
  return o.kind != LargeKind::kGeneral && o.method != Method::kTridiagonal && o.top_k == 0;
}

// Runs it, and turns what was thrown into an outcome. Never throws.
template <HermitianBackend Backend>
LargeOutcome decompose(Backend& backend, const LargePlan& plan, const LargeOperands& operands,
                       const LargeControl& control) {
  if (plan.options.method == Method::kTridiagonal) {
    return outcome_of([&] { return HermitianTridiagonal<Backend>(backend, plan, operands, control).run(); });
  }
  if (is_factored(plan)) {
    return outcome_of([&] { return HermitianFactored<Backend>(backend, plan, operands, control).run(); });
  }
  if (plan.options.top_k > 0) {
    return outcome_of([&] { return LeadingTriplets<Backend>(backend, plan, operands, control).run(); });
  }
  return block_jacobi(backend, plan, operands, control);
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_
