// A member of a ring (backends/ring/ring_member.h) that is a share of the host's threads, with memory of its own.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_MEMBER_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_MEMBER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/p_steps/host_p_steps.h"
#include "engine/backends/ring/ring_member.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve::host {

// The pairs of one matrix, which its members share.
struct SharedTracking {
  std::once_flag once;
  PairTracking pairs;
};

// E: double or std::complex<double>.
template <class E>
class HostMember {
 public:
  using Element = E;

  // arena: of `threads` threads. tracking: of all members of a matrix.
  HostMember(std::shared_ptr<oneapi::tbb::task_arena> arena, int threads, std::shared_ptr<SharedTracking> tracking)
      : arena_(std::move(arena)),
        threads_(arena_.get(), threads, &watch_),
        p_steps_(threads_),
        tracking_(std::move(tracking)) {}
  HostMember(const HostMember&) = delete;
  HostMember& operator=(const HostMember&) = delete;

  void reserve(const ring::RingShape& shape);
  void take(const ring::UnionPlace& place, const ring::RingColumns<E>& columns);
  void give(const ring::UnionPlace& place, const ring::RingColumns<E>& columns);
  // Calls are done when they return.
  void mark(ring::RingMark /*mark*/) {}
  void await(const HostMember& /*member*/, ring::RingMark /*mark*/) {}
  void send(const ring::UnionPlace& place, HostMember& to, int to_slot);
  void p_step(large::PStep<E> step);
  void reset_counters() { p_steps_.reset(); }
  large::PStepCounters read_counters() const { return p_steps_.counters(); }
  void tell(std::vector<LargePhaseTime>& phases) const { p_steps_.tell(phases); }
  void stop() { stopped_ = true; }

 protected:
  // Instead of reserve(): the slots are in this memory, whose owner outlives the member.
  void use(const ring::RingShape& shape, const ring::RingColumns<E>& slots) {
    shape_ = shape;
    slots_ = slots;
  }
  // The first `columns` columns of a slot.
  ring::RingColumns<E> in_slot(int slot, int64_t columns) const { return in_slot(slots_, slot, columns); }
  ring::RingColumns<E> in_slot(const ring::RingColumns<E>& slots, int slot, int64_t columns) const;
  void copy(const ring::RingColumns<E>& from, const ring::RingColumns<E>& to) const;

 private:
  const BlasThreads one_thread_a_call_;
  std::atomic<bool> stopped_{false};
  const LargeControl control_{.progress = {}, .cancel = &stopped_};
  const large::LargeWatch watch_{control_};
  const std::shared_ptr<oneapi::tbb::task_arena> arena_;
  const LargeThreads threads_;
  HostPSteps<E> p_steps_;
  const std::shared_ptr<SharedTracking> tracking_;
  ring::RingShape shape_;
  ring::RingColumns<E> slots_;  // one behind the other
  AlignedArray<E> x_, v_;
  AlignedArray<int32_t> f_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MEMBERS_HOST_MEMBER_H_
