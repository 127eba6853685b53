// The host back end: the lane kernels on every core of an arena.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_HOST_BACKEND_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_HOST_BACKEND_H_

#include <atomic>

#include "absl/types/span.h"
#include "engine/backends/host/mimo/answer_kernels.h"
#include "engine/backends/host/packs/kernel_table.h"
#include "engine/execution.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve::host {

// Thread safety: as SvdEngine::execute().
class HostBackend {
 public:
  explicit HostBackend(const EngineOptions& options);
  int threads() const { return threads_; }
  Simd simd() const { return simd_; }
  ExecutionOutcome execute(const Plan& plan, absl::Span<const HostSegment> segments,
                           const std::atomic<bool>* cancel) const;

 private:
  int threads_;
  Simd simd_;
  const KernelTables<float>* f32_;
  const KernelTables<double>* f64_;
  const KernelTables<float>* c64_;
  const KernelTables<double>* c128_;
  const AnswerKernels<float>* f32_answers_;
  const AnswerKernels<double>* f64_answers_;
  mutable oneapi::tbb::task_arena arena_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_HOST_BACKEND_H_
