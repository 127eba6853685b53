// An engine of large matrices on a ring of host members of one thread each, with blocks as narrow as a test wants.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_

#include <chrono>
#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/backends/host/members/host_member.h"
#include "engine/backends/ring/ring_backend.h"
#include "engine/large_engine.h"

namespace svdserve::numerics {

template <class E>
struct NarrowHome : host::HostLargeBackend<E> {
  explicit NarrowHome(const large::LargeWatch* watch, int64_t width)
      : host::HostLargeBackend<E>(host::LargeThreads(nullptr, 1, watch)), width(width) {}
  int64_t block_width(int64_t /*n*/) const { return width; }

  int64_t width;
};

// Member<E>: made of a device's number, and the tracking that members share.
template <template <class> class Member>
class RingTestEngineOf : public LargeEngine {
 public:
  // members 0: one device without a ring.
  RingTestEngineOf(int members, int64_t width, std::chrono::milliseconds deadline = std::chrono::minutes(5),
                   bool checkpoints = true)
      : members_(members), width_(width), deadline_(deadline), checkpoints_(checkpoints) {}
  LargeWorkspace memory(const LargePlan& /*plan*/, uint64_t /*device_room*/) const override { return {}; }
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    return is_complex(plan.problem.dtype) ? run<std::complex<double>>(plan, operands, control)
                                          : run<double>(plan, operands, control);
  }
  const ring::RingReport& report() const { return report_; }

 private:
  template <class E>
  LargeOutcome run(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const large::LargeWatch watch(control);
    NarrowHome<E> home(&watch, width_);
    if (members_ == 0) return large::decompose(home, plan, operands, control);
    const auto make = [](const std::vector<int>& devices) {
      const auto tracking = std::make_shared<host::SharedTracking>();
      ring::Members<Member<E>> members;
      for (const int device : devices) members.push_back(std::make_shared<Member<E>>(device, tracking));
      return members;
    };
    ring::RingBackend<NarrowHome<E>, Member<E>> backend(home, make, {members_, deadline_, checkpoints_}, watch);
    LargeOutcome outcome = large::decompose(backend, plan, operands, control);
    report_ = backend.report();
    outcome.members = report_.members;
    return outcome;
  }

  const int members_;
  const int64_t width_;
  const std::chrono::milliseconds deadline_;
  const bool checkpoints_;
  mutable ring::RingReport report_;
};

template <class E>
struct PlainMember : host::HostMember<E> {
  PlainMember(int /*device*/, const std::shared_ptr<host::SharedTracking>& tracking)
      : host::HostMember<E>(nullptr, 1, tracking) {}
};
using RingTestEngine = RingTestEngineOf<PlainMember>;

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_
