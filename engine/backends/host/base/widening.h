// Operands of narrow numbers as the host's kernels read them.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_WIDENING_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_WIDENING_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/core/widen.h"
#include "engine/problem.h"

namespace svdserve::host {

template <class Widen>
void widen_numbers(const char* from, size_t numbers, float* to, Widen widen) {
  for (size_t i = 0; i < numbers; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = widen(bits);
  }
}

// Converts one matrix of `problem`, is_narrow(problem), from any alignment.
inline void widen_matrix(const Problem& problem, const char* from, float* to) {
  const size_t numbers = matrix_bytes(problem) / sizeof(float);
  switch (problem.storage) {
    case Storage::kNative:
      return;
    case Storage::kF16:
      return widen_numbers(from, numbers, to, WidenF16());
    case Storage::kBF16:
      return widen_numbers(from, numbers, to, WidenBF16());
    case Storage::kI16:
      return widen_numbers(from, numbers, to, WidenI16(problem.exponent));
  }
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_WIDENING_H_
