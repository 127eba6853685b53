#include "engine/backends/host/tall_reduction.h"

#include <algorithm>
#include <bit>

#include "engine/core/float_traits.h"

namespace svdserve::host {
namespace {

// floor(log2(x)) of the number whose magnitude has these bits; zero for zero.
template <class T>
int exponent_of_bits(typename FloatTraits<T>::Bits bits) {
  using F = FloatTraits<T>;
  if (bits == 0) return 0;
  const int field = static_cast<int>(bits >> F::kMantissaBits);
  if (field != 0) return field - F::kBias;
  return std::bit_width(bits) - F::kMantissaBits - F::kBias;
}

}  // namespace

template <class T>
TallReduction<T>::TallReduction(const Plan& plan, const KernelTable<T>& kernels) : kernels_(kernels) {
  const Problem& p = plan.problem;
  const bool row_major = p.order == Order::kRowMajor;
  const bool tall = p.rows >= p.cols;
  long_side_ = std::max(p.rows, p.cols);
  k_ = static_cast<int>(values_per_matrix(p));
  // Consecutive elements of a row-major tall matrix are a row of it; of a row-major wide one, a column of its
  // transpose.
  const bool rows_contiguous = row_major == tall;
  row_stride_ = rows_contiguous ? k_ : 1;
  col_stride_ = rows_contiguous ? 1 : long_side_;
  by_column_ = plan.method == Method::kJacobi;
  tile_rows_ = static_cast<int>(std::min<int64_t>(long_side_, kTileRows));
  tiles_ = static_cast<int>((long_side_ + tile_rows_ - 1) / tile_rows_);
  group_ = tiles_ >= kernels.lanes ? 1 : kernels.lanes;
  triangle_size_ = static_cast<size_t>(k_) * k_ * kernels.components;

  const size_t lanes = kernels.lanes;
  triangles_.reserve(triangle_size_ * tiles_ * group_);
  exponents_.reserve(static_cast<size_t>(group_) * k_);
  finite_.reserve(group_);
  packed_.reserve(static_cast<size_t>(tile_rows_) * k_ * kernels.components * lanes);
  packed_r_.reserve(triangle_size_ * lanes);
  packed_other_.reserve(triangle_size_ * lanes);
  packed_exponents_.reserve(k_ * lanes);
  scratch_.reserve(std::max(static_cast<size_t>(tile_rows_) * k_, 2 * static_cast<size_t>(k_) * k_) *
                   kernels.components * lanes);
}

// The exponents of a matrix, and whether it is finite, from the largest magnitude as an unsigned integer: which keeps
// the order of the numbers, puts infinities and NaN above them, and is the same in any order of the elements.
template <class T>
void TallReduction<T>::scan(const char* matrix, int l) {
  using Bits = typename FloatTraits<T>::Bits;
  constexpr Bits kMagnitude = ~Bits{0} >> 1;
  constexpr Bits kInfinity = ((Bits{1} << (sizeof(T) * 8 - 1 - FloatTraits<T>::kMantissaBits)) - 1)
                             << FloatTraits<T>::kMantissaBits;
  const int components = kernels_.components;
  Bits largest[kShapeLimits.max_values] = {};
  const auto element_bits = [&](int64_t number) { return load_number<Bits>(matrix + number * sizeof(T)) & kMagnitude; };
  if (col_stride_ == 1) {
    const int width = k_ * components;
    Bits wide[2 * kShapeLimits.max_values] = {};
    for (int64_t i = 0; i < long_side_; ++i) {
      for (int x = 0; x < width; ++x) wide[x] = std::max(wide[x], element_bits(i * width + x));
    }
    for (int x = 0; x < width; ++x) largest[x / components] = std::max(largest[x / components], wide[x]);
  } else {
    const int64_t height = long_side_ * components;
    for (int j = 0; j < k_; ++j) {
      Bits column = 0;
      for (int64_t x = 0; x < height; ++x) column = std::max(column, element_bits(j * height + x));
      largest[j] = column;
    }
  }
  const Bits all = *std::max_element(largest, largest + k_);
  finite_.data()[l] = all < kInfinity;
  for (int j = 0; j < k_; ++j) {
    exponents_.data()[l * k_ + j] =
        all < kInfinity ? static_cast<T>(exponent_of_bits<T>(by_column_ ? largest[j] : all)) : T(0);
  }
}

// Tile `tile` of matrix number l into one lane of packed_, and the exponents of its columns beside it.
template <class T>
void TallReduction<T>::load_tile(const char* matrix, int l, int tile, int lane) {
  const int components = kernels_.components, lanes = kernels_.lanes;
  const int64_t first = static_cast<int64_t>(tile) * tile_rows_;
  const int rows = static_cast<int>(std::min<int64_t>(tile_rows_, long_side_ - first));
  T* to = packed_.data() + lane;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < k_; ++j) {
      const char* from = matrix + ((first + i) * row_stride_ + j * col_stride_) * components * sizeof(T);
      for (int c = 0; c < components; ++c, to += lanes) *to = load_number<T>(from + c * sizeof(T));
    }
  }
  for (int x = (tile_rows_ - rows) * k_ * components; x > 0; --x, to += lanes) *to = T(0);
  for (int j = 0; j < k_; ++j) packed_exponents_.data()[j * lanes + lane] = exponents(l)[j];
}

// The triangles of all tiles of n matrices, a pack of tiles at a time. Lanes beyond the last tile hold what they held.
template <class T>
void TallReduction<T>::factorize_tiles(const char* const* matrices, int n) {
  const int lanes = kernels_.lanes, total = n * tiles_;
  std::fill_n(packed_.data(), static_cast<size_t>(tile_rows_) * k_ * kernels_.components * lanes, T(0));
  std::fill_n(packed_exponents_.data(), k_ * lanes, T(0));
  for (int first = 0; first < total; first += lanes) {
    const int used = std::min(lanes, total - first);
    for (int lane = 0; lane < used; ++lane) {
      const int l = (first + lane) / tiles_;
      load_tile(matrices[l], l, (first + lane) % tiles_, lane);
    }
    kernels_.tile({packed_.data(), tile_rows_, k_, packed_exponents_.data(), packed_r_.data(), scratch_.data()});
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
    kernels_.join({packed_r_.data(), packed_other_.data(), k_, scratch_.data()});
    for (int lane = 0; lane < used; ++lane) {
      deinterleave_one(packed_r_.data(), lanes, lane, triangle_size_, const_cast<char*>(tops[lane]));
    }
    used = 0;
  };
  for (int d = 1; d < tiles_; d *= 2) {
    for (int l = 0; l < n; ++l) {
      for (int t = 0; t + d < tiles_; t += 2 * d) {
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
  for (int l = 0; l < n; ++l) scan(matrices[l], l);
  factorize_tiles(matrices, n);
  join_tiles(n);
  for (int l = 0; l < n; ++l) {
    if (!finite_.data()[l]) tile_triangle(l, 0)[0] = FloatTraits<T>::nan();
  }
}

template class TallReduction<float>;
template class TallReduction<double>;

}  // namespace svdserve::host
