#include "engine/backends/cuda/members/decompose_ring.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/decompose_large.h"
#include "engine/backends/cuda/members/cuda_member.h"
#include "engine/backends/ring/ring_backend.h"

namespace svdserve::cuda {
namespace {

// Without a sign of life of a GPU: far longer than a group of p-steps takes.
constexpr std::chrono::minutes kDeadline{10};

// GPUs that do not reach each other copy through the host, correct and slow.
void let_reach(const std::vector<int>& devices) {
  for (const int from : devices) {
    require(cudaSetDevice(from), "choosing a device");
    for (const int to : devices) {
      int can = 0;
      if (from == to || cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || can == 0) continue;
      (void)cudaDeviceEnablePeerAccess(to, 0);  // or it has been
      (void)cudaGetLastError();
    }
  }
}

// The first GPU has the matrices, and is a member. An error kills the contexts of all of this process's GPUs, so that
// checkpoints after sweeps would save nothing.
template <class E>
LargeOutcome decompose(LargeLane& lane, DeviceArena& arena, const std::vector<int>& devices, const LargePlan& plan,
                       const LargeOperands& operands, const LargeControl& control) {
  using Ring = ring::RingBackend<CudaLargeBackend<E>, CudaMember<E>>;
  const LargeWatch watch(control);
  CudaLargeBackend<E> home(lane, arena, watch);
  const auto make = [&devices](const std::vector<int>& which) {
    ring::Members<CudaMember<E>> members;
    for (const int w : which) members.push_back(std::make_shared<CudaMember<E>>(devices[static_cast<size_t>(w)]));
    return members;
  };
  typename Ring::Settings settings;
  settings.members = static_cast<int>(devices.size());
  settings.deadline = kDeadline;
  settings.checkpoints = false;
  settings.sweep_speedup = settings.members;
  Ring backend(home, make, settings, watch);
  LargeOutcome outcome = large::decompose(backend, plan, operands, control);
  backend.tell(outcome);
  return outcome;
}

}  // namespace

// The first GPU's: matrices, a member, and two checkpoints of X and V on their way home.
uint64_t ring_device_bytes(const LargePlan* plan) {
  const uint64_t bytes = large_device_bytes(plan);
  if (plan->options.kind == LargeKind::kGeneral || plan->options.method == Method::kTridiagonal) return bytes;
  const bool complex = is_complex(plan->problem.dtype);
  const int64_t n = std::min(plan->problem.rows, plan->problem.cols);
  const uint64_t square = static_cast<uint64_t>(n) * static_cast<uint64_t>(n) * (complex ? 16 : 8);
  return bytes + ring_member_bytes(n, n, n, complex) + 4 * square;
}

void decompose_ring(const int32_t* devices, int32_t count, const LargePlan* plan, const LargeOperands* operands,
                    const SvdserveCudaLargeControl* control, SvdserveCudaLargeOutcome* outcome) {
  const std::vector<int> all(devices, devices + count);
  const OwnControl own(*control);
  const auto run = [&](LargeLane& lane, DeviceArena& arena) {
    let_reach(all);
    require(cudaSetDevice(all[0]), "choosing a device");
    return is_complex(plan->problem.dtype) ? decompose<Complex>(lane, arena, all, *plan, *operands, own)
                                           : decompose<double>(lane, arena, all, *plan, *operands, own);
  };
  if (!ring::is_ring_size(count) || plan->options.kind == LargeKind::kGeneral) {
    decompose_large(devices[0], plan, operands, control, outcome);
    return;
  }
  put_outcome(run_on_lane(all[0], large_device_bytes(plan), run), *outcome);
}

}  // namespace svdserve::cuda
