// Counts that the threads of one call share.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_

#include <array>
#include <atomic>

#include "engine/result.h"

namespace svdserve::host {

// Thread-safe. The report is right once those who count have ended.
struct StatusCounters {
  std::array<std::atomic<int64_t>, kMatrixStatuses> by_status{};

  void add(MatrixStatus status, int64_t matrices) {
    by_status[static_cast<size_t>(status)].fetch_add(matrices, std::memory_order_relaxed);
  }
  ConvergenceReport report() const {
    return {by_status[0], by_status[1], by_status[2], by_status[3], by_status[4], by_status[5]};
  }
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_
