// bidiagonal_values.h for few matrices, one after the other.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_LONE_BIDIAGONALS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_LONE_BIDIAGONALS_H_

#include "engine/backends/host/values/bidiagonal_values.h"

namespace svdserve::host {

// More of them take less time as a pack.
inline constexpr int kMostLone = 1;

void find_lone_values(const Bidiagonals<float>& b, double* scratch);
void find_lone_values(const Bidiagonals<double>& b, double* scratch);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_VALUES_LONE_BIDIAGONALS_H_
