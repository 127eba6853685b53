// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer, on the calling thread.
//
//   T = V diag(lambda) V^T, n x n, diagonal d, subdiagonal e
// Method: the merges of algorithms/large/tridiagonal_merge.h, from single rows on, so that there is no other method
// below. Deflation is that file's; roots and vectors are algorithms/lanes/secular_equation.h, a root a lane. At last each
// value becomes the Rayleigh quotient of its vector: merges add errors to values, which that takes away.
//
// Cost: up to 4/3 n^3 multiplications and additions, less by what deflates. Accuracy: |T - V L V^T| and |I - V^T V| a few
// n u for |T| about one; |lambda - exact| a few u. No small eigenvalue is known relatively.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195; Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 172-191.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_VECTORS_H_

#include <cstddef>
#include <vector>

#include "engine/algorithms/large/tridiagonal_merge.h"
#include "engine/backends/host/base/aligned_array.h"

namespace svdserve::host {

// Keeps memory between calls. Thread safety: none. T: float or double, u its roundoff.
template <class T>
class TridiagonalVectors {
 public:
  TridiagonalVectors();

  // T's largest number is between 1/4 and 2^60, or T is zero. Results are in value() and v(). Throws std::bad_alloc.
  void decompose(int n, const T* d, const T* e);

  // Eigenvalue i in ascending order, and the column of v() that has its vector.
  double value(int i) const { return values_[at(column(i))]; }
  int column(int i) const { return order_[at(i)]; }
  const T* v() { return v_.data(); }  // n x n, column-major, leading dimension n

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }
  T* v(int row, int column) { return v_.data() + at(row) + at(column) * at(n_); }

  void reserve(int n);
  large::TridiagonalHalf solve(int first, int n);
  large::TridiagonalHalf merge(int first, large::TridiagonalHalf upper, large::TridiagonalHalf lower);
  void find_roots(const large::TridiagonalMerge& m);
  void multiply(const large::TridiagonalMerge& m);
  double rayleigh_quotient(const T* x) const;

  int n_ = 0;
  AlignedArray<T> v_, packed_, joint_;  // columns of a merge, and the vectors that they are multiplied by
  AlignedArray<double> wide_, scratch_;
  std::vector<double> values_, d_, torn_, e_, z_, poles_, weights_;
  std::vector<int> order_, columns_, pole_, place_, chain_;
  std::vector<large::PairRotation> rotations_;
  large::Deflation deflation_;
};

extern template class TridiagonalVectors<float>;
extern template class TridiagonalVectors<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_VECTORS_H_
