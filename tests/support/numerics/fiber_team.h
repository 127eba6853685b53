// Teams of kThreads threads of a warp, by fibers (core/team.h).
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_

#include "tests/support/numerics/fiber_block.h"

namespace svdserve::numerics {

// A thread of one of the teams of a warp. All of them have the same matrix, and so take the same way.
template <int kThreads>
class FiberTeam {
 public:
  explicit FiberTeam(const FiberBlock::Thread& thread) : thread_(thread) {}
  int index() const { return thread_.index() % kThreads; }
  bool any(bool b) const { return thread_.any_of_warp(b); }
  template <class T>
  T from_lane(T x, int lane) const {
    return thread_.from_lane(x, thread_.index() / kThreads * kThreads + lane);
  }
  template <class T>
  T exchanged(T x, int distance) const {
    return thread_.exchanged(x, distance);
  }

 private:
  FiberBlock::Thread thread_;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_
