#include "engine/svd_engine.h"

#include "engine/backends/host/host_backend.h"
#include "engine/backends/host/packs/kernel_table.h"

namespace svdserve {

bool is_supported(Simd simd) { return simd == Simd::kBest || host::f64_kernels(simd) != nullptr; }

struct SvdEngine::Impl {
  explicit Impl(const EngineOptions& options) : host(options) {}
  host::HostBackend host;
};

SvdEngine::SvdEngine(const EngineOptions& options) : impl_(new Impl(options)) {}
SvdEngine::~SvdEngine() = default;

int SvdEngine::threads() const { return impl_->host.threads(); }
Simd SvdEngine::simd() const { return impl_->host.simd(); }

SvdEngine::Outcome SvdEngine::execute(const Plan& plan, absl::Span<const HostSegment> segments,
                                      const std::atomic<bool>* cancel) const {
  return impl_->host.execute(plan, segments, cancel);
}

}  // namespace svdserve
