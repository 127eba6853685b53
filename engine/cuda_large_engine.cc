#include "engine/cuda_large_engine.h"

#include <string>

#include "engine/backends/cuda_door/plugin_loader.h"

namespace svdserve {
namespace {

SvdserveCudaLargePlan plain(const LargePlan& plan) {
  SvdserveCudaLargePlan p{};
  p.rows = plan.problem.rows;
  p.cols = plan.problem.cols;
  p.dtype = static_cast<int32_t>(plan.problem.dtype);
  p.order = static_cast<int32_t>(plan.problem.order);
  p.method = static_cast<int32_t>(plan.options.method);
  p.vectors = static_cast<int32_t>(plan.options.vectors);
  p.max_sweeps = plan.options.max_sweeps;
  p.strategy = static_cast<int32_t>(plan.options.strategy);
  p.variant = static_cast<int32_t>(plan.options.variant);
  p.hyperbolic = plan.options.hyperbolic;
  p.certificate = plan.options.certificate;
  p.tolerance = plan.options.tolerance;
  p.values = plan.values;
  p.left_columns = plan.left_columns;
  p.right_rows = plan.right_rows;
  return p;
}

LargeOutcome outcome_of(const SvdserveCudaLargeOutcome& p) {
  LargeOutcome o;
  o.status = static_cast<LargeStatus>(p.status);
  o.detail = p.detail;
  o.row = p.row;
  o.col = p.col;
  o.out_of_range = p.out_of_range != 0;
  o.device_lost = p.device_lost != 0;
  o.method = static_cast<Method>(p.method);
  o.warm_started = p.warm_started != 0;
  o.sweeps = p.sweeps;
  o.rotations = p.rotations;
  o.proper_rotations = p.proper_rotations;
  o.residual = p.residual;
  o.left_orthogonality = p.left_orthogonality;
  o.right_orthogonality = p.right_orthogonality;
  for (int32_t i = 0; i < p.phase_count; ++i) {
    o.phases.push_back({p.phases[i].name, p.phases[i].seconds, p.phases[i].flops});
  }
  return o;
}

void tell(void* user, const SvdserveCudaLargeProgress* p) {
  LargeProgress progress;
  progress.stage = static_cast<LargeStage>(p->stage);
  progress.sweep = p->sweep;
  progress.rotations = p->rotations;
  progress.proper_rotations = p->proper_rotations;
  progress.off_diagonal = p->off_diagonal;
  progress.fraction = p->fraction;
  static_cast<const LargeControl*>(user)->progress(progress);
}
int32_t cancelled(void* user) {
  return static_cast<const LargeControl*>(user)->cancel->load(std::memory_order_relaxed) ? 1 : 0;
}

class CudaLargeEngine final : public LargeEngine {
 public:
  CudaLargeEngine(const SvdserveCudaApi* api, int ordinal) : api_(api), ordinal_(ordinal) {}

  LargeWorkspace memory(const LargePlan& plan) const override {
    const SvdserveCudaLargePlan p = plain(plan);
    return {0, api_->factor_bytes(&p)};
  }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    const SvdserveCudaLargePlan p = plain(plan);
    const SvdserveCudaLargeOperands o{operands.matrix, operands.signature, operands.left, operands.values,
                                      operands.right};
    const SvdserveCudaLargeControl c{control.progress ? &tell : nullptr,
                                     control.cancel != nullptr ? &cancelled : nullptr,
                                     const_cast<LargeControl*>(&control)};
    SvdserveCudaLargeOutcome outcome{};
    api_->decompose_large(ordinal_, &p, &o, &c, &outcome);
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
