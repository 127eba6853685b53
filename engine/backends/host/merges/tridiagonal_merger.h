// One merge of divide and conquer for real symmetric tridiagonal matrices, on the calling thread or spread over several.
//
//   T = V diag(lambda) V^T from the halves of T, n x n: algorithms/large/tridiagonal_merge.h
// Deflation is that file's, on one thread. Roots, weights and vectors are algorithms/lanes/secular_equation.h, a root a lane.
// The vectors of a range of columns are made where they are multiplied, and take no memory of n x n.
//
// Cost: 2 n^3 multiplications and additions at most, less by what deflates. Accuracy: that of the merge, u the roundoff of T.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_MERGER_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_MERGER_H_

#include <cstddef>
#include <vector>

#include "engine/algorithms/large/tridiagonal_merge.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/merges/merged_matrix.h"

namespace svdserve::host {

// Keeps memory between calls. Thread safety: none. The caller holds a BlasThreads and an FpEnvironment. T: float or double.
template <class T>
class TridiagonalMerger {
 public:
  // threads: null: the calling thread alone; else it outlives the object.
  explicit TridiagonalMerger(const LargeThreads* threads);

  // [in,out] v: n x n, the vectors of the halves on its diagonal, zero elsewhere; [in,out] values: n, in the order of columns.
  // e: what connects the halves. Returns how the values are sorted. Throws std::bad_alloc.
  large::TridiagonalHalf run(double e, large::TridiagonalHalf upper, large::TridiagonalHalf lower,
                             large::LargeView<T> v, double* values);

 private:
  // Vectors of the small matrix, which are made and multiplied.
  struct Columns {
    AlignedArray<T> v;
    AlignedArray<double> wide;
    MergedVectors<T> of(int count, int columns);
  };

  void reserve(int n);
  void find_all_roots(double* values);
  void multiply(large::LargeView<T> v);
  void multiply_columns(const T* packed_lower, int first, int last, Columns& columns, large::LargeView<T> v);
  T* pack(const T* from, int64_t ld, const int* columns, int count, int rows, T* to) const;
  template <class F>
  void for_ranges(int count, int grain, const F& f) const;

  const LargeThreads* threads_;
  large::Deflation deflation_;
  large::TridiagonalMerge merge_{};
  MergedMatrix small_;
  int capacity_ = 0;
  AlignedArray<T> packed_;
  Columns columns_of_small_;
  AlignedArray<double> scratch_;
  std::vector<double> z_, poles_, weights_;
  std::vector<int> columns_, pole_, place_, chain_;
  std::vector<large::PairRotation> rotations_;
};

extern template class TridiagonalMerger<float>;
extern template class TridiagonalMerger<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_MERGER_H_
