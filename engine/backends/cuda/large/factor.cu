#include "engine/backends/cuda/large/factor.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/algorithms/large/block_jacobi.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"

namespace svdserve::cuda {
namespace {

static_assert(large::LargeBackend<CudaLargeBackend<double>>);
static_assert(large::LargeBackend<CudaLargeBackend<Complex>>);

LargePlan plan_of(const SvdserveCudaLargePlan& p) {
  LargePlan plan;
  plan.problem = {p.rows, p.cols, static_cast<DType>(p.dtype), static_cast<Order>(p.order)};
  LargeOptions& o = plan.options;
  o.method = static_cast<Method>(p.method);
  o.vectors = static_cast<Vectors>(p.vectors);
  o.tolerance = p.tolerance;
  o.max_sweeps = p.max_sweeps;
  o.strategy = static_cast<PivotStrategy>(p.strategy);
  o.variant = static_cast<BlockVariant>(p.variant);
  o.hyperbolic = p.hyperbolic != 0;
  o.certificate = p.certificate != 0;
  plan.values = p.values;
  plan.left_columns = p.left_columns;
  plan.right_rows = p.right_rows;
  return plan;
}

template <size_t N>
void copy_text(const std::string& from, char (&to)[N]) {
  std::snprintf(to, N, "%s", from.c_str());
}

void put_outcome(const LargeOutcome& from, SvdserveCudaLargeOutcome& to) {
  to = {};
  to.status = static_cast<int32_t>(from.status);
  copy_text(from.detail, to.detail);
  to.row = from.row;
  to.col = from.col;
  to.out_of_range = from.out_of_range;
  to.device_lost = from.device_lost;
  to.method = static_cast<int32_t>(from.method);
  to.warm_started = from.warm_started;
  to.sweeps = from.sweeps;
  to.rotations = from.rotations;
  to.proper_rotations = from.proper_rotations;
  to.residual = from.residual;
  to.left_orthogonality = from.left_orthogonality;
  to.right_orthogonality = from.right_orthogonality;
  to.phase_count = static_cast<int32_t>(std::min<size_t>(from.phases.size(), kSvdserveCudaMaxPhases));
  for (int32_t i = 0; i < to.phase_count; ++i) {
    const LargePhaseTime& phase = from.phases[static_cast<size_t>(i)];
    copy_text(phase.name, to.phases[i].name);
    to.phases[i].seconds = phase.seconds;
    to.phases[i].flops = phase.flops;
  }
}

// The memory of one job, freed at its end.
class JobMemory {
 public:
  explicit JobMemory(uint64_t bytes) { require(cudaMalloc(&memory_, bytes), "allocating a factor's memory"); }
  ~JobMemory() { (void)cudaFree(memory_); }
  JobMemory(const JobMemory&) = delete;
  JobMemory& operator=(const JobMemory&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

template <class E>
LargeOutcome decompose(LargeLane& lane, DeviceArena& arena, const LargePlan& plan, const LargeOperands& operands,
                       const LargeControl& control) {
  const LargeWatch watch(control);
  CudaLargeBackend<E> backend(lane, arena, watch);
  LargeOutcome outcome = large::block_jacobi(backend, plan, operands, control);
  // Whatever became of it, nothing of it is left in the stream, or the device is lost.
  if (!outcome.device_lost && cudaStreamSynchronize(lane.stream) != cudaSuccess) {
    (void)cudaGetLastError();
    outcome.status = LargeStatus::kFault;
    outcome.device_lost = true;
  }
  return outcome;
}

LargeOutcome run(int32_t device, const SvdserveCudaLargePlan& plain, const LargeOperands& operands,
                 const LargeControl& control) {
  const LargePlan plan = plan_of(plain);
  LargeOutcome outcome;
  try {
    require(cudaSetDevice(device), "choosing a device");
    std::unique_ptr<LargeLane> lane = take_lane(device);
    {
      const uint64_t bytes = factor_bytes(&plain);
      const JobMemory memory(bytes);
      DeviceArena arena(memory.get(), bytes);
      outcome = is_complex(plan.problem.dtype) ? decompose<Complex>(*lane, arena, plan, operands, control)
                                               : decompose<double>(*lane, arena, plan, operands, control);
    }
    if (outcome.device_lost) {
      (void)lane.release();  // nothing of a dead context is freed
    } else {
      keep_lane(std::move(lane));
    }
  } catch (const large::LargeStop& stop) {
    outcome.status = stop.status;
    outcome.detail = stop.detail;
    outcome.device_lost = stop.device_lost;
  } catch (const std::exception& e) {
    outcome.status = LargeStatus::kFault;
    outcome.detail = e.what();
  }
  return outcome;
}

}  // namespace

const char* large_refusal() {
  const std::string& refusal = libraries().refusal;
  return refusal.empty() ? nullptr : refusal.c_str();
}

// The tall matrix and its copy when it is permuted; X, its copy, W, Gram matrix and what cuSOLVER wants for it; the
// left basis and its copy; and for the rest.
uint64_t factor_bytes(const SvdserveCudaLargePlan* plan) {
  const bool complex = is_complex(static_cast<DType>(plan->dtype));
  const uint64_t element = complex ? sizeof(Complex) : sizeof(double);
  const auto size = [&](int64_t rows, int64_t cols) {
    return static_cast<uint64_t>(CudaLargeBackend<double>::leading_dimension(rows)) * static_cast<uint64_t>(cols) *
           element;
  };
  const bool wide = plan->rows < plan->cols;
  const int64_t m = std::max(plan->rows, plan->cols), n = std::min(plan->rows, plan->cols);
  const int64_t left = wide ? plan->right_rows : plan->left_columns;
  uint64_t bytes = size(m, n) + 2 * size(m, std::max(n, left)) + 7 * size(n, n);
  if (plan->certificate != 0) bytes += size(m, n) + 2 * size(std::max(m, left), left);
  // The pairs of a p-step: with either width a block more than there can be.
  const int pairs = static_cast<int>(n / 64 + 2);
  bytes += complex ? p_step_workspace_bytes<Complex>(pairs, 64)
                   : std::max(p_step_workspace_bytes<double>(pairs, 64), p_step_workspace_bytes<double>(pairs, 128));
  bytes += 2 * kTransferBytes + (uint64_t{64} << 20) + static_cast<uint64_t>(m) * 1024;
  return bytes;
}

void decompose_large(int32_t device, const SvdserveCudaLargePlan* plan, const SvdserveCudaLargeOperands* operands,
                     const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome) {
  const LargeOperands host{operands->matrix, operands->signature, operands->left, operands->values, operands->right};
  // The driver reads a flag; whoever called has a function. It is asked wherever the driver tells or polls.
  std::atomic<bool> cancel = false;
  LargeControl all;
  all.cancel = &cancel;
  all.progress = [&](const LargeProgress& p) {
    if (control->progress != nullptr) {
      const SvdserveCudaLargeProgress plain{
          static_cast<int32_t>(p.stage), p.sweep, p.rotations, p.proper_rotations, p.off_diagonal, p.fraction};
      control->progress(control->user, &plain);
    }
    if (control->cancelled != nullptr && control->cancelled(control->user) != 0) cancel.store(true);
  };
  put_outcome(run(device, *plan, host, all), *outcome);
}

}  // namespace svdserve::cuda
