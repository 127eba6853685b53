// The loop of one-sided Jacobi: sweeps until one of them finds every two columns orthogonal, max_sweeps of them at most.
// Lanes, warps and thread blocks share it, whatever a sweep is to them.
//
// The sweeps of a pair's Gram matrix (blocks/gram_jacobi.h) and of its triangle (host/p_steps/pair_rotations.cc) have
// loops of their own. They count rotations, and most are to make one sweep alone. So has shear_jacobi.h, which is done
// when a norm is small.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SWEEPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SWEEPS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SWEEPS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_SWEEPS_H_
#endif

#include "engine/core/lane.h"

SVD_KERNEL_BEGIN

// The mask of a matrix that a team of threads has.
SVD_HD bool any_of(bool active) { return active; }

// sweep(number, active) is one sweep, number = 0, 1, .., and returns the lanes in which two columns were not orthogonal.
// Lanes that are not active are done: it leaves them alone. Returns the lanes that have not converged. All threads of a
// team return the same.
template <class Mask, class Sweep>
SVD_HD Mask sweep_until_orthogonal(Mask active, int max_sweeps, Sweep sweep) {
  for (int number = 0; number < max_sweeps && any_of(active); ++number) active = active & sweep(number, active);
  return active;
}

SVD_KERNEL_END

#endif
