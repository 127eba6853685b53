// Singular values of bidiagonal matrices, a matrix a lane of a pack, by vector code for the processor's instruction set. On
// the calling thread.
//
//   B_m = U_m diag(s_m) V_m^T, n x n, diagonal d_m, superdiagonal e_m
// Method: dqds, and bisection for lanes that it gives up (algorithms/lanes/matrix_values.h). It cannot fail. A
// matrix alone has no pack, which takes as long for one as for all.
//
// Cost: about 40 n^2 operations a matrix. Accuracy: |error| <= (16 + 2 n) u s_max, u that of doubles, in which all of it is
// computed. Values of floats are rounded at the end.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_BIDIAGONAL_VALUES_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_BIDIAGONAL_VALUES_H_

#include <cstddef>

namespace svdserve::host {

// Matrices to gather for a call: those of the widest pack.
inline constexpr int kMostBidiagonals = 16;

// d, e and s of matrix m begin at m * n. The largest number of each B is between 1/4 and 2^20, or B is zero. T: float or
// double.
template <class T>
struct Bidiagonals {
  int n, count;  // count <= kMostBidiagonals
  const T *d, *e;
  T* s;  // [out] descending
};

// Doubles of `scratch`, which is aligned to 64 bytes.
constexpr size_t bidiagonal_values_scratch(int n) { return size_t{7} * kMostBidiagonals * static_cast<size_t>(n); }

// The values of a matrix depend on it alone.
void find_values(const Bidiagonals<float>& b, double* scratch);
void find_values(const Bidiagonals<double>& b, double* scratch);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_BIDIAGONAL_VALUES_H_
