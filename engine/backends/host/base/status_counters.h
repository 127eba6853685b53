// Counts of matrices by their status: of one task, and of all threads of a call.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_

#include <array>
#include <atomic>

#include "engine/result.h"

namespace svdserve::host {

// The counts of one task. Threads that counted small matrices one by one in shared memory would wait for each other.
struct StatusCounts {
  std::array<int64_t, kMatrixStatuses> by_status{};

  void add(MatrixStatus status) { ++by_status[static_cast<size_t>(status)]; }
};

// Thread-safe. The report is right once those who count have ended.
struct StatusCounters {
  std::array<std::atomic<int64_t>, kMatrixStatuses> by_status{};

  void add(const StatusCounts& counts) {
    for (size_t i = 0; i < counts.by_status.size(); ++i) {
      if (counts.by_status[i] != 0) add(static_cast<MatrixStatus>(i), counts.by_status[i]);
    }
  }
  void add(MatrixStatus status, int64_t matrices) {
    by_status[static_cast<size_t>(status)].fetch_add(matrices, std::memory_order_relaxed);
  }
  ConvergenceReport report() const {
    return {by_status[0], by_status[1], by_status[2], by_status[3], by_status[4], by_status[5]};
  }
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_STATUS_COUNTERS_H_
