// Where singular vectors go. The back ends decompose the long side first: T = A, or its transpose where A is wide, and
// T = X S Y^H with X (long x k) and Y (k x k). For wide A, A = conj(Y) S X^T, so the planes change sides and conjugate.
#ifndef SVDSERVE_ENGINE_VECTOR_LAYOUT_H_
#define SVDSERVE_ENGINE_VECTOR_LAYOUT_H_

#include <cstdint>

#include "engine/planner.h"

namespace svdserve {

// Element (i, j), j < columns, of X or Y lies at i * row_stride + j * col_stride from the matrix' part of the plane,
// conjugated where it says so. Strides in elements.
struct VectorLayout {
  Plane plane = Plane::kLeft;
  int64_t rows = 0;     // of X or Y
  int64_t columns = 0;  // wanted; 0: none; more than k: completed to an orthonormal basis
  int64_t row_stride = 0, col_stride = 0;
  bool conjugate = false;

  int64_t matrix_stride() const { return rows * columns; }
};

constexpr VectorLayout layout_of_plane(const Problem& p, const Outputs& o, Plane plane) {
  const bool wide = p.cols > p.rows, row_major = p.order == Order::kRowMajor;
  const bool left = plane == Plane::kLeft;
  const int64_t rows = left ? p.rows : p.cols, columns = left ? o.left_columns : o.right_columns;
  const bool adjoint = !left && o.right_adjoint;
  const bool by_rows = row_major != adjoint;  // the elements of a row of X or Y follow each other
  return {plane, rows, columns, by_rows ? columns : 1, by_rows ? 1 : rows, adjoint != wide};
}

// Layouts of X, the long result factor, and Y, the short one.
constexpr VectorLayout long_layout(const Problem& p, const Outputs& o) {
  return layout_of_plane(p, o, p.cols > p.rows ? Plane::kRight : Plane::kLeft);
}
constexpr VectorLayout short_layout(const Problem& p, const Outputs& o) {
  return layout_of_plane(p, o, p.cols > p.rows ? Plane::kLeft : Plane::kRight);
}

// Phases are those of U, and certificates and gradients are made of k columns of both sides. For fewer columns, all k of
// both are made in memory aside, by columns, and the requested ones are copied. Eigenvectors, which are all of one side,
// never are.
inline bool is_staged(const Plan& plan) {
  const Outputs& o = plan.outputs;
  const int64_t k = values_per_matrix(plan.problem);
  return plan.decomposition == Decomposition::kSvd && (o.certificate || o.fix_phases || o.gradients()) &&
         (o.left_columns < k || o.right_columns < k);
}
constexpr VectorLayout staged_layout(const VectorLayout& wanted, int64_t k) {
  return {wanted.plane, wanted.rows, k, 1, wanted.rows, false};
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_VECTOR_LAYOUT_H_
