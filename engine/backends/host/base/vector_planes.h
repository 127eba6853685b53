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

// Writes rows first_row .. of the leading n columns of one lane to where their layout wants them. columns[r] is the
// column with number r in descending order. Every zero is written as +0. `to`: the matrix' part of the plane, at any
// alignment.
template <class T>
void write_columns(const PackedColumns<T>& from, int lane, const int* columns, const VectorLayout& layout, int64_t n,
                   int64_t first_row, int64_t rows, char* to) {
  const int components = from.components;
  const T sign = layout.conjugate ? T(-1) : T(1);
  for (int64_t r = 0; r < n; ++r) {
    const T* x = from.at(0, columns[r], lane);
    char* at = to + (first_row * layout.row_stride + r * layout.col_stride) * components * sizeof(T);
    const int64_t step = layout.row_stride * components * sizeof(T);
    for (int64_t i = 0; i < rows; ++i, at += step, x += components * from.lanes) {
      const T re = x[0] + T(0);
      std::memcpy(at, &re, sizeof(T));
      if (components == 2) {
        const T im = x[from.lanes] * sign + T(0);
        std::memcpy(at + sizeof(T), &im, sizeof(T));
      }
    }
  }
}

// Both parts of a matrix that is not finite.
template <class T>
void fill_with_nan(char* to, size_t bytes) {
  const T nan = FloatTraits<T>::nan();
  for (size_t at = 0; at < bytes; at += sizeof(T)) std::memcpy(to + at, &nan, sizeof(T));
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_VECTOR_PLANES_H_
