#include "engine/cuda_large_engine.h"

#include <cstdint>
#include <limits>
#include <string>

#include "engine/backends/cuda_door/plugin_loader.h"

namespace svdserve {
namespace {

LargeOutcome outcome_of(const SvdserveCudaLargeOutcome& p) {
  LargeOutcome o;
  static_cast<LargeReport&>(o) = p.report;
  o.detail = p.detail;
  for (int32_t i = 0; i < p.phase_count; ++i) {
    o.phases.push_back({p.phases[i].name, p.phases[i].seconds, p.phases[i].flops});
  }
  return o;
}

// JACOBI for general matrices in blocks, which is by a strategy or a variant that the caller has named.
bool is_for_processor(const LargePlan& plan) {
  const LargeOptions& o = plan.options;
  return o.kind == LargeKind::kGeneral && o.method == Method::kJacobi &&
         (o.strategy != PivotStrategy::kAuto || o.variant != BlockVariant::kAuto);
}

void tell(const void* control, const LargeProgress* progress) {
  static_cast<const LargeControl*>(control)->progress(*progress);
}

class CudaLargeEngine final : public LargeEngine {
 public:
  CudaLargeEngine(const SvdserveCudaApi* api, int ordinal) : api_(api), ordinal_(ordinal) {}

  LargeWorkspace memory(const LargePlan& plan) const override {
    // No memory is enough for what a GPU does not compute, so that the processor takes it.
    if (is_for_processor(plan)) return {0, std::numeric_limits<uint64_t>::max()};
    return {api_->large_host_bytes(&plan), api_->large_device_bytes(&plan)};
  }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    const SvdserveCudaLargeControl c{control.progress ? &tell : nullptr, &control, control.cancel};
    SvdserveCudaLargeOutcome outcome{};
    api_->decompose_large(ordinal_, &plan, &operands, &c, &outcome);
    return outcome_of(outcome);
  }

 private:
  const SvdserveCudaApi* const api_;
  const int ordinal_;
};

}  // namespace

std::unique_ptr<LargeEngine> open_cuda_large_engine(int ordinal, CudaStatus* status) {
  constexpr int kNoDevice = 100;      // cudaErrorNoDevice
  constexpr int kNotSupported = 801;  // cudaErrorNotSupported
  const cuda::Plugin& plugin = cuda::plugin();
  *status = {};
  if (plugin.api == nullptr) {
    *status = {kNoDevice, plugin.refusal, false};
  } else if (ordinal < 0 || ordinal >= plugin.devices) {
    *status = {kNoDevice, "there is no GPU " + std::to_string(ordinal) + ", only " + std::to_string(plugin.devices),
               false};
  } else if (const char* const refusal = plugin.api->large_refusal(); refusal != nullptr) {
    *status = {kNotSupported, refusal, false};
  }
  return status->ok() ? std::make_unique<CudaLargeEngine>(plugin.api, ordinal) : nullptr;
}

}  // namespace svdserve
