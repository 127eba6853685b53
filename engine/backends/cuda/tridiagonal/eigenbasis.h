// Eigenvectors of a Hermitian matrix on the device:
//
//   A = Q T Q^H (reduction.h),  T = W diag(lambda) W^T (tridiagonal_eigen.h),  V = Q W
//
// Cost: 4/3 n^3 multiply-adds for T, at most 4/3 n^3 for W, 2 n^3 for Q W. Accuracy: |A V - V diag(lambda)| and
// |I - V^H V| are a few n u, relative to |A|. Why it is our own: decisions/0018. In single precision the reduction stores
// floats. Its reflectors are the columns of Q all the same, so that V^H V - I is as small as in double precision.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_EIGENBASIS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_EIGENBASIS_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

// Whether this is the way for a matrix of order n: cuSOLVER's is as quick for small ones, and takes larger ones. It takes
// all on a device with less shared memory, or that cannot hold all blocks of a kernel at once.
template <class E>
bool takes_eigenbasis(int64_t n, const LargeLane& lane);

// v := eigenvectors of g, n x n, by descending eigenvalue. Only g's lower triangle counts, and it is overwritten. Its
// largest magnitude is at most about one. False: g is not finite, or T's parts did not converge; v is undefined then. Work may
// still run on the lane's stream. Uses the lane's pinned memory, and of the arena two matrices of g's size and a bit.
// E: double or Complex. Throws large::LargeStop.
template <class E>
bool hermitian_eigenbasis(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, large::LargeView<E> g,
                          large::LargeView<E> v, large::Precision precision, const large::PartDone& done = {});

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_EIGENBASIS_H_
