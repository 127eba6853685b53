// The engine of large matrices on a ring of host members: each has a share of the threads, and memory of its own.
#include <algorithm>
#include <chrono>
#include <complex>
#include <memory>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/backends/host/members/host_member.h"
#include "engine/backends/host/members/host_rank.h"
#include "engine/backends/ranks/rank_member.h"
#include "engine/backends/ranks/rank_pool.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ring/ring_backend.h"
#include "engine/large_engine.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve {
namespace {

using Arena = oneapi::tbb::task_arena;

// Without a sign of life of a member: far longer than a p-step of the largest matrix takes.
constexpr std::chrono::minutes kDeadline{10};

class HostRingEngine : public LargeEngine {
 public:
  HostRingEngine(int threads, int members, RingMembers kind)
      : kind_(kind),
        threads_(threads > 0 ? threads : oneapi::tbb::info::default_concurrency()),
        share_(std::max(1, threads_ / members)),
        arena_(threads_),
        pool_(std::vector<std::string>{"host", std::to_string(share_)}),
        plain_(make_host_large_engine(threads_)) {
    for (int m = 0; m < members; ++m) arenas_.push_back(std::make_shared<Arena>(share_));
  }

  // Beside what one device needs: three slots of members and two checkpoints, of X and of V.
  LargeWorkspace memory(const LargePlan& plan, uint64_t /*device_room*/) const override {
    LargeWorkspace workspace = plain_->memory(plan, kAnyRoom);
    if (plan.options.kind == LargeKind::kGeneral || plan.options.method == Method::kTridiagonal) return workspace;
    const auto n = static_cast<uint64_t>(std::min(plan.problem.rows, plan.problem.cols));
    const uint64_t element = is_complex(plan.problem.dtype) ? 16 : 8;
    const uint64_t matrices = plan.left_columns > 0 || plan.right_rows > 0 ? 2 : 1;
    // Slots are as wide as the widest union; a block more for each is enough.
    const uint64_t in_slots = 3 * arenas_.size() * slot_columns(n);
    workspace.host_bytes += matrices * (in_slots + 2 * n) * n * element;
    workspace.host_bytes += arenas_.size() * kScratchOfMember;
    return workspace;
  }

  double predicted_seconds(const LargePlan& plan) const override { return plain_->predicted_seconds(plan); }

  uint64_t state_bytes(const LargePlan& plan) const override { return plain_->state_bytes(plan); }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    if (plan.options.kind == LargeKind::kGeneral) return plain_->decompose(plan, operands, control);
    const host::FpEnvironment environment;
    return is_complex(plan.problem.dtype) ? run<std::complex<double>>(plan, operands, control)
                                          : run<double>(plan, operands, control);
  }

 private:
  static constexpr uint64_t kScratchOfMember = 16 << 20;

  uint64_t slot_columns(uint64_t n) const {
    const auto width = static_cast<uint64_t>(host_large_block_width(static_cast<int64_t>(n)));
    const uint64_t unions = 2 * arenas_.size();
    return std::min(n, n / unions + width + 1);
  }

  template <class E>
  LargeOutcome run(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const large::LargeWatch watch(control);
    const host::LargeThreads threads(&arena_, threads_, &watch);
    if (kind_ == RingMembers::kRanks) {
      const auto memories = std::make_shared<ranks::SharedMemories>(ranks::share_host_memory);
      ranks::RankHome<host::HostLargeBackend<E>> home(memories, threads);
      return run_on<ranks::RankMember<E>>(
          home,
          [&](const std::vector<int>& devices) {
            return ranks::rank_members<E>(pool_, devices, host::host_rank_common_bytes, memories);
          },
          watch, plan, operands, control);
    }
    host::HostLargeBackend<E> home(threads);
    return run_on<host::HostMember<E>>(
        home, [&](const std::vector<int>& devices) { return members_in_process<E>(devices); }, watch, plan, operands,
        control);
  }

  template <class E>
  ring::Members<host::HostMember<E>> members_in_process(const std::vector<int>& devices) const {
    const auto tracking = std::make_shared<host::SharedTracking>();
    ring::Members<host::HostMember<E>> members;
    for (const int device : devices) {
      members.push_back(std::make_shared<host::HostMember<E>>(arenas_[static_cast<size_t>(device)], share_, tracking));
    }
    return members;
  }

  template <class Member, class Home, class Make>
  LargeOutcome run_on(Home& home, const Make& make, const large::LargeWatch& watch, const LargePlan& plan,
                      const LargeOperands& operands, const LargeControl& control) const {
    const int count = static_cast<int>(arenas_.size());
    ring::RingBackend<Home, Member> backend(home, make, {count, kDeadline}, watch);
    LargeOutcome outcome = large::decompose(backend, plan, operands, control);
    backend.tell(outcome);
    return outcome;
  }

  const RingMembers kind_;
  const int threads_, share_;
  mutable Arena arena_;
  std::vector<std::shared_ptr<Arena>> arenas_;  // of the members
  mutable ranks::RankPool pool_;
  const std::unique_ptr<LargeEngine> plain_;
};

}  // namespace

std::unique_ptr<LargeEngine> make_host_ring_engine(int threads, int members, RingMembers kind) {
  if (!ring::is_ring_size(members)) return nullptr;
  if (kind == RingMembers::kRanks && ranks::start_refusal() != nullptr) return nullptr;
  return std::make_unique<HostRingEngine>(threads, members, kind);
}

}  // namespace svdserve
