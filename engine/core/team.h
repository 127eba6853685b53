// Cooperation on one matrix. There are two contracts, and an algorithm is written for one of them.
//
// Phases: a team. team.for_each(first, last, f) runs f(first) .. f(last - 1) in any order, by any of the team, and ends
// when every result is visible to all. team.once(f) runs f one time, begins when all reads of earlier results are over,
// and ends in the same way. team.any(m) is true where m is for any member; team.sync() waits for all. Every member
// computes for itself all that an algorithm computes outside of these. team.for_each_line() is for_each() whose calls
// are loops themselves: a CPU does not unroll it. A team of teams has team.for_each_team(n, f), too: it runs
// f(part, 0) .. f(part, n - 1) in any order, each by one of its parts, which is a team, and ends as for_each() does.
// team.for_each_team(n, f, m, g) runs g(part, 0) .. g(part, m - 1), too, by parts that have no f where there are some.
//
//   Alone                  one lane, in order: a CPU pack or a GPU thread with the whole matrix
//   WarpTeam<kThreads>     that many threads of a warp (backends/cuda/device/teams.h)
//   BlockTeam<kThreads>    a thread block, and the warps of it (there)
//   ShuffledTeam           a random order, which shows races without a GPU (tests/support/numerics)
//
// The calls of a phase do not depend on each other, so the bits do not depend on the team.
//
// Threads: the code is that of one thread, which keeps its part of the matrix in registers. Its view of the others:
//
//   index(), count()       its number, and how many there are
//   sync()                 waits for all; what was written before is seen afterwards
//   any(b)                 whether b holds for any thread; waits as sync()
//   any_of_warp(b)         for any thread of the warp
//   from_lane(x, lane)     x of that thread of the warp
//   exchanged(x, distance)  x of the thread of the warp whose number differs in the bits of `distance`
//
// Threads of a warp take the same way to from_lane(), exchanged() and any_of_warp(), all of them to the others. The bits depend on how
// an algorithm deals its numbers to threads, since it adds what they have.
//
//   OneThread              alone
//   BlockThreads           a thread block, whole warps (backends/cuda/device/teams.h)
//   WarpThreads<kThreads>  a team of that many threads of a warp, numbered from zero (there)
//   FiberBlock::Thread     a block of fibers in a random order, without a GPU (tests/support/numerics)
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
  template <class F>
  SVD_HD void for_each_team(int n, F f) const {
    for (int i = 0; i < n; ++i) f(*this, i);
  }
  template <class F, class G>
  SVD_HD void for_each_team(int n, F f, int m, G g) const {
    for_each_team(n, f);
    for_each_team(m, g);
  }
  SVD_HD void sync() const {}
  template <class Mask>
  SVD_HD Mask any(Mask m) const {
    return m;
  }
};

struct OneThread {
  static SVD_HD int index() { return 0; }
  static constexpr SVD_HD int count() { return 1; }
  SVD_HD void sync() const {}
  template <class T>
  SVD_HD T from_lane(T x, int) const {
    return x;
  }
  template <class T>
  SVD_HD T exchanged(T x, int) const {
    return x;
  }
};

SVD_KERNEL_END

#endif
