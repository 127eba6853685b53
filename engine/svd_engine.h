// The engine's facade: plan(problem) -> execute(batch). No gRPC, no protobuf, no Prometheus below this line.
#ifndef SVDSERVE_ENGINE_SVD_ENGINE_H_
#define SVDSERVE_ENGINE_SVD_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "engine/planner.h"
#include "engine/result.h"

namespace svdserve {

// A run of matrices in host memory, such as one request's. The caller owns all of it and keeps it alive until execute()
// returns.
struct HostSegment {
  const void* matrices = nullptr;     // [in] count matrices of plan.problem, without gaps; any alignment
  int64_t count = 0;                  // >= 0
  void* values = nullptr;             // [out] count x k values, descending for each matrix; any alignment
  MatrixStatus* statuses = nullptr;   // [out] count statuses, or null
};

// Which instructions the lane kernels use. A choice of speed alone: the bits are the same.
enum class Simd : uint8_t { kBest, kScalar, kAvx2, kAvx512, kNeon };

constexpr const char* name(Simd s) {
  switch (s) {
    case Simd::kBest: return "best";
    case Simd::kScalar: return "scalar";
    case Simd::kAvx2: return "avx2";
    case Simd::kAvx512: return "avx512";
    case Simd::kNeon: return "neon";
  }
  return "?";
}

// True where this build has the instructions and this processor runs them.
bool is_supported(Simd simd);

struct EngineOptions {
  int threads = 0;            // 0: every core the process may use
  Simd simd = Simd::kBest;    // unsupported: the engine falls back to kScalar; see SvdEngine::simd()
};

// A host device: an arena of threads with the kernels for its processor.
// Thread safety: execute() may be called from any number of threads at once; the calls share the arena.
class SvdEngine {
 public:
  explicit SvdEngine(const EngineOptions& options = {});
  ~SvdEngine();
  SvdEngine(const SvdEngine&) = delete;
  SvdEngine& operator=(const SvdEngine&) = delete;

  int threads() const;
  Simd simd() const;  // resolved, never kBest

  // Computes the singular values of every matrix of every segment; blocks until they are written. Matrices of different
  // segments share packs, so many small segments cost no more than one large one.
  // `cancel`, if given, is polled between small groups of matrices: once it is true the call returns soon, with an
  // unspecified part of the outputs written and `completed` false.
  // The floating-point environment of the calling thread is restored. Never throws for bad numbers; std::bad_alloc when
  // there is no scratch memory.
  struct Outcome {
    bool completed = false;
    ConvergenceReport report;
  };
  Outcome execute(const Plan& plan, absl::Span<const HostSegment> segments,
                  const std::atomic<bool>* cancel = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_SVD_ENGINE_H_
