#include "engine/cuda_factor_engine.h"

#include <string>

#include "engine/backends/cuda_door/plugin_loader.h"

namespace svdserve {
namespace {

SvdserveCudaFactorPlan plain(const FactorPlan& plan) {
  SvdserveCudaFactorPlan p{};
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

FactorOutcome outcome_of(const SvdserveCudaFactorOutcome& p) {
  FactorOutcome o;
  o.status = static_cast<FactorStatus>(p.status);
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

void tell(void* user, const SvdserveCudaFactorProgress* p) {
  FactorProgress progress;
  progress.stage = static_cast<FactorStage>(p->stage);
  progress.sweep = p->sweep;
  progress.rotations = p->rotations;
  progress.proper_rotations = p->proper_rotations;
  progress.off_diagonal = p->off_diagonal;
  progress.fraction = p->fraction;
  static_cast<const FactorControl*>(user)->progress(progress);
}
int32_t cancelled(void* user) {
  return static_cast<const FactorControl*>(user)->cancel->load(std::memory_order_relaxed) ? 1 : 0;
}

class CudaFactorEngine final : public FactorEngine {
 public:
  CudaFactorEngine(const SvdserveCudaApi* api, int ordinal) : api_(api), ordinal_(ordinal) {}

  FactorMemory memory(const FactorPlan& plan) const override {
    const SvdserveCudaFactorPlan p = plain(plan);
    return {0, api_->factor_bytes(&p)};
  }

  FactorOutcome decompose(const FactorPlan& plan, const FactorOperands& operands,
                          const FactorControl& control) const override {
    const SvdserveCudaFactorPlan p = plain(plan);
    const SvdserveCudaFactorOperands o{operands.matrix, operands.signature, operands.left, operands.values,
                                       operands.right};
    const SvdserveCudaFactorControl c{control.progress ? &tell : nullptr,
                                      control.cancel != nullptr ? &cancelled : nullptr,
                                      const_cast<FactorControl*>(&control)};
    SvdserveCudaFactorOutcome outcome{};
    api_->decompose_factor(ordinal_, &p, &o, &c, &outcome);
    return outcome_of(outcome);
  }

 private:
  const SvdserveCudaApi* const api_;
  const int ordinal_;
};

}  // namespace

std::unique_ptr<FactorEngine> open_cuda_factor_engine(int ordinal, CudaStatus* status) {
  constexpr int kNoDevice = 100;      // cudaErrorNoDevice
  constexpr int kNotSupported = 801;  // cudaErrorNotSupported
  const cuda::Plugin& plugin = cuda::plugin();
  *status = {};
  if (plugin.api == nullptr) {
    *status = {kNoDevice, plugin.refusal, false};
  } else if (ordinal < 0 || ordinal >= plugin.devices) {
    *status = {kNoDevice, "there is no GPU " + std::to_string(ordinal) + ", only " + std::to_string(plugin.devices),
               false};
  } else if (const char* const refusal = plugin.api->factor_refusal(); refusal != nullptr) {
    *status = {kNotSupported, refusal, false};
  }
  return status->ok() ? std::make_unique<CudaFactorEngine>(plugin.api, ordinal) : nullptr;
}

}  // namespace svdserve
