// Engines of large matrices on a ring of host members of one thread each, with blocks as narrow as a test wants.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/backends/host/members/host_member.h"
#include "engine/backends/ring/ring_backend.h"
#include "tests/support/numerics/back_end_engine.h"

namespace svdserve::numerics {

template <class E>
struct NarrowHome : host::HostLargeBackend<E> {
  explicit NarrowHome(const large::LargeWatch* watch, int64_t width)
      : host::HostLargeBackend<E>(host::LargeThreads(nullptr, 1, watch)), width(width) {}
  int64_t block_width(int64_t /*n*/) const { return width; }

  int64_t width;
};

// For these devices, with tracking that they share.
template <template <class> class Member, class E>
ring::Members<Member<E>> new_members(const std::vector<int>& devices) {
  const auto tracking = std::make_shared<host::SharedTracking>();
  ring::Members<Member<E>> members;
  for (const int device : devices) members.push_back(std::make_shared<Member<E>>(device, tracking));
  return members;
}

// Own: derived from it, with
//   outcome_of<E>(watch, plan, operands, control)    by run_on(), or without a ring
template <class Own, class Driver = EveryDriver>
class RingTestEngineBase : public BackEndEngine<Own> {
 public:
  RingTestEngineBase(int members, int64_t width, std::chrono::milliseconds deadline, bool checkpoints)
      : members_(members), width_(width), deadline_(deadline), checkpoints_(checkpoints) {}
  const ring::RingReport& report() const { return report_; }

 protected:
  // make(devices): the members.
  template <class Member, class Home, class Make>
  LargeOutcome run_on(Home& home, const Make& make, const large::LargeWatch& watch, const LargePlan& plan,
                      const LargeOperands& operands, const LargeControl& control) const {
    ring::RingBackend<Home, Member> backend(home, make, {members_, deadline_, checkpoints_}, watch);
    LargeOutcome outcome = Driver()(backend, plan, operands, control);
    report_ = backend.report();
    backend.tell(outcome);
    return outcome;
  }
  int members() const { return members_; }
  int64_t width() const { return width_; }

 private:
  const int members_;
  const int64_t width_;
  const std::chrono::milliseconds deadline_;
  const bool checkpoints_;
  mutable ring::RingReport report_;
};

// Member<E>: made of a device's number, and the tracking that members share.
template <template <class> class Member, class Driver = EveryDriver>
class RingTestEngineOf : public RingTestEngineBase<RingTestEngineOf<Member, Driver>, Driver> {
 public:
  // members 0: one device without a ring.
  RingTestEngineOf(int members, int64_t width, std::chrono::milliseconds deadline = std::chrono::minutes(5),
                   bool checkpoints = true)
      : RingTestEngineBase<RingTestEngineOf, Driver>(members, width, deadline, checkpoints) {}

  // The most members that can be made after the first ones.
  void set_most_new_members(size_t most) { most_new_members_ = most; }

  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    NarrowHome<E> home(&watch, this->width());
    if (this->members() == 0) return Driver()(home, plan, operands, control);
    const auto make = [most = size_t{ring::kMostMembers}, this](const std::vector<int>& devices) mutable {
      if (devices.size() > std::exchange(most, most_new_members_))
        throw large::LargeStop{LargeStatus::kFault, "no room for a member"};
      return new_members<Member, E>(devices);
    };
    return this->template run_on<Member<E>>(home, make, watch, plan, operands, control);
  }

 private:
  size_t most_new_members_ = ring::kMostMembers;
};

template <class E>
struct PlainMember : host::HostMember<E> {
  PlainMember(int /*device*/, const std::shared_ptr<host::SharedTracking>& tracking)
      : host::HostMember<E>(nullptr, 1, tracking) {}
};
using RingTestEngine = RingTestEngineOf<PlainMember>;
using RingSvdEngine = RingTestEngineOf<PlainMember, SvdDriver>;

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_RING_ENGINE_H_
