// The small matrix M of a merge in divide and conquer, decomposed (algorithms/lanes/secular_equation.h) by vector code
// for the processor's instruction set.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGED_MATRIX_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGED_MATRIX_H_

namespace svdserve::host {

// Numbers that arrays have beyond their last one: the lanes of the widest pack.
inline constexpr int kMergePadding = 8;
// The leading dimension of vectors of `count` columns.
constexpr int merge_ld(int count) { return (count + kMergePadding - 1) / kMergePadding * kMergePadding; }

// All memory is the caller's. Every array of `count` has kMergePadding numbers more.
struct MergedMatrix {
  int count = 0;               // >= 1, of decompose_arrow() >= 2
  const double* d = nullptr;   // ascending
  const double* z = nullptr;   // none zero
  const int* place = nullptr;  // row i of the vectors of M becomes row place[i]
  double* s = nullptr;         // [out] ascending
  double* scratch = nullptr;   // 5 arrays of count
};

// Columns of vectors by rows, with the leading dimension merge_ld() of their number. T: float or double; the arithmetic is in
// double precision.
template <class T>
struct MergedVectors {
  T *u = nullptr, *v = nullptr;                 // [out] u of an SVD alone
  double *wide_u = nullptr, *wide_v = nullptr;  // scratch, as u and v, which those of double may be
};

// M = [z; diag(d)] = U diag(s) V^T, d_0 = 0.
void decompose_arrow(const MergedMatrix& m, const MergedVectors<float>& to);
void decompose_arrow(const MergedMatrix& m, const MergedVectors<double>& to);

// M = diag(d) + z z^T = V diag(s) V^T, in three steps: roots, for which all weights are made, and vectors. Each takes a range
// of all from a multiple of kMergePadding to another one or the end. Threads may take ranges of a step at the same time.
void find_roots(const MergedMatrix& m, int first, int last);
void find_weights(const MergedMatrix& m, int first, int last);
void find_vectors(const MergedMatrix& m, int first, int last, const MergedVectors<float>& to);
void find_vectors(const MergedMatrix& m, int first, int last, const MergedVectors<double>& to);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_MERGED_MATRIX_H_
