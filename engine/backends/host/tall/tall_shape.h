// How a matrix with m != n is cut into tiles (tall_reduction.h), and the scales of its columns.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_SHAPE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_SHAPE_H_

#include "engine/planner.h"

namespace svdserve::host {

struct TallShape {
  int64_t long_side;
  int k;
  int components;
  int64_t row_stride, col_stride;  // in elements, of the tall matrix in natural storage
  bool by_column;                  // JACOBI: a power of two for each column
  int tile_rows, tiles;

  TallShape(const Plan& plan, int element_components);

  // Rows of a tile that the matrix has; the others are zero.
  int rows_of(int tile) const;

  // Where a tile begins in a matrix.
  const char* tile_of(const char* matrix, int tile, size_t number_bytes) const {
    return matrix +
           static_cast<int64_t>(tile) * tile_rows * row_stride * components * static_cast<int64_t>(number_bytes);
  }
  bool rows_contiguous() const { return col_stride == 1; }

  // The k exponents of the columns; zeros, and false, where the matrix is not finite.
  template <class T>
  bool scan(const char* matrix, T* exponents) const;
};

extern template bool TallShape::scan(const char*, float*) const;
extern template bool TallShape::scan(const char*, double*) const;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_SHAPE_H_
