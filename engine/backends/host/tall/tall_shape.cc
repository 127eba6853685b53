#include "engine/backends/host/tall/tall_shape.h"

#include <algorithm>
#include <bit>

#include "engine/backends/host/packs/packing.h"
#include "engine/core/float_traits.h"
#include "engine/planner.h"

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

TallShape::TallShape(const Plan& plan, int element_components)
    : long_side(std::max(plan.problem.rows, plan.problem.cols)),
      k(static_cast<int>(values_per_matrix(plan.problem))),
      components(element_components),
      by_column(plan.host_method == Method::kJacobi),
      tile_rows(static_cast<int>(std::min<int64_t>(long_side, tile_rows_for(values_per_matrix(plan.problem))))),
      tiles(static_cast<int>((long_side + tile_rows - 1) / tile_rows)) {
  // Consecutive elements of a row-major tall matrix are a row of it; of a row-major wide one, a column of its
  // transpose.
  const bool row_major = plan.problem.order == Order::kRowMajor, tall = plan.problem.rows >= plan.problem.cols;
  const bool rows_contiguous = row_major == tall;
  row_stride = rows_contiguous ? k : 1;
  col_stride = rows_contiguous ? 1 : long_side;
}

int TallShape::rows_of(int tile) const {
  return static_cast<int>(std::min<int64_t>(tile_rows, long_side - static_cast<int64_t>(tile) * tile_rows));
}

// The exponents of a matrix, and whether it is finite, from the largest magnitude as an unsigned integer. That integer
// keeps the order of the numbers, puts infinities and NaN above them, and is the same in any order of the elements.
template <class T>
bool TallShape::scan(const char* matrix, T* exponents) const {
  using Bits = typename FloatTraits<T>::Bits;
  constexpr Bits kMagnitude = ~Bits{0} >> 1;
  constexpr Bits kInfinity = ((Bits{1} << (sizeof(T) * 8 - 1 - FloatTraits<T>::kMantissaBits)) - 1)
                             << FloatTraits<T>::kMantissaBits;
  Bits largest[kPackLimit] = {};
  const auto element_bits = [&](int64_t number) { return load_number<Bits>(matrix + number * sizeof(T)) & kMagnitude; };
  if (col_stride == 1) {
    const int width = k * components;
    Bits wide[2 * kPackLimit] = {};
    for (int64_t i = 0; i < long_side; ++i) {
      for (int x = 0; x < width; ++x) wide[x] = std::max(wide[x], element_bits(i * width + x));
    }
    for (int x = 0; x < width; ++x) largest[x / components] = std::max(largest[x / components], wide[x]);
  } else {
    const int64_t height = long_side * components;
    for (int j = 0; j < k; ++j) {
      Bits column = 0;
      for (int64_t x = 0; x < height; ++x) column = std::max(column, element_bits(j * height + x));
      largest[j] = column;
    }
  }
  const Bits all = *std::max_element(largest, largest + k);
  const bool finite = all < kInfinity;
  for (int j = 0; j < k; ++j) {
    exponents[j] = finite ? static_cast<T>(exponent_of_bits<T>(by_column ? largest[j] : all)) : T(0);
  }
  return finite;
}

template bool TallShape::scan(const char*, float*) const;
template bool TallShape::scan(const char*, double*) const;

}  // namespace svdserve::host
