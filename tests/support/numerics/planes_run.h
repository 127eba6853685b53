// One call of the engine for all the planes of a plan, as one segment or as many.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_PLANES_RUN_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_PLANES_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "engine/svd_engine.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

struct PlanesResult {
  std::array<std::vector<std::byte>, kPlanes> planes;
  std::vector<MatrixStatus> statuses;

  // `count` numbers of a plane from number `first` on.
  std::vector<double> numbers(DType dtype, Plane plane, int64_t first, int64_t count) const {
    const auto& bytes = planes[static_cast<size_t>(plane)];
    const size_t at = static_cast<size_t>(first) * value_bytes(dtype);
    if (at + static_cast<size_t>(count) * value_bytes(dtype) > bytes.size()) throw std::out_of_range("of a plane");
    return load_values(dtype, bytes.data() + at, count);
  }
  friend bool operator==(const PlanesResult&, const PlanesResult&) = default;
};

// The matrices in segments of `sizes` groups each, which add up to the batch. Outputs are poisoned before. starts: V_0 of
// each matrix, for a plan that has starting vectors.
inline PlanesResult run_planes(const SvdEngine& engine, const Plan& plan, const std::byte* matrices,
                               const std::vector<int64_t>& sizes, const std::byte* starts = nullptr) {
  PlanesResult result;
  int64_t groups = 0;
  for (const int64_t size : sizes) groups += size;
  const int64_t group = plan.outputs.group;
  result.statuses.resize(static_cast<size_t>(groups * group), MatrixStatus{99});
  PlanePointers all;
  for (int p = 0; p < kPlanes; ++p) {
    auto& bytes = result.planes[static_cast<size_t>(p)];
    bytes.assign(plane_bytes(plan, static_cast<Plane>(p), groups * group), std::byte{0xa5});
    if (!bytes.empty()) all[static_cast<Plane>(p)] = bytes.data();
  }
  std::vector<HostSegment> segments;
  int64_t first = 0;
  for (const int64_t size : sizes) {
    segments.push_back({matrices + static_cast<size_t>(first) * stored_bytes(plan.problem), size * group,
                        planes_from(plan, all, first), result.statuses.data() + first,
                        starts + static_cast<size_t>(first) * starting_bytes(plan)});
    first += size * group;
  }
  if (!engine.execute(plan, segments).completed) throw std::logic_error("the call did not complete");
  return result;
}

inline PlanesResult run_planes(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count,
                               const std::byte* starts = nullptr) {
  return run_planes(engine, plan, matrices, std::vector<int64_t>{count / plan.outputs.group}, starts);
}

// Segments of random sizes, empty ones among them.
inline PlanesResult run_planes_in_segments(const SvdEngine& engine, const Plan& plan, const std::byte* matrices,
                                           int64_t count, Random& random) {
  std::vector<int64_t> sizes;
  for (int64_t left = count / plan.outputs.group; left > 0; left -= sizes.back()) {
    sizes.push_back(std::min<int64_t>(left, random.integer(0, random.coin() ? 3 : 40)));
  }
  return run_planes(engine, plan, matrices, sizes);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_PLANES_RUN_H_
