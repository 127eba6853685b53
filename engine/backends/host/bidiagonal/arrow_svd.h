// SVD of the arrow matrix of a merge (algorithms/lanes/bidiagonal_merge.h), as vector code for the processor's
// instruction set. On the calling thread.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BIDIAGONAL_ARROW_SVD_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BIDIAGONAL_ARROW_SVD_H_

#include <cstddef>

namespace svdserve::host {

// Numbers that arrays have beyond their last one.
inline constexpr int kArrowPadding = 8;
// The leading dimension of vectors of `count` rows.
constexpr int arrow_ld(int count) { return (count + kArrowPadding - 1) / kArrowPadding * kArrowPadding; }

// M = U diag(s) V^T, all memory the caller's. T: float or double; the arithmetic is in double precision. Every array of
// `count` has kArrowPadding numbers more, and those of vectors have count arrow_ld(count).
template <class T>
struct ArrowSvd {
  int count = 0;                                // >= 2
  const double* d = nullptr;                    // 0 = d_0 < d_1 < ..
  const double* z = nullptr;                    // none zero
  const int* place = nullptr;                   // row i of the vectors of M becomes row place[i]
  double* s = nullptr;                          // [out] ascending
  T *u = nullptr, *v = nullptr;                 // [out] by rows
  double *wide_u = nullptr, *wide_v = nullptr;  // scratch, as u and v
  double* scratch = nullptr;                    // 5 arrays of count
};

void decompose_arrow(const ArrowSvd<float>& m);
void decompose_arrow(const ArrowSvd<double>& m);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BIDIAGONAL_ARROW_SVD_H_
