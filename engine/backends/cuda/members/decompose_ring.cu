#include "engine/backends/cuda/members/decompose_ring.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/cuda/device/cuda_work_speeds.h"
#include "engine/backends/cuda/large/cuda_large_backend.h"
#include "engine/backends/cuda/large/decompose_large.h"
#include "engine/backends/cuda/members/cuda_helper.h"
#include "engine/backends/cuda/members/cuda_member.h"
#include "engine/backends/cuda/members/cuda_rank.h"
#include "engine/backends/ranks/rank_member.h"
#include "engine/backends/ring/dealt_home.h"
#include "engine/backends/ring/ring_backend.h"
#include "engine/backends/streamed/streamed_backend.h"

namespace svdserve::cuda {
namespace {

// Without a sign of life of a GPU: far longer than a group of p-steps takes.
constexpr std::chrono::minutes kDeadline{10};

// GPUs that do not reach each other copy through the host, correct and slow.
void let_reach(const std::vector<int>& devices) {
  for (const int from : devices) {
    require(cudaSetDevice(from), "choosing a device");
    for (const int to : devices) {
      if (from == to || reaches(from, to) == 0) continue;
      (void)cudaDeviceEnablePeerAccess(to, 0);  // or it has been
      (void)cudaGetLastError();
    }
  }
}

// Every ring is given this.
struct Ring {
  const std::vector<int>& devices;
  RingMembers members;
  const JobMemory& job;
  LargeLane& lane;
  DeviceArena& arena;
  const LargePlan& plan;
  const LargeOperands& operands;
  const LargeControl& control;
};

// home is on the first GPU, which is a member, too.
template <class Member, class Home, class Make>
LargeOutcome run(const Ring& ring, Home& home, const Make& make, bool checkpoints, const LargeWatch& watch) {
  using Backend = ring::RingBackend<Home, Member>;
  typename Backend::Settings settings;
  settings.members = static_cast<int>(ring.devices.size());
  settings.deadline = kDeadline;
  settings.checkpoints = checkpoints;
  settings.speeds = cuda_ring_work_speeds(settings.members);
  Backend backend(home, make, settings, watch);
  LargeOutcome outcome;
  if constexpr (large::HermitianBackend<Home>) {
    outcome = large::decompose(backend, ring.plan, ring.operands, ring.control);
  } else {
    outcome = large::block_jacobi(backend, ring.plan, ring.operands, ring.control);
  }
  backend.tell(outcome);
  return outcome;
}

std::vector<int> chosen(const std::vector<int>& devices, const std::vector<int>& which) {
  std::vector<int> result;
  for (const int w : which) result.push_back(devices[static_cast<size_t>(w)]);
  return result;
}

// A matrix like the operand and half of two others, with room for a product's workspace, as a member has for p-steps. The
// first GPU needs more.
uint64_t helper_bytes(const Problem& problem, bool complex) {
  const int64_t m = std::max(problem.rows, problem.cols);
  return ring_member_bytes(m, m, std::min(problem.rows, problem.cols), complex);
}

// An error kills the contexts of all of this process's GPUs, so checkpoints after sweeps would save nothing.
template <class E>
LargeOutcome by_members_in_process(const Ring& ring) {
  const LargeWatch watch(ring.control);
  const auto make = [&ring](const std::vector<int>& which) {
    ring::Members<CudaMember<E>> members;
    for (const int device : chosen(ring.devices, which)) members.push_back(std::make_shared<CudaMember<E>>(device));
    return members;
  };
  if (ring.job.panels > 0) {
    CudaLargeBackend<E> home(ring.lane, ring.arena, watch);
    streamed::StreamedBackend<CudaLargeBackend<E>> home_by_panels(home, ring.job.panels, watch);
    return run<CudaMember<E>>(ring, home_by_panels, make, false, watch);
  }
  const auto helper = [&](int device) {
    return std::make_unique<CudaHelper<E>>(ring.devices[static_cast<size_t>(device)],
                                           helper_bytes(ring.plan.problem, kIsComplex<E>), ring.lane, watch);
  };
  ring::DealtHome<CudaLargeBackend<E>, CudaHelper<E>> home({static_cast<int>(ring.devices.size())}, helper, ring.lane,
                                                           ring.arena, watch);
  return run<CudaMember<E>>(ring, home, make, false, watch);
}

// Never destroyed, as the idle lanes are not.
ranks::RankPool& rank_pool() {
  static auto* const pool = new ranks::RankPool(std::vector<std::string>{"cuda"});
  return *pool;
}

uint64_t nothing_in_common(const ring::RingShape& /*shape*/, int /*members*/, bool /*complex*/) { return 0; }

// Home cuts its products as if they were dealt, and has no helpers. So the bits are those of members in this process.
template <class E>
LargeOutcome by_ranks(const Ring& ring) {
  const LargeWatch watch(ring.control);
  const auto memories = std::make_shared<ranks::SharedMemories>(share_device_memory);
  ring::DealtHome<ranks::RankHome<CudaLargeBackend<E>>, CudaHelper<E>> home({}, nullptr, memories, ring.lane,
                                                                            ring.arena, watch);
  const auto make = [&](const std::vector<int>& which) {
    return ranks::rank_members<E>(rank_pool(), chosen(ring.devices, which), nothing_in_common, memories);
  };
  return run<ranks::RankMember<E>>(ring, home, make, true, watch);
}

}  // namespace

int32_t reaches(int32_t from, int32_t to) {
  int can = 0;
  const bool known = cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess;
  (void)cudaGetLastError();
  return known && can != 0 ? 1 : 0;
}

namespace {

bool has_members(const LargePlan& plan) {
  return plan.options.kind != LargeKind::kGeneral && plan.options.method != Method::kTridiagonal;
}

// Beside the matrices: a member, and two checkpoints on their way home. With vectors both have V, too.
struct RingBytes {
  uint64_t member = 0, checkpoints = 0;
};
RingBytes ring_bytes(const LargePlan& plan) {
  if (!has_members(plan)) return {};
  const bool complex = is_complex(plan.problem.dtype);
  const int64_t n = std::min(plan.problem.rows, plan.problem.cols);
  const bool has_v = plan.left_columns > 0 || plan.right_rows > 0 || plan.options.top_k > 0;
  const auto column = static_cast<uint64_t>(CudaLargeBackend<double>::leading_dimension(n)) * (complex ? 16 : 8);
  const uint64_t checkpoint = (has_v ? 2 : 1) * static_cast<uint64_t>(n) * (column + sizeof(int32_t));
  return {ring_member_bytes(n, has_v ? n : 0, n, complex), 2 * checkpoint};
}

// The first GPU's matrices, or panels of them beside its member. Checkpoints are where the matrices are.
JobMemory ring_job(const LargePlan& plan, uint64_t device_room) {
  const auto [member, checkpoints] = ring_bytes(plan);
  JobMemory job = job_on_device(plan);
  if (job.workspace.device_bytes + member + checkpoints <= device_room || !may_leave(plan)) return job;
  job = streamed_job(plan, device_room > member ? device_room - member : 0);
  job.workspace.host_bytes += checkpoints;
  return job;
}

}  // namespace

LargeWorkspace ring_memory(const LargePlan* plan, uint64_t device_room) {
  const JobMemory job = ring_job(*plan, device_room);
  const auto [member, checkpoints] = ring_bytes(*plan);
  LargeWorkspace all = job.workspace;
  all.device_bytes += member + (job.panels == 0 ? checkpoints : 0);
  return all;
}

void decompose_ring(const int32_t* devices, int32_t count, int32_t members, const LargePlan* plan,
                    const LargeOperands* operands, const SvdserveCudaLargeControl* control,
                    SvdserveCudaLargeOutcome* outcome) {
  const std::vector<int> all(devices, devices + count);
  const OwnControl own(*control);
  const JobMemory job = ring_job(*plan, control->device_room);
  bool lost_ranks = false;
  const auto run = [&](LargeLane& lane, DeviceArena& arena) {
    const Ring ring{all, static_cast<RingMembers>(members), job, lane, arena, *plan, *operands, own};
    const bool complex = is_complex(plan->problem.dtype);
    if (ring.members != RingMembers::kRanks || job.panels > 0) {  // a home by panels has no memory that ranks share
      let_reach(all);
      require(cudaSetDevice(all[0]), "choosing a device");
      return complex ? by_members_in_process<Complex>(ring) : by_members_in_process<double>(ring);
    }
    LargeOutcome outcome_of_ranks = complex ? by_ranks<Complex>(ring) : by_ranks<double>(ring);
    // This process's own context is sound where only ranks were lost.
    lost_ranks = outcome_of_ranks.device_lost && cudaStreamSynchronize(lane.stream) == cudaSuccess;
    if (lost_ranks) outcome_of_ranks.device_lost = false;
    return outcome_of_ranks;
  };
  if (!ring::is_ring_size(count) || plan->options.kind == LargeKind::kGeneral) {
    decompose_large(devices[0], plan, operands, control, outcome);
    return;
  }
  LargeOutcome result = run_on_lane(all[0], job, run);
  result.device_lost = result.device_lost || lost_ranks;
  put_outcome(result, *outcome);
}

}  // namespace svdserve::cuda
