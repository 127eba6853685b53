// The runs that a device makes before the first request, so that its cost table knows the commonest shapes.
#ifndef SVDSERVE_SERVER_DEVICE_COST_CALIBRATION_H_
#define SVDSERVE_SERVER_DEVICE_COST_CALIBRATION_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "engine/planner.h"
#include "engine/svd_engine.h"

namespace svdserve::server {

// Has a device compute one segment, and returns how long it took. None: it failed, or time is up: run no more.
using CalibrationRun = absl::FunctionRef<std::optional<absl::Duration>(const Plan& plan, const HostSegment& segment)>;

// Calls `run` with random matrices of the commonest shapes, few and many, each several times. The first run of each
// finds caches cold and kernels not yet loaded. As far as the runs before it tell, no run takes more than a few
// milliseconds. Needs 12 MiB while it works; without them it does nothing.
void calibrate(CalibrationRun run);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_CALIBRATION_H_
