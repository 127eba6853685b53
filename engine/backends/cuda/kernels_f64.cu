// The kernels for f64.
#include "engine/backends/cuda/launch.h"

namespace svdserve::cuda {
TypeLauncher f64_launcher() { return type_launcher<Real<double>>(); }
}  // namespace svdserve::cuda
