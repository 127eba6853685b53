#include "engine/backends/host/tall/tall_shape.h"

#include <algorithm>
#include <bit>
#include <type_traits>

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

template <class T>
typename FloatTraits<T>::Bits magnitude(const char* from, int64_t number) {
  using Bits = typename FloatTraits<T>::Bits;
  return load_number<Bits>(from + number * static_cast<int64_t>(sizeof(T))) & (~Bits{0} >> 1);
}

// Signed integers: SSE2 has no comparison of unsigned ones.
template <class T>
typename FloatTraits<T>::Bits largest_magnitude(const char* from, int64_t n) {
  using Bits = typename FloatTraits<T>::Bits;
  using Signed = std::make_signed_t<Bits>;
  constexpr int kTogether = 32 / sizeof(T);
  Signed largest[kTogether] = {};
  int64_t x = 0;
  for (; x + kTogether <= n; x += kTogether) {
    for (int i = 0; i < kTogether; ++i) {
      largest[i] = std::max(largest[i], static_cast<Signed>(magnitude<T>(from, x + i)));
    }
  }
  for (; x < n; ++x) largest[0] = std::max(largest[0], static_cast<Signed>(magnitude<T>(from, x)));
  return static_cast<Bits>(*std::max_element(largest, largest + kTogether));
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
  constexpr Bits kInfinity = ((Bits{1} << (sizeof(T) * 8 - 1 - FloatTraits<T>::kMantissaBits)) - 1)
                             << FloatTraits<T>::kMantissaBits;
  Bits largest[kPackLimit] = {};
  const int64_t height = long_side * components, numbers = height * k;
  if (!by_column) {
    std::fill_n(largest, k, largest_magnitude<T>(matrix, numbers));
  } else if (rows_contiguous()) {
    const int width = k * components;
    Bits wide[2 * kPackLimit] = {};
    for (int64_t row = 0; row < numbers; row += width) {
      for (int x = 0; x < width; ++x) wide[x] = std::max(wide[x], magnitude<T>(matrix, row + x));
    }
    for (int x = 0; x < width; ++x) largest[x / components] = std::max(largest[x / components], wide[x]);
  } else {
    for (int j = 0; j < k; ++j) {
      largest[j] = largest_magnitude<T>(matrix + j * height * static_cast<int64_t>(sizeof(T)), height);
    }
  }
  const bool finite = *std::max_element(largest, largest + k) < kInfinity;
  for (int j = 0; j < k; ++j) exponents[j] = finite ? static_cast<T>(exponent_of_bits<T>(largest[j])) : T(0);
  return finite;
}

template bool TallShape::scan(const char*, float*) const;
template bool TallShape::scan(const char*, double*) const;

}  // namespace svdserve::host
