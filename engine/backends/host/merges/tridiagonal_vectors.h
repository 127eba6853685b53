// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer, on the calling thread.
//
//   T = V diag(lambda) V^T, n x n, diagonal d, subdiagonal e
// Method: merges (tridiagonal_merger.h) from single rows on, so that there is no other method below. At last each value
// becomes the Rayleigh quotient of its vector: merges add errors to values, which that takes away.
//
// Cost: up to 4/3 n^3 multiplications and additions, less by what deflates. Accuracy: |T - V L V^T| and |I - V^T V| a few
// n u for |T| about one; |lambda - exact| a few u. No small eigenvalue is known relatively.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195; Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 172-191.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_VECTORS_H_

#include <cstddef>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/merges/tridiagonal_merger.h"

namespace svdserve::host {

// Keeps memory between calls. Thread safety: none. T: float or double, u its roundoff.
template <class T>
class TridiagonalVectors {
 public:
  // T's largest number is at most 2^60; errors are relative to the larger of it and 1/4. Results are in value() and v(). Throws
  // std::bad_alloc.
  void decompose(int n, const T* d, const T* e);

  // Eigenvalue i in ascending order, and the column of v() that has its vector.
  double value(int i) const { return values_[at(column(i))]; }
  int column(int i) const { return order_[at(i)]; }
  const T* v() { return v_.data(); }  // n x n, column-major, leading dimension n

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  void reserve(int n);
  large::TridiagonalHalf solve(int first, int n);
  double rayleigh_quotient(const T* x) const;

  int n_ = 0;
  AlignedArray<T> v_;
  std::vector<double> values_, d_, torn_, e_;
  std::vector<int> order_;
  TridiagonalMerger<T> merger_{nullptr};
};

extern template class TridiagonalVectors<float>;
extern template class TridiagonalVectors<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_TRIDIAGONAL_VECTORS_H_
