#include "engine/cuda_large_engine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/cuda/device/cuda_work_speeds.h"
#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/backends/cuda_door/states_across.h"
#include "engine/backends/ranks/rank_process.h"

namespace svdserve {
namespace {

LargeOutcome outcome_of(const SvdserveCudaLargeOutcome& p) {
  LargeOutcome o;
  static_cast<LargeReport&>(o) = p.report;
  o.detail = p.detail;
  o.members = std::max(p.members, 1);
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

// CUDA loads a kernel when it is launched first, and cuBLAS chooses its kernels by size. So both methods of an SVD have a
// matrix of a size at which they use what larger ones use.
void decompose_for_practice(const LargeEngine& engine) {
  constexpr int64_t kOrder = 1024;
  constexpr size_t kEntries = kOrder * kOrder;
  std::minstd_rand random(1);
  std::vector<double> matrix(kEntries), left(kEntries), values(kOrder), right(kEntries);
  for (double& entry : matrix) entry = std::uniform_real_distribution<double>(-1, 1)(random);
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    LargeOptions options;
    options.method = method;
    const LargePlan plan = *plan_large({kOrder, kOrder, DType::kF64, Order::kColumnMajor}, options).plan;
    LargeOperands operands;
    operands.matrix = matrix.data();
    operands.left = left.data();
    operands.values = values.data();
    operands.right = right.data();
    (void)engine.decompose(plan, operands);
  }
}

class CudaLargeEngine final : public LargeEngine {
 public:
  CudaLargeEngine(const SvdserveCudaApi* api, int ordinal) : api_(api), ordinal_(ordinal) {}

  LargeWorkspace memory(const LargePlan& plan, uint64_t device_room) const override {
    // No memory is enough for what a GPU does not compute, so that the processor takes it.
    if (is_for_processor(plan)) return {0, kAnyRoom};
    return api_->large_memory(&plan, device_room);
  }

  double predicted_seconds(const LargePlan& plan) const override {
    return large::predicted_seconds(plan, cuda::cuda_work_speeds());
  }

  uint64_t state_bytes(const LargePlan& plan) const override { return api_->large_state_bytes(&plan); }

  void prepare() const override {
    try {
      decompose_for_practice(*this);
    } catch (const std::bad_alloc&) {
      // There is no room for the matrices of practice. The next ones may have some.
    }
  }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    const SvdserveCudaLargeControl c{control.progress ? &tell : nullptr, &control, control.cancel,
                                     cuda::states_to_cross(control.states), control.device_room};
    SvdserveCudaLargeOutcome outcome{};
    api_->decompose_large(ordinal_, &plan, &operands, &c, &outcome);
    return outcome_of(outcome);
  }

 private:
  const SvdserveCudaApi* const api_;
  const int ordinal_;
};

class CudaRingEngine final : public LargeEngine {
 public:
  CudaRingEngine(const SvdserveCudaApi* api, std::vector<int32_t> ordinals, RingMembers kind)
      : api_(api), ordinals_(std::move(ordinals)), kind_(kind) {}

  // Matrices that do not fit at once are one GPU's, which is as fast (decisions/0017).
  LargeWorkspace memory(const LargePlan& plan, uint64_t /*device_room*/) const override {
    if (is_for_processor(plan)) return {0, kAnyRoom};
    return api_->ring_memory(&plan, kAnyRoom);
  }

  double predicted_seconds(const LargePlan& plan) const override {
    return large::predicted_seconds(plan, cuda::cuda_ring_work_speeds(static_cast<int>(ordinals_.size())));
  }

  uint64_t state_bytes(const LargePlan& plan) const override { return api_->large_state_bytes(&plan); }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    const SvdserveCudaLargeControl c{control.progress ? &tell : nullptr, &control, control.cancel,
                                     cuda::states_to_cross(control.states), control.device_room};
    SvdserveCudaLargeOutcome outcome{};
    api_->decompose_ring(ordinals_.data(), static_cast<int32_t>(ordinals_.size()), static_cast<int32_t>(kind_), &plan,
                         &operands, &c, &outcome);
    return outcome_of(outcome);
  }

 private:
  const SvdserveCudaApi* const api_;
  const std::vector<int32_t> ordinals_;
  const RingMembers kind_;
};

// Whether GPU `ordinal` takes large matrices; *status says why not.
bool takes_large(int ordinal, CudaStatus* status) {
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
  return status->ok();
}

}  // namespace

std::unique_ptr<LargeEngine> open_cuda_large_engine(int ordinal, CudaStatus* status) {
  if (!takes_large(ordinal, status)) return nullptr;
  return std::make_unique<CudaLargeEngine>(cuda::plugin().api, ordinal);
}

std::unique_ptr<LargeEngine> open_cuda_ring_engine(const std::vector<int>& ordinals, CudaStatus* status,
                                                   RingMembers kind) {
  constexpr int kInvalidValue = 1;    // cudaErrorInvalidValue
  constexpr int kNotSupported = 801;  // cudaErrorNotSupported
  *status = {};
  const size_t count = ordinals.size();
  if ((count != 1 && count != 2 && count != 4 && count != 8) ||
      std::set<int>(ordinals.begin(), ordinals.end()).size() != count) {
    *status = {kInvalidValue, "a ring has 1, 2, 4 or 8 different GPUs", false};
    return nullptr;
  }
  for (const int ordinal : ordinals) {
    if (!takes_large(ordinal, status)) return nullptr;
  }
  const SvdserveCudaApi* const api = cuda::plugin().api;
  std::vector<int32_t> devices(ordinals.begin(), ordinals.end());
  if (kind == RingMembers::kRanks) {
    const char* refusal = ranks::start_refusal();
    if (refusal == nullptr) refusal = api->rank_refusal(devices.data(), static_cast<int32_t>(count));
    if (refusal != nullptr) {
      *status = {kNotSupported, refusal, false};
      return nullptr;
    }
  }
  return std::make_unique<CudaRingEngine>(api, std::move(devices), kind);
}

bool gpus_reach_each_other(int ordinal, int other) {
  CudaStatus status;
  if (!takes_large(ordinal, &status) || !takes_large(other, &status)) return false;
  const SvdserveCudaApi* const api = cuda::plugin().api;
  return api->reaches(ordinal, other) != 0 && api->reaches(other, ordinal) != 0;
}

}  // namespace svdserve
