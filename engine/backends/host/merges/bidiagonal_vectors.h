// Singular values and vectors of a real upper bidiagonal matrix by divide and conquer, on the calling thread.
//
//   B = U diag(s) V^T, n x n, diagonal d, superdiagonal e
//   B = [B_1 0; alpha e_last^T beta e_1^T; 0 B_2]: a row in the middle joins two halves, each with one more column than
//   rows, but for the last one. B_i = U_i [D_i 0] V_i^T, given.
//   B = diag(U_1, 1, U_2) M diag(V_1, V_2)^T,   M = [z; diag(0, D_1, D_2)],   z = (alpha e_last^T V_1, beta e_1^T V_2)
// Method: each half has a column of no value, which the middle row alone sees. Both are rotated into one that it sees and
// one that it does not. Deflation leaves M of k columns:
//   - |z_c| <= tol: column c is a vector;
//   - d_c <= tol: a rotation of the right vectors takes z_c into z_0;
//   - two d so close that a rotation in their plane moves them by no more than tol: one of their z becomes zero.
// M = S_u diag(s) S_v^T by algorithms/lanes/secular_equation.h. Then two products for each of U and V: columns are packed
// by their rows, of the upper half only, of both, of the lower half only. Parts of one row are solved as they are, so
// that there is no other method below. At last each value becomes u^T B v of its vectors: merges add errors to
// values, which that takes away.
//
// Cost: up to 8/3 n^3 multiplications and additions, less by what deflates. Accuracy: |B - U S V^T| and |I - U^T U| a few n
// u for |B| about one, |s - exact| a few u; tol = 8 u max(d, |z|) in a merge. No small value is known relatively.
// Sources: Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 79-92; LAPACK's ?bdsdc, which has QR below 25 rows.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_BIDIAGONAL_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_BIDIAGONAL_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"

namespace svdserve::host {

// Keeps memory between calls. Thread safety: none. T: float or double, u its roundoff.
template <class T>
class BidiagonalVectors {
 public:
  // B's largest number is between 1/2 and 2^60, or B is zero. Results are in u(), v(), and s(). Throws std::bad_alloc.
  void decompose(int n, const T* d, const T* e);

  // Value i in descending order, >= 0, and the column of u() and v() that has its vectors.
  double s(int i) const { return values_[at(column(i))]; }
  int column(int i) const { return order_[at(n_ - 1 - i)]; }
  // n x n, column-major, leading dimension n.
  const T* u() { return u_.data(); }
  const T* v() { return v_.data(); }

 private:
  // Rows first .. first + n - 1 of B, n = upper + 1 + lower, in columns first .. first + n - 1 + extra. All indices of
  // columns below count from `first`; column `upper` is the middle one.
  struct Merge {
    int first, upper, lower, extra;
    int rows() const { return upper + 1 + lower; }
    int columns() const { return rows() + extra; }
  };
  enum Kind : uint8_t { kUpper, kDense, kLower };

  static size_t at(int i) { return static_cast<size_t>(i); }
  T* u(const Merge& m, int row, int column) { return u_.data() + at(m.first + row) + at(m.first + column) * at(n_); }
  T* v(const Merge& m, int row, int column) { return v_.data() + at(m.first + row) + at(m.first + column) * at(n_); }

  void reserve(int n);
  void solve(int first, int n, int extra);
  void solve_row(int first, int extra);
  void merge(const Merge& m);
  void join_rows(const Merge& m);
  void scale(const Merge& m);
  void deflate(const Merge& m);
  void sort(const Merge& m);
  void set_aside(const Merge& m, int column);
  bool rotate(const Merge& m, int a, int b);
  void rotate_into_middle(const Merge& m, int column);
  void pack(const Merge& m);
  void multiply(const Merge& m);
  void finish(const Merge& m);
  double value_of(const T* x, const T* y) const;

  int n_ = 0;
  AlignedArray<T> u_, v_;
  AlignedArray<T> packed_u_, packed_v_, joint_u_, joint_v_;  // columns of a merge, and M's vectors
  AlignedArray<double> wide_u_, wide_v_, scratch_;
  std::vector<double> d_, e_, values_, z_, poles_, weights_, roots_;
  std::vector<int> order_, sorted_;  // columns by ascending values, of each part from its first place on
  std::vector<int> kept_, aside_, place_, column_of_;
  std::vector<Kind> kind_;
  double scale_ = 1, tolerance_ = 0;
  int upper_only_ = 0, dense_ = 0, lower_only_ = 0;  // packed columns
};

extern template class BidiagonalVectors<float>;
extern template class BidiagonalVectors<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MERGES_BIDIAGONAL_VECTORS_H_
