// The driver of a plan: block_jacobi.h, hermitian_tridiagonal.h, or hermitian_factored.h and leading_triplets.h, which
// have the first as a part.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/algorithms/large/hermitian_factored.h"
#include "engine/algorithms/large/hermitian_tridiagonal.h"
#include "engine/algorithms/large/leading_triplets.h"

namespace svdserve::large {

// Runs it, and turns what was thrown into an outcome. Never throws.
template <LargeBackend Backend>
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
