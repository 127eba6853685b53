// The engine's facade: plan(problem) -> execute(batch). No gRPC, no protobuf, no Prometheus below this line.
#ifndef SVDSERVE_ENGINE_SVD_ENGINE_H_
#define SVDSERVE_ENGINE_SVD_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "engine/execution.h"
#include "engine/planner.h"

namespace svdserve {

// True where this build has the instructions and this processor runs them.
bool is_supported(Simd simd);

// A host device: an arena of threads with the kernels for its processor.
// Thread safety: execute() may be called from any number of threads at once; the calls share the arena.
class SvdEngine {
 public:
  explicit SvdEngine(const EngineOptions& options = {});
  ~SvdEngine();
  SvdEngine(const SvdEngine&) = delete;
  SvdEngine& operator=(const SvdEngine&) = delete;

  int threads() const;
  Simd simd() const;  // resolved, never kBest

  // Computes the singular values of every matrix of every segment; blocks until they are written. Matrices of different
  // segments share packs: many small segments cost no more than one large one.
  // `cancel`, if given, is polled between small groups of matrices. Once it is true the call returns soon, with an
  // unspecified part of the outputs written and `completed` false.
  // The floating-point environment of the calling thread is restored. Never throws for bad numbers; std::bad_alloc when
  // there is no scratch memory.
  using Outcome = ExecutionOutcome;
  Outcome execute(const Plan& plan, absl::Span<const HostSegment> segments,
                  const std::atomic<bool>* cancel = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_SVD_ENGINE_H_
