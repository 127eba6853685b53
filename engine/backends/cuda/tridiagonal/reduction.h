// A Hermitian matrix on the device to real tridiagonal form, A = Q T Q^H, and products with Q.
//
//   Q = H_0 H_1 .. H_(n - 2),  H_c = I - tau_c v_c v_c^H,  v_c zero to row c and one in row c + 1
//
// Panels of 64 columns. Within a panel each column takes one product of the trailing matrix with a vector. It reads the
// lower triangle once, n^3 / 6 elements for all columns. Behind a panel cuBLAS subtracts
// V W^H + W V^H. One kernel reduces a panel, or a part of a long one; two barriers of all multiprocessors a column are its latency.
//
// Cost: 4/3 n^3 multiply-adds. The error is that of a backward stable reduction: |Q T Q^H - A| <= c n u |A|. Entries are
// between 2^-300 and 2^300, or zeros: the caller scales. A matrix of floats is read in half of the time. V and W are
// floats then, sums are doubles, and u is that of floats; entries below 2^-126 are zeros.
//
// Source: Golub and Van Loan, Matrix Computations, 4th edition, 8.3.1; panels as in Dongarra, Sorensen, Hammarling,
// J. Comput. Appl. Math. 27 (1989) 215-227.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/blas.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"

namespace svdserve::cuda {

// Elements of a matrix in memory, and what is computed with them.
template <class Stored>
struct Arithmetic {
  using Type = double;
};
template <>
struct Arithmetic<Complex> {
  using Type = Complex;
};
template <>
struct Arithmetic<ComplexFloat> {
  using Type = Complex;
};
template <class Stored>
using ArithmeticOf = typename Arithmetic<Stored>::Type;

// T's diagonal and what is below it, and the reflectors' factors: device memory, n of each.
template <class E>
struct TridiagonalForm {
  double *d, *e;
  E* tau;
};

// Whether the device can reduce a matrix of order n: all blocks of the kernel must be resident together. Waits for
// nothing. Stored: float, double, ComplexFloat or Complex.
template <class Stored>
bool can_reduce(int64_t n, const LargeLane& lane);

// Enqueues; waits now and then where it takes long, for the watch and the progress. Only the lower triangle of a counts.
// The reflectors take its place below the diagonal, with their ones. All of ld x n elements are read, in pieces of 16
// bytes: a is a whole matrix, ld a multiple of four. Reflectors that are stored as floats are rounded, and tau fits them as
// they were before. Stored as above. Throws large::LargeStop.
template <class Stored>
void reduce_to_tridiagonal(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch,
                           large::LargeView<Stored> a, const TridiagonalForm<ArithmeticOf<Stored>>& form,
                           const large::PartDone& done = {});

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_REDUCTION_H_
