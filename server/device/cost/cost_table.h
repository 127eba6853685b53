// How long work takes on one device, learned from runs. Inline execution, the choice of a device, the split of large
// requests and admission ask it; no result depends on it.
//
// A run is filed under its shape and the octave of its number of matrices. Shape is rows, cols, dtype, method, how fine
// a tolerance, how many sweeps, and the outputs besides values. Each such cell keeps its last 32 runs; their median is
// the typical time, their 10th percentile the optimistic one. Between octaves the time is interpolated. Below them it
// shrinks with the number of matrices towards the least time that anything took here. That stands for the cost of a
// batch as such. A matrix takes half as long again in a batch as in a smaller one, at most. Slow runs of large batches
// would else never be corrected, since batches shrink until none is as large again (decisions/0001-cut-rules.md). The
// typical time of fewer matrices than are computed at once is that of as many. A shape that never ran, or not with nearly
// as many matrices, borrows the runs of the one that is nearest by work (work_estimate.h). Many small matrices, or few,
// tell more of each other across shapes than of themselves across a factor of a thousand. A device that never ran
// anything is taken for one core at 2 flops a nanosecond.
//
// Thread-safe. Its size is bounded, whatever clients send.
#ifndef SVDSERVE_SERVER_DEVICE_COST_COST_TABLE_H_
#define SVDSERVE_SERVER_DEVICE_COST_COST_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "engine/planner.h"
#include "server/base/mutex.h"

namespace svdserve::server {

struct CostEstimate {
  absl::Duration typical;
  // Zero for a shape that never ran: who refuses a request for what it would take must have seen its like.
  absl::Duration optimistic;
};

class CostTable {
 public:
  // method: by which the device computes a plan, &Plan::method or &Plan::host_method. at_once: DeviceInfo::at_once.
  explicit CostTable(Method Plan::*method = &Plan::method, int64_t at_once = 1) : method_(method), at_once_(at_once) {}

  // The time of `count` >= 1 matrices on an otherwise idle device.
  CostEstimate predict(const Plan& plan, int64_t count) const;

  // A batch of `count` matrices took so long of the device's time. Only clean runs: completed, neither cancelled nor
  // failed. A run that took no time at all was not measured and is ignored, as is a batch of nothing.
  void observe(const Plan& plan, int64_t count, absl::Duration took);

 private:
  static constexpr size_t kRuns = 32;        // of a cell
  static constexpr size_t kMaxShapes = 256;  // beyond, the one that ran longest ago is forgotten
  static constexpr double kSlower = 1.5;     // caches, and multiprocessors left idle at the end, account for less
  enum Quantile { kTypical, kOptimistic };
  using Quantiles = std::array<double, 2>;  // seconds

  struct Key {
    int64_t rows, cols;
    DType dtype;
    Storage storage;
    Decomposition decomposition;
    Method method;
    int precision;  // eighths of the tolerance's exponent, for methods that have one
    int sweeps;     // octave of the most that there may be, for the method that has them
    int64_t left_columns, right_columns;
    int32_t answers;  // -1: none; else the number of SNRs
    bool certificate, gradients, condition;
    bool starting_vectors;  // fewer sweeps
    friend bool operator==(const Key&, const Key&) = default;
    template <class H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.rows, k.cols, static_cast<int>(k.dtype), static_cast<int>(k.storage),
                        static_cast<int>(k.decomposition), static_cast<int>(k.method), k.precision, k.sweeps,
                        k.left_columns, k.right_columns, k.answers, k.certificate, k.gradients, k.condition,
                        k.starting_vectors);
    }
  };
  struct Cell {
    int octave = 0;
    uint32_t runs = 0;  // in all; the last kRuns are kept, run i at i % kRuns
    std::array<float, kRuns> seconds{};
    std::array<float, kRuns> counts{};
    double mean_count = 0;
    Quantiles time{};
  };
  struct Shape {
    double flops = 0, bytes = 0;  // of one matrix
    Method method{};
    uint64_t last_run = 0;    // on the clock of all runs
    std::vector<Cell> cells;  // ascending by octave, never empty

    double reach() const { return 2 * cells.back().mean_count; }
  };

  Key key_of(const Plan& plan) const;
  Shape* find_or_make(const Plan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The typical time by the nearest shape's runs. At least one shape exists.
  double borrow(const Plan& plan, double count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double interpolate(const Shape& shape, double count, Quantile quantile) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `typical`, or less where smaller batches of the shape take less than 1 / kSlower of that for a matrix.
  static double bounded(const Shape& shape, double count, double typical);

  Method Plan::*const method_;
  const int64_t at_once_;
  mutable Mutex mu_;
  absl::flat_hash_map<Key, Shape> shapes_ ABSL_GUARDED_BY(mu_);
  uint64_t runs_ ABSL_GUARDED_BY(mu_) = 0;
  Quantiles least_ ABSL_GUARDED_BY(mu_){std::numeric_limits<double>::infinity(),
                                        std::numeric_limits<double>::infinity()};
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_COST_TABLE_H_
