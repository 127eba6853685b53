#include "engine/backends/host/large/blocked_svd.h"

#include <complex>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_large_backend.h"

namespace svdserve::host {

struct BlockedSvd::Workspace {
  LargeThreads alone{nullptr, 1, nullptr};
  HostLargeBackend<double> real{alone};
  HostLargeBackend<Complex> complex{alone};

  template <class E>
  static LargeOutcome run(HostLargeBackend<E>& backend, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) {
    LargeOutcome outcome = large::decompose(backend, plan, operands, control);
    backend.reset();
    outcome.phases.clear();
    return outcome;
  }
};

BlockedSvd::BlockedSvd() : workspace_(std::make_unique<Workspace>()) {}
BlockedSvd::~BlockedSvd() = default;
BlockedSvd::BlockedSvd(BlockedSvd&&) noexcept = default;
BlockedSvd& BlockedSvd::operator=(BlockedSvd&&) noexcept = default;

LargeOutcome BlockedSvd::decompose(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) {
  const FpEnvironment environment;
  const BlasThreads one_thread_a_call;
  return is_complex(plan.problem.dtype) ? Workspace::run(workspace_->complex, plan, operands, control)
                                        : Workspace::run(workspace_->real, plan, operands, control);
}

}  // namespace svdserve::host
