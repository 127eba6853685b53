#include "engine/backends/host/values/lone_bidiagonals.h"

#include "engine/backends/host/values/pack_of_bidiagonals.h"

namespace svdserve::host {

void find_lone_values(const Bidiagonals<float>& b, double* scratch) {
  scalar::find_values<scalar::NarrowLane<double>>(b, scratch);
}
void find_lone_values(const Bidiagonals<double>& b, double* scratch) {
  scalar::find_values<scalar::NarrowLane<double>>(b, scratch);
}

}  // namespace svdserve::host
