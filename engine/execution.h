// The operands, the options and the outcome of a batch's execution: the vocabulary that the facade shares with the back
// ends.
#ifndef SVDSERVE_ENGINE_EXECUTION_H_
#define SVDSERVE_ENGINE_EXECUTION_H_

#include <cstdint>

#include "engine/outputs.h"
#include "engine/result.h"

namespace svdserve {

// A run of matrices in host memory, such as one request's. The caller owns all of it and keeps it alive until execute()
// returns.
struct HostSegment {
  const void* matrices =
      nullptr;           // [in] count matrices of plan.problem as they are stored, without gaps; any alignment
  int64_t count = 0;     // >= 0; a multiple of plan.outputs.group
  PlanePointers planes;  // [out] those of plan.outputs, without gaps; any alignment
  MatrixStatus* statuses = nullptr;  // [out] count statuses, or null
  // [in] where plan.starting_vectors: for each matrix V_0, rows x cols, complex, in the matrices' order; any alignment
  const void* starting_vectors = nullptr;
};

// Which instructions the lane kernels use. A choice of speed alone: the bits are the same.
enum class Simd : uint8_t { kBest, kScalar, kAvx2, kAvx512, kNeon };

constexpr const char* name(Simd s) {
  switch (s) {
    case Simd::kBest:
      return "best";
    case Simd::kScalar:
      return "scalar";
    case Simd::kAvx2:
      return "avx2";
    case Simd::kAvx512:
      return "avx512";
    case Simd::kNeon:
      return "neon";
  }
  return "?";
}

struct EngineOptions {
  int threads = 0;          // 0: every core the process may use
  Simd simd = Simd::kBest;  // unsupported: the engine falls back to kScalar; see SvdEngine::simd()
};

// The outcome of a batch as a whole.
struct ExecutionOutcome {
  bool completed = false;  // false: cancelled, and an unspecified part of the outputs is written
  ConvergenceReport report;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_EXECUTION_H_
