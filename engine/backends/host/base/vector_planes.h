// From packs of singular vectors to the planes of a batch.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_VECTOR_PLANES_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_VECTOR_PLANES_H_

#include <cstring>

#include "engine/core/float_traits.h"
#include "engine/vector_layout.h"

namespace svdserve::host {

// Columns of X or Y in a pack: element (i, j) of lane l is number ((j * rows + i) * components + c) * lanes + l.
template <class T>
struct PackedColumns {
  const T* data;
  int64_t rows;
  int components;
  int lanes;
  const T* at(int64_t i, int64_t j, int lane) const { return data + (j * rows + i) * components * lanes + lane; }
};

// write_columns() of elements of that many components.
template <int kComponents, class T>
void write_columns_of(const PackedColumns<T>& from, int lane, const int* columns, const VectorLayout& layout, int64_t n,
                      int64_t first_row, int64_t rows, char* to) {
  // Copies: what is written might be the originals, as far as the compiler knows.
  const T sign = layout.conjugate ? T(-1) : T(1);
  const int64_t lanes = from.lanes, step = layout.row_stride * int64_t{sizeof(T[kComponents])};
  for (int64_t r = 0; r < n; ++r) {
    const T* x = from.at(0, columns[r], lane);
    char* at = to + (first_row * layout.row_stride + r * layout.col_stride) * int64_t{sizeof(T[kComponents])};
    for (int64_t i = 0; i < rows; ++i, at += step, x += kComponents * lanes) {
      T element[kComponents];
      element[0] = x[0] + T(0);
      if constexpr (kComponents == 2) element[1] = x[lanes] * sign + T(0);
      std::memcpy(at, element, sizeof(element));
    }
  }
}

// Writes rows first_row .. of the leading n columns of one lane to where their layout wants them. columns[r] is the
// column with number r in descending order. Every zero is written as +0. `to`: the matrix' part of the plane, at any
// alignment.
template <class T>
void write_columns(const PackedColumns<T>& from, int lane, const int* columns, const VectorLayout& layout, int64_t n,
                   int64_t first_row, int64_t rows, char* to) {
  from.components == 2 ? write_columns_of<2>(from, lane, columns, layout, n, first_row, rows, to)
                       : write_columns_of<1>(from, lane, columns, layout, n, first_row, rows, to);
}

// Both parts of a matrix that is not finite.
template <class T>
void fill_with_nan(char* to, size_t bytes) {
  const T nan = FloatTraits<T>::nan();
  for (size_t at = 0; at < bytes; at += sizeof(T)) std::memcpy(to + at, &nan, sizeof(T));
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_VECTOR_PLANES_H_
