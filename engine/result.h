// The outcome of a batch. Values only.
#ifndef SVDSERVE_ENGINE_RESULT_H_
#define SVDSERVE_ENGINE_RESULT_H_

#include <cstdint>

namespace svdserve {

// The outcome of one matrix; everything but kOk leaves the other matrices of the batch untouched.
enum class MatrixStatus : uint8_t {
  kOk = 0,
  kNonFinite = 1,     // an element is infinite or NaN: every value is NaN
  kNotConverged = 2,  // the iteration limit was reached: the values are the best known
  kOutOfRange = 3,    // a value is too large: +inf, or an eigenvalue is -inf or has an infinite part; others are right
  kByQr = 4,          // JACOBI of a general matrix missed its bound: the results are QR's, and right
  // With Options::condition: defective but for a small change (general/eigenvalue_conditions.h); all is right.
  kNearDefective = 5,
  kLast = kNearDefective,
};

inline constexpr int kMatrixStatuses = static_cast<int>(MatrixStatus::kLast) + 1;

// How many matrices of a batch ended in each status.
struct ConvergenceReport {
  int64_t ok = 0;
  int64_t non_finite = 0;
  int64_t not_converged = 0;
  int64_t out_of_range = 0;
  int64_t by_qr = 0;
  int64_t near_defective = 0;

  int64_t total() const { return ok + non_finite + not_converged + out_of_range + by_qr + near_defective; }
  friend bool operator==(const ConvergenceReport&, const ConvergenceReport&) = default;
};

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_RESULT_H_
