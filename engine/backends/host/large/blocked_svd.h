// One matrix of moderate order on the calling thread: the drivers of large matrices without an arena. It serves batches
// whose matrices the caller spreads over threads. It is meant for orders from about 33 to 512, and correct
// for all.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_SVD_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_SVD_H_

#include <memory>

#include "engine/large_engine.h"

namespace svdserve::host {

// The workspace of one thread: kept from matrix to matrix, it allocates nothing large for the second one of a shape.
// A caller with many matrices should hold a BlasThreads (blas.h) meanwhile; decompose() holds one of its own.
// Same plan and matrix, same bits, whatever was computed before. Thread safety: none, one object a thread.
class BlockedSvd {
 public:
  BlockedSvd();
  ~BlockedSvd();
  BlockedSvd(BlockedSvd&&) noexcept;
  BlockedSvd& operator=(BlockedSvd&&) noexcept;

  // As LargeEngine::decompose(), of plans that are no factored eigenproblem, and with its outcome but for the phases.
  // Never throws.
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control = {});

 private:
  struct Workspace;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_SVD_H_
