// The small matrix M of a merge in divide and conquer, decomposed (algorithms/lanes/secular_equation.h) by vector code
// for the processor's instruction set. On the calling thread.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_MERGED_MATRIX_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_MERGED_MATRIX_H_

namespace svdserve::host {

// Numbers that arrays have beyond their last one: the lanes of the widest pack.
inline constexpr int kMergePadding = 8;
// The leading dimension of vectors of `count` rows.
constexpr int merge_ld(int count) { return (count + kMergePadding - 1) / kMergePadding * kMergePadding; }

// All memory is the caller's. T: float or double; the arithmetic is in double precision. Every array of `count` has
// kMergePadding numbers more, and those of vectors have count merge_ld(count).
template <class T>
struct MergedMatrix {
  int count = 0;                                // >= 2
  const double* d = nullptr;                    // ascending
  const double* z = nullptr;                    // none zero
  const int* place = nullptr;                   // row i of the vectors of M becomes row place[i]
  double* s = nullptr;                          // [out] ascending
  T *u = nullptr, *v = nullptr;                 // [out] by rows; u of an SVD alone
  double *wide_u = nullptr, *wide_v = nullptr;  // scratch, as u and v, which those of double may be
  double* scratch = nullptr;                    // 5 arrays of count
};

// M = [z; diag(d)] = U diag(s) V^T, d_0 = 0.
void decompose_arrow(const MergedMatrix<float>& m);
void decompose_arrow(const MergedMatrix<double>& m);
// M = diag(d) + z z^T = V diag(s) V^T.
void decompose_rank_one(const MergedMatrix<float>& m);
void decompose_rank_one(const MergedMatrix<double>& m);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_MERGED_MATRIX_H_
