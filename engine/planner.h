// The planner: which method and which path for which problem, and every threshold of shape, in one place. A plan is a
// function of the request alone, never of the machine, the batch or the load: that is what lets results be reproduced.
#ifndef SVDSERVE_ENGINE_PLANNER_H_
#define SVDSERVE_ENGINE_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/options.h"
#include "engine/outputs.h"
#include "engine/problem.h"

namespace svdserve {

// Limits of shape of a batch; larger matrices are factors (engine/large_factor.h).
struct ShapeLimits {
  int64_t max_values;     // largest min(m, n)
  int64_t max_dimension;  // largest max(m, n)
};
inline constexpr ShapeLimits kShapeLimits{128, 16384};
// Largest min(m, n) of BIDIAGONAL and BISECTION, and of the kernels whose bits are the same on CPU and GPU.
inline constexpr int64_t kLargestReproducible = 32;

// k up to here is compiled for its size; larger k share one kernel of run-time size.
inline constexpr int kLargestFixedSize = 8;
// Rows of one tile of the tall-skinny QR: part of the arithmetic, so of the bits. A tile has at least k rows.
inline constexpr int kTileRows = 64, kTallTileRows = 256;
constexpr int tile_rows_for(int64_t k) { return k <= kLargestReproducible ? kTileRows : kTallTileRows; }
// Sweeps after which JACOBI gives a matrix up; the largest that can be asked for.
inline constexpr int32_t kDefaultMaxSweeps = 30;
inline constexpr int32_t kLargestMaxSweeps = 1000;

// A checked problem with everything decided. Only make_plan() makes one.
struct Plan {
  Problem problem;
  Method method;       // never kAuto
  double tolerance;    // resolved: the method's default, or the caller's, clamped to what the dtype can resolve
  int32_t max_sweeps;  // resolved
  Outputs outputs;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// What is wrong with a request, for the caller's eyes. `field` is rows, cols, or of Options; "mimo.snr_db".
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

// Bytes of a plane of `count` matrices, a multiple of the plan's group.
inline size_t plane_bytes(const Plan& plan, Plane plane, int64_t count) {
  return plane_bytes(plan.problem, plan.outputs, plane) * static_cast<size_t>(count / plan.outputs.group);
}
// Of all planes together.
inline size_t result_bytes(const Plan& plan, int64_t count) {
  size_t bytes = 0;
  for (int i = 0; i < kPlanes; ++i) bytes += plane_bytes(plan, static_cast<Plane>(i), count);
  return bytes;
}
// The planes of `count` matrices one after the other, from `first` on.
inline PlanePointers planes_in(const Plan& plan, void* first, int64_t count) {
  PlanePointers planes;
  char* at = static_cast<char*>(first);
  for (int i = 0; i < kPlanes; ++i) {
    const size_t bytes = plane_bytes(plan, static_cast<Plane>(i), count);
    if (bytes > 0) planes[static_cast<Plane>(i)] = at;
    at += bytes;
  }
  return planes;
}
// The same planes from matrix `first` on, a multiple of the plan's group.
inline PlanePointers planes_from(const Plan& plan, const PlanePointers& planes, int64_t first) {
  PlanePointers from = planes;
  for (int i = 0; i < kPlanes; ++i) {
    const Plane plane = static_cast<Plane>(i);
    if (from[plane] != nullptr) from[plane] = static_cast<char*>(from[plane]) + plane_bytes(plan, plane, first);
  }
  return from;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_PLANNER_H_
