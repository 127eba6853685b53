// The odd-even exchange: in which order the pairs of a sweep are rotated where columns move. It is the order of Jacobi
// with vectors, in a lane, a warp or a thread block.
//
// Step t rotates the pairs in places (i, i + 1) with i of t's parity, and their columns change places. After k steps
// every two of k columns have met once, and their order is reversed. It suits threads that own two columns each: only
// one of them moves, to a neighbour. An odd k ends a sweep with an even step, so beyond k = 16 the next one begins with
// an odd step. It would repeat the pairs (31 x 31: 11.5 sweeps for 9).
//
// Where places are threads, pair c of them holds the places 2 c and 2 c + 1 in an even step, in an odd one 2 c + 1 and
// 2 c + 2. The last pair holds place 0 meanwhile, which has no partner.
// Source: Luk and Park, SIAM J. Sci. Stat. Comput. 8 (1987) 1-14.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ODD_EVEN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ODD_EVEN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ODD_EVEN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_ODD_EVEN_H_
#endif

#include "engine/core/lane.h"
#include "engine/planner.h"

SVD_KERNEL_BEGIN

// The first step of a sweep: 0, an even one, or -1. With -1 the even one is left out, and the k steps begin with an odd
// one.
SVD_HD constexpr int first_step(int k, int sweep) {
  return k > kLargestWithoutFloor && k % 2 == 1 && sweep % 2 == 1 ? -1 : 0;
}

// --- in a lane -----------------------------------------------------------------------------------------------------------

// Steps of a sweep that pass over the columns together where these do not fit registers. Speed alone. Against one step
// at a time it is 1.14 times as fast for f64 and c128, 1.11 times for c64. That is U, S and V of 32 x 32 on one core
// with AVX-512, by engine/bench/against_numpy.py.
inline constexpr int kWave = 4;

// A sweep, step after step. rotate(i) rotates the pair in places i, i + 1, exchanges its columns, and returns where it
// was not orthogonal.
template <class Lane, class Size, class Rotate>
SVD_HD typename Lane::Mask sweep_by_steps(Size k, Rotate rotate) {
  auto rotated = Lane::mask(false);
  for (int step = 0; step < k; step += 2) {
    SVD_UNROLL for (int i = 0; i + 1 < k; i += 2) rotated = rotated | rotate(i);
    if (step + 1 == k) break;
    SVD_UNROLL for (int i = 1; i + 1 < k; i += 2) rotated = rotated | rotate(i);
  }
  return rotated;
}

// The same for columns that fill more than the first-level cache. kWave steps pass over the columns together, each two
// places behind the one before. So a pair waits only for the pairs that it has columns from.
template <class Lane, class Size, class Rotate>
SVD_HD typename Lane::Mask sweep_by_waves(Size k, bool begins_odd, Rotate rotate) {
  auto rotated = Lane::mask(false);
  for (int first = 0; first < k; first += kWave) {
    const int steps = k - first < kWave ? k - first : kWave;
    for (int front = (first + begins_odd) % 2; front < k + steps - 2; front += 2) {
      for (int step = 0; step < steps; ++step) {
        const int i = front - step;
        if (i < 0 || i + 1 >= k) continue;
        rotated = rotated | rotate(i);
      }
    }
  }
  return rotated;
}

// Sweep number `sweep` in the way that suits the size. Only sizes beyond those that the compiler knows begin odd.
template <class Lane, class Size, class Rotate>
SVD_HD typename Lane::Mask odd_even_sweep(Size k, int sweep, Rotate rotate) {
  if constexpr (Size::kValue != 0) {
    return sweep_by_steps<Lane>(k, rotate);
  } else {
    return sweep_by_waves<Lane>(k, first_step(k, sweep) != 0, rotate);
  }
}

// --- where places are threads --------------------------------------------------------------------------------------------

// A sweep of `places` places that begins with step `first`. threads.rotate_even() and rotate_odd() rotate the pairs of a
// step, and return whether this thread's was not orthogonal. to_odd() and to_even() move the columns for the next step.
template <class Threads>
SVD_HD bool odd_even_sweep(Threads& threads, int places, int first) {
  bool rotated = false;
  for (int step = first; step < places; step += 2) {
    if (step >= 0) rotated = threads.rotate_even() || rotated;
    if (step + 1 == places) break;
    threads.to_odd();
    rotated = threads.rotate_odd() || rotated;
    threads.to_even();
  }
  return rotated;
}

SVD_KERNEL_END

#endif
