// The team that works on a matrix. The algorithms are written in phases. team.for_each(first, last, f) runs f(first) ..
// f(last - 1) in any order, by any of the team, and ends when every result is visible to all. team.once(f) runs f one
// time, begins when all reads of earlier results are over, and ends in the same way. team.any(m) is true where m is for
// any member; team.sync() waits for all. Every member computes for itself all that an algorithm computes outside of
// these. team.for_each_line() is for_each() whose calls are loops themselves: a CPU does not unroll it.
//
//   Alone              one lane, in order: a CPU pack or a GPU thread with the whole matrix
//   CudaTeam<kThreads> that many threads of a warp (backends/cuda)
//
// The calls of a phase do not depend on each other, so the bits do not depend on the team.
#if defined(SVDSERVE_ENGINE_CORE_TEAM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_TEAM_H_
#undef SVDSERVE_ENGINE_CORE_TEAM_H_
#else
#define SVDSERVE_ENGINE_CORE_TEAM_H_
#endif

#include "engine/core/kernel_namespace.h"

SVD_KERNEL_BEGIN

struct Alone {
  template <class F>
  SVD_HD void for_each(int first, int last, F f) const {
    SVD_UNROLL for (int i = first; i < last; ++i) f(i);
  }
  template <class F>
  SVD_HD void for_each_line(int first, int last, F f) const {
#if defined(__CUDACC__)
    SVD_UNROLL
#endif
    for (int i = first; i < last; ++i) f(i);
  }
  template <class F>
  SVD_HD void once(F f) const {
    f();
  }
  SVD_HD void sync() const {}
  template <class Mask>
  SVD_HD Mask any(Mask m) const {
    return m;
  }
};

SVD_KERNEL_END

#endif
