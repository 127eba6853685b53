#include "engine/backends/host/large/small_factor.h"

#include <complex>

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_factor_backend.h"

namespace svdserve::host {

struct SmallFactor::Workspace {
  FactorThreads alone{nullptr, 1, nullptr};
  HostFactorBackend<double> real{alone};
  HostFactorBackend<Complex> complex{alone};

  template <class E>
  static FactorOutcome run(HostFactorBackend<E>& backend, const FactorPlan& plan, const FactorOperands& operands,
                           const FactorControl& control) {
    FactorOutcome outcome = factor::block_jacobi(backend, plan, operands, control);
    backend.reset();
    outcome.phases.clear();
    return outcome;
  }
};

SmallFactor::SmallFactor() : workspace_(std::make_unique<Workspace>()) {}
SmallFactor::~SmallFactor() = default;
SmallFactor::SmallFactor(SmallFactor&&) noexcept = default;
SmallFactor& SmallFactor::operator=(SmallFactor&&) noexcept = default;

FactorOutcome SmallFactor::decompose(const FactorPlan& plan, const FactorOperands& operands,
                                     const FactorControl& control) {
  const FpEnvironment environment;
  const BlasThreads one_thread_a_call;
  return is_complex(plan.problem.dtype) ? Workspace::run(workspace_->complex, plan, operands, control)
                                        : Workspace::run(workspace_->real, plan, operands, control);
}

}  // namespace svdserve::host
