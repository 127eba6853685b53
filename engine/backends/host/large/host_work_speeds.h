// The host's speeds, for the progress of large matrices.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_WORK_SPEEDS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_WORK_SPEEDS_H_

#include "engine/algorithms/large/predicted_work.h"

namespace svdserve::host {

// On so many threads. The first call in a process times a product of matrices, a few milliseconds. Thread-safe.
large::WorkSpeeds host_work_speeds(int threads);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_WORK_SPEEDS_H_
