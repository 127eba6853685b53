// Operands of 16-bit numbers, and the same as floats by arithmetic of their own: field by field in long double.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_NARROW_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_NARROW_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/problem.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// A sign, `exponent_bits` of exponent and 15 - exponent_bits of significand, as IEEE 754-2019, section 3.4, reads them.
inline long double number_of_fields(uint16_t bits, int exponent_bits) {
  const int digits = 15 - exponent_bits, largest = (1 << exponent_bits) - 1, bias = largest / 2;
  const int exponent = bits >> digits & largest, significand = bits & ((1 << digits) - 1);
  long double size = 0;
  if (exponent == largest) {
    size = significand == 0 ? std::numeric_limits<long double>::infinity() : std::nanl("");
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<long double>(significand), 1 - bias - digits);
  } else {
    size = std::ldexp(static_cast<long double>(significand + (1 << digits)), exponent - bias - digits);
  }
  return bits >> 15 != 0 ? -size : size;
}

// The number that 16 bits of an operand stand for.
inline long double narrow_number(uint16_t bits, const Problem& problem) {
  if (problem.storage == Storage::kF16) return number_of_fields(bits, 5);
  if (problem.storage == Storage::kBF16) return number_of_fields(bits, 8);
  const int integer = bits < 0x8000 ? bits : static_cast<int>(bits) - 0x10000;
  return std::ldexp(static_cast<long double>(integer), problem.exponent);
}

// The operands of widened(problem).
inline std::vector<std::byte> widened_bytes(const std::vector<std::byte>& narrow, const Problem& problem) {
  std::vector<std::byte> out(2 * narrow.size());
  for (size_t i = 0; i < narrow.size() / 2; ++i) {
    uint16_t bits;
    std::memcpy(&bits, narrow.data() + 2 * i, sizeof(bits));
    const auto number = static_cast<float>(narrow_number(bits, problem));
    std::memcpy(out.data() + 4 * i, &number, sizeof(number));
  }
  return out;
}

// `count` matrices, most of numbers near one, some of any bits, which may be infinite or NaN; zeros and denormals
// among them. The problem's storage is narrow.
inline std::vector<std::byte> narrow_batch(const Problem& problem, int64_t count, Random& random) {
  const size_t size = stored_bytes(problem);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * size);
  for (int64_t m = 0; m < count; ++m) {
    const bool any = random.integer(0, 7) == 0, tiny = random.integer(0, 7) == 0;
    for (size_t i = 0; i < size / 2; ++i) {
      auto number = static_cast<uint16_t>(random.bits());
      if (problem.storage != Storage::kI16 && !any) {
        const int digits = problem.storage == Storage::kF16 ? 10 : 7;
        const uint16_t bias = problem.storage == Storage::kF16 ? 15 : 127;
        const auto exponent = static_cast<uint16_t>(tiny ? random.integer(0, 2) : bias - random.integer(0, 4));
        number = static_cast<uint16_t>((number & 0x8000) | exponent << digits | (number & ((1 << digits) - 1)));
      }
      if (random.integer(0, 40) == 0) number = static_cast<uint16_t>(random.coin() ? 0 : 0x8000);
      std::memcpy(bytes.data() + static_cast<size_t>(m) * size + 2 * i, &number, sizeof(number));
    }
  }
  return bytes;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_NARROW_H_
