// A plan as launchers read it: the sizes of its matrices, and the parts of their decomposition that are made.
//
// T = A, or its transpose where A is wide, and T = X S Y^H (engine/vector_layout.h). T is long_side x k.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BATCH_SHAPE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BATCH_SHAPE_H_

#include <algorithm>
#include <cstdint>

#include "engine/planner.h"
#include "engine/vector_layout.h"

namespace svdserve::cuda {

struct BatchShape {
  // `plan` must outlive the object.
  explicit BatchShape(const Plan& p)
      : plan(p),
        k(static_cast<int>(values_per_matrix(p.problem))),
        long_side(std::max(p.problem.rows, p.problem.cols)),
        tile_rows(static_cast<int>(is_large() ? long_side : std::min<int64_t>(long_side, kTileRows))),
        tiles(static_cast<int>((long_side + tile_rows - 1) / tile_rows)) {}

  bool square() const { return plan.problem.rows == plan.problem.cols; }
  bool hermitian() const { return plan.decomposition == Decomposition::kHermitian; }
  bool general() const { return plan.decomposition == Decomposition::kGeneral; }
  bool wide() const { return plan.problem.cols > plan.problem.rows; }
  // Too large for teams: a thread block a matrix, but for BIDIAGONAL and TRIDIAGONAL.
  bool is_large() const { return k > kLargestReproducible; }
  bool by_blocks() const { return is_large() && plan.method == Method::kJacobi; }
  bool by_rows() const { return is_by_rows(plan); }
  // Too large for a thread block.
  bool side_by_side() const { return is_side_by_side(plan); }
  // Whether consecutive elements of an operand are a row of T: a row of a row-major tall matrix, or a column of a
  // column-major wide one.
  bool rows_contiguous() const { return (plan.problem.order == Order::kRowMajor) != wide(); }

  bool gives_all_values() const { return plan.outputs.values == k; }
  // Whether vectors are made, given or not.
  bool with_vectors() const { return plan.outputs.left_columns > 0 || plan.outputs.right_columns > 0 || staged(); }
  bool staged() const { return is_staged(plan); }
  // Columns of X that are made.
  int64_t x_columns() const {
    if (staged()) return k;
    return wide() ? plan.outputs.right_columns : plan.outputs.left_columns;
  }
  // Whether X is made, and is Q times something.
  bool keeps_factors() const { return is_reduced() && x_columns() > 0; }
  // Whether T is reduced to a triangle first.
  bool is_reduced() const { return !square() && !side_by_side(); }

  const Plan& plan;
  const int k;
  const int64_t long_side;
  const int tile_rows, tiles;  // of the QR tree of T
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BATCH_SHAPE_H_
