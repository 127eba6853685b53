// The planner: which method and which path for which problem, and every threshold of shape, in one place. A plan is a
// function of the request alone, never of the machine, the batch or the load: that is what lets results be reproduced.
#ifndef SVDSERVE_ENGINE_PLANNER_H_
#define SVDSERVE_ENGINE_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/options.h"
#include "engine/problem.h"

namespace svdserve {

// Limits of shape of this version.
struct ShapeLimits {
  int64_t max_values;     // largest min(m, n)
  int64_t max_dimension;  // largest max(m, n)
};
inline constexpr ShapeLimits kShapeLimits{32, 16384};

// k up to here is compiled for its size; larger k share one kernel of run-time size.
inline constexpr int kLargestFixedSize = 8;
// Rows of one tile of the tall-skinny QR: part of the arithmetic, so of the bits.
inline constexpr int kTileRows = 64;
// Sweeps after which JACOBI gives a matrix up; the largest that can be asked for.
inline constexpr int32_t kDefaultMaxSweeps = 30;
inline constexpr int32_t kLargestMaxSweeps = 1000;

// A checked problem with everything decided. Only make_plan() makes one.
struct Plan {
  Problem problem;
  Method method;       // never kAuto
  double tolerance;    // resolved: the method's default, or the caller's, clamped to what the dtype can resolve
  int32_t max_sweeps;  // resolved
  friend bool operator==(const Plan&, const Plan&) = default;
};

// What is wrong with a request, for the caller's eyes. `field` is rows, cols, method, tolerance or max_sweeps.
struct PlanError {
  std::string field;
  std::string message;
};

// Checks `problem` and `options` and resolves AUTO and the defaults. Exactly one of the two is set.
struct PlanOrError {
  std::optional<Plan> plan;
  PlanError error;
};
PlanOrError make_plan(const Problem& problem, const Options& options);

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_PLANNER_H_
