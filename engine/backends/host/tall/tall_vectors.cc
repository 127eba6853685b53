#include "engine/backends/host/tall/tall_vectors.h"

#include <algorithm>
#include <vector>

#include "engine/core/float_traits.h"

namespace svdserve::host {

template <class T>
TallVectors<T>::TallVectors(const Plan& plan, const KernelTable<T>& kernels)
    : kernels_(kernels), shape_(plan, kernels.components) {
  const size_t element = static_cast<size_t>(kernels.components) * kernels.lanes, k = static_cast<size_t>(shape_.k);
  const size_t tiles = static_cast<size_t>(shape_.tiles);
  triangle_size_ = k * k * element;
  tile_size_ = static_cast<size_t>(shape_.tile_rows) * k * element;
  triangles_.reserve(tiles * triangle_size_);
  factors_.reserve(tiles * tile_size_);
  g_.reserve(2 * tiles * k * kernels.lanes);
  heads_.reserve(tiles * k * element);
  exponents_.reserve(k * kernels.lanes);
  y_.reserve(tile_size_);
  scratch_.reserve(triangle_size_);
}

// Tile `tile` of each lane's matrix into the tile's factor, by columns; zeros below its last row.
template <class T>
void TallVectors<T>::load_tile(const char* const* matrices, int tile) {
  const int components = shape_.components, lanes = kernels_.lanes, rows = shape_.rows_of(tile);
  const size_t element = static_cast<size_t>(components) * lanes, column = shape_.tile_rows * element;
  const char* tiles[kMaxLanes];
  for (int lane = 0; lane < lanes; ++lane) tiles[lane] = shape_.tile_of(matrices[lane], tile, sizeof(T));
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements * components) * sizeof(T); };
  T* const to = factor_of(tile);
  if (shape_.rows_contiguous()) {
    for (int i = 0; i < rows; ++i) {
      interleave_apart(tiles, bytes(i * shape_.row_stride), lanes, static_cast<size_t>(shape_.k), components,
                       static_cast<size_t>(shape_.tile_rows) * components, to + i * element);
    }
  } else {
    for (int j = 0; j < shape_.k; ++j) {
      interleave_apart(tiles, bytes(j * shape_.col_stride), lanes, static_cast<size_t>(rows), components,
                       static_cast<size_t>(components), to + j * column);
    }
  }
  for (int j = 0; j < shape_.k; ++j) std::fill(to + j * column + rows * element, to + (j + 1) * column, T(0));
}

template <class T>
void TallVectors<T>::factorize(const char* const* matrices, int n) {
  const int lanes = kernels_.lanes, k = shape_.k;
  bool finite[kMaxLanes];
  const char* of_lanes[kMaxLanes];
  std::vector<T> exponents(static_cast<size_t>(k));
  for (int lane = 0; lane < lanes; ++lane) {
    of_lanes[lane] = matrices[lane < n ? lane : 0];  // idle lanes repeat a matrix
    finite[lane] = shape_.scan(of_lanes[lane], exponents.data());
    for (int j = 0; j < k; ++j) exponents_.data()[j * lanes + lane] = exponents[j];
  }
  for (int tile = 0; tile < shape_.tiles; ++tile) load_tile(of_lanes, tile);
  for (int t = 0; t < shape_.tiles; ++t) {
    kernels_.keep_tile({factor_of(t), shape_.tile_rows, k, exponents_.data(), g_of(t, false), triangle_of(t)});
  }
  for (int d = 1; d < shape_.tiles; d *= 2) {
    for (int t = 0; t + d < shape_.tiles; t += 2 * d) {
      kernels_.keep_join({triangle_of(t), triangle_of(t + d), k, g_of(t + d, true), heads_of(t + d)});
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    if (!finite[lane]) triangles_.data()[lane] = FloatTraits<T>::nan();
  }
}

// X_k down the tree: every tile's k x k part takes the place of its triangle.
template <class T>
void TallVectors<T>::expand(const T* x_k) {
  std::copy_n(x_k, triangle_size_, triangles_.data());
  int d = 1;
  while (d < shape_.tiles) d *= 2;
  for (d /= 2; d >= 1; d /= 2) {
    for (int t = 0; t + d < shape_.tiles; t += 2 * d) {
      kernels_.apply_join(
          {triangle_of(t + d), g_of(t + d, true), heads_of(t + d), shape_.k, triangle_of(t), scratch_.data()});
    }
  }
}

template class TallVectors<float>;
template class TallVectors<double>;

}  // namespace svdserve::host
