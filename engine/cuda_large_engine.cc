#include "engine/cuda_large_engine.h"

#include <string>

#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/backends/host/large/hermitian_eigen.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/task_arena.h"

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

void tell(const void* control, const LargeProgress* progress) {
  static_cast<const LargeControl*>(control)->progress(*progress);
}

class CudaLargeEngine final : public LargeEngine {
 public:
  CudaLargeEngine(const SvdserveCudaApi* api, int ordinal, int threads)
      : api_(api),
        ordinal_(ordinal),
        threads_(threads > 0 ? threads : oneapi::tbb::info::default_concurrency()),
        arena_(threads_),
        eigen_(*this, &arena_, threads_) {}

  LargeWorkspace memory(const LargePlan& plan) const override {
    if (host::is_factored(plan)) return eigen_.memory(plan);
    return {0, api_->large_device_bytes(&plan)};
  }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    if (host::is_factored(plan)) return eigen_.decompose(plan, operands, control);
    const SvdserveCudaLargeControl c{control.progress ? &tell : nullptr, &control, control.cancel};
    SvdserveCudaLargeOutcome outcome{};
    api_->decompose_large(ordinal_, &plan, &operands, &c, &outcome);
    return outcome_of(outcome);
  }

 private:
  const SvdserveCudaApi* const api_;
  const int ordinal_;
  const int threads_;
  mutable oneapi::tbb::task_arena arena_;  // of an eigenproblem's factorization
  const host::HermitianEigen eigen_;
};

}  // namespace

std::unique_ptr<LargeEngine> open_cuda_large_engine(int ordinal, CudaStatus* status, int threads) {
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
  return status->ok() ? std::make_unique<CudaLargeEngine>(plugin.api, ordinal, threads) : nullptr;
}

}  // namespace svdserve
