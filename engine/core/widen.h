// Narrow numbers as floats, exactly: binary16, the upper half of a binary32, and 16-bit integers times a power of two.
// Every one of them is a float, so nothing is rounded, infinities and the signs of zeros stay, and a NaN stays one.
#ifndef SVDSERVE_ENGINE_CORE_WIDEN_H_
#define SVDSERVE_ENGINE_CORE_WIDEN_H_

#include <cstdint>
#include <cstring>

#include "engine/core/kernel_namespace.h"

namespace svdserve {

SVD_HD float float_of_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
SVD_HD uint32_t bits_of_float(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// Each has operator()(bits), the float of 16 bits.

// All cases are computed and one is selected by masks, of which a CPU's compiler makes vectors.
struct WidenF16 {
  SVD_HD float operator()(uint16_t half) const {
    constexpr uint32_t kRebias = (127 - 15) << 23;
    const uint32_t sign = (half & 0x8000u) << 16;
    const int32_t magnitude = half & 0x7fff;
    const auto is_denormal = static_cast<uint32_t>((magnitude - 0x0400) >> 31);
    const auto is_special = static_cast<uint32_t>((0x7bff - magnitude) >> 31);  // infinite or NaN
    const uint32_t denormal = bits_of_float(static_cast<float>(magnitude) * 0x1p-24f);
    const uint32_t other = (static_cast<uint32_t>(magnitude) << 13) + kRebias + (kRebias & is_special);
    return float_of_bits(sign | (denormal & is_denormal) | (other & ~is_denormal));
  }
};

struct WidenBF16 {
  SVD_HD float operator()(uint16_t upper) const { return float_of_bits(static_cast<uint32_t>(upper) << 16); }
};

// integer * 2^exponent, for exponents by which every product is zero or a normal float: -126 .. 112.
struct WidenI16 {
  float scale;
  SVD_HD explicit WidenI16(int32_t exponent) : scale(float_of_bits(static_cast<uint32_t>(exponent + 127) << 23)) {}
  SVD_HD float operator()(uint16_t integer) const { return static_cast<float>(static_cast<int16_t>(integer)) * scale; }
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_CORE_WIDEN_H_
