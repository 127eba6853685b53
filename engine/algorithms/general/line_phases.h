// A phase of a team (core/team.h) that has several kinds of calls:
//
//   each_line(team, first, last, f)   runs f(first) .. f(last - 1) in any order, by any of the team
//   one(team, f)                      runs f one time
//
// Neither waits: team.sync() ends the phase. The calls are loops themselves, or few, so nothing unrolls them but a GPU
// thread that has the whole matrix. A team's functions are found beside its class.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_LINE_PHASES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_LINE_PHASES_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_LINE_PHASES_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_LINE_PHASES_H_
#endif

#include "engine/core/team.h"

SVD_KERNEL_BEGIN

template <class F>
SVD_HD void each_line(const Alone& team, int first, int last, F f) {
  team.for_each_line(first, last, f);
}
template <class F>
SVD_HD void one(const Alone&, F f) {
  f();
}

SVD_KERNEL_END

#endif
