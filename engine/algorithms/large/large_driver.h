// The driver of a plan: block_jacobi.h, or hermitian_tridiagonal.h. FACTORED eigenproblems are composed of the former and
// come here as the SVDs that they need.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/algorithms/large/hermitian_tridiagonal.h"

namespace svdserve::large {

// Runs it, and turns what was thrown into an outcome. Never throws.
template <LargeBackend Backend>
LargeOutcome decompose(Backend& backend, const LargePlan& plan, const LargeOperands& operands,
                       const LargeControl& control) {
  if (plan.options.method != Method::kTridiagonal) return block_jacobi(backend, plan, operands, control);
  return outcome_of([&] { return HermitianTridiagonal<Backend>(backend, plan, operands, control).run(); });
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_DRIVER_H_
