#include "engine/backends/host/tall/tall_reduction.h"

#include <algorithm>

#include "engine/core/float_traits.h"

namespace svdserve::host {
template <class T>
TallReduction<T>::TallReduction(const Plan& plan, const KernelTable<T>& kernels)
    : kernels_(kernels), shape_(plan, kernels.components) {
  group_ = shape_.tiles >= kernels.lanes ? 1 : kernels.lanes;
  triangle_size_ = static_cast<size_t>(shape_.k) * shape_.k * kernels.components;

  const size_t lanes = kernels.lanes;
  triangles_.reserve(triangle_size_ * shape_.tiles * group_);
  exponents_.reserve(static_cast<size_t>(group_) * shape_.k);
  finite_.reserve(group_);
  packed_.reserve(static_cast<size_t>(shape_.tile_rows) * shape_.k * kernels.components * lanes);
  packed_r_.reserve(triangle_size_ * lanes);
  packed_other_.reserve(triangle_size_ * lanes);
  packed_exponents_.reserve(shape_.k * lanes);
  scratch_.reserve(
      std::max(static_cast<size_t>(shape_.tile_rows) * shape_.k, 2 * static_cast<size_t>(shape_.k) * shape_.k) *
      kernels.components * lanes);
}

// The tiles first .. first + used - 1 of all matrices into lanes of packed_, by rows, and the exponents of their columns
// beside them. Lanes beyond repeat the first tile.
template <class T>
void TallReduction<T>::load_tiles(const char* const* matrices, int first, int used) {
  const int k = shape_.k, components = kernels_.components, lanes = kernels_.lanes;
  const auto row = static_cast<size_t>(k) * components;
  const char* tiles[kMaxLanes];
  int rows[kMaxLanes];
  for (int lane = 0; lane < lanes; ++lane) {
    const int number = first + (lane < used ? lane : 0), l = number / shape_.tiles;
    tiles[lane] = shape_.tile_of(matrices[l], number % shape_.tiles, sizeof(T));
    rows[lane] = shape_.rows_of(number % shape_.tiles);
    for (int j = 0; j < k; ++j) packed_exponents_.data()[j * lanes + lane] = exponents(l)[j];
  }
  const int of_all = *std::min_element(rows, rows + lanes);
  if (shape_.rows_contiguous()) {
    interleave(tiles, lanes, of_all * row, packed_.data());
  } else {
    const size_t column_bytes = static_cast<size_t>(shape_.col_stride) * components * sizeof(T);
    for (int j = 0; j < k; ++j) {
      interleave_apart(tiles, j * column_bytes, lanes, static_cast<size_t>(of_all), components, row,
                       packed_.data() + static_cast<size_t>(j) * components * lanes);
    }
  }
  load_ends(tiles, rows, of_all);
}

// The rows from `first` on, which not all tiles have: the others get zeros.
template <class T>
void TallReduction<T>::load_ends(const char* const* tiles, const int* rows, int first) {
  const int components = kernels_.components, lanes = kernels_.lanes;
  const auto bytes = [&](int64_t elements) { return elements * components * static_cast<int64_t>(sizeof(T)); };
  for (int lane = 0; lane < lanes; ++lane) {
    T* to = packed_.data() + static_cast<size_t>(first) * shape_.k * components * lanes + lane;
    for (int i = first; i < shape_.tile_rows; ++i) {
      const char* from = tiles[lane] + bytes(i * shape_.row_stride);
      for (int j = 0; j < shape_.k; ++j, from += bytes(shape_.col_stride)) {
        for (int c = 0; c < components; ++c, to += lanes) {
          *to = i < rows[lane] ? load_number<T>(from + c * sizeof(T)) : T(0);
        }
      }
    }
  }
}

// The triangles of all tiles of n matrices, a pack of tiles at a time.
template <class T>
void TallReduction<T>::factorize_tiles(const char* const* matrices, int n) {
  const int lanes = kernels_.lanes, total = n * shape_.tiles;
  for (int first = 0; first < total; first += lanes) {
    const int used = std::min(lanes, total - first);
    load_tiles(matrices, first, used);
    kernels_.tile(
        {packed_.data(), shape_.tile_rows, shape_.k, packed_exponents_.data(), packed_r_.data(), scratch_.data()});
    for (int lane = 0; lane < used; ++lane) {
      deinterleave_one(packed_r_.data(), lanes, lane, triangle_size_,
                       reinterpret_cast<char*>(triangles_.data() + (first + lane) * triangle_size_));
    }
  }
}

// Joins tile t with tile t + d, d = 1, 2, 4, ..: the pairs of one distance, over all matrices, fill packs.
template <class T>
void TallReduction<T>::join_tiles(int n) {
  const int lanes = kernels_.lanes;
  const char* tops[kMaxLanes];
  const char* bottoms[kMaxLanes];
  int used = 0;
  const auto flush = [&] {
    if (used == 0) return;
    std::fill(tops + used, tops + lanes, tops[0]);
    std::fill(bottoms + used, bottoms + lanes, bottoms[0]);
    interleave(tops, lanes, triangle_size_, packed_r_.data());
    interleave(bottoms, lanes, triangle_size_, packed_other_.data());
    kernels_.join({packed_r_.data(), packed_other_.data(), shape_.k, scratch_.data()});
    for (int lane = 0; lane < used; ++lane) {
      deinterleave_one(packed_r_.data(), lanes, lane, triangle_size_, const_cast<char*>(tops[lane]));
    }
    used = 0;
  };
  for (int d = 1; d < shape_.tiles; d *= 2) {
    for (int l = 0; l < n; ++l) {
      for (int t = 0; t + d < shape_.tiles; t += 2 * d) {
        tops[used] = reinterpret_cast<const char*>(tile_triangle(l, t));
        bottoms[used] = reinterpret_cast<const char*>(tile_triangle(l, t + d));
        if (++used == lanes) flush();
      }
    }
    flush();
  }
}

template <class T>
void TallReduction<T>::reduce(const char* const* matrices, int n) {
  for (int l = 0; l < n; ++l) finite_.data()[l] = shape_.scan(matrices[l], exponents_.data() + l * shape_.k);
  factorize_tiles(matrices, n);
  join_tiles(n);
  for (int l = 0; l < n; ++l) {
    if (!finite_.data()[l]) tile_triangle(l, 0)[0] = FloatTraits<T>::nan();
  }
}

template class TallReduction<float>;
template class TallReduction<double>;

}  // namespace svdserve::host
