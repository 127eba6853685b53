// The kernels for c64.
#include "engine/backends/cuda/launch.h"

namespace svdserve::cuda {
TypeLauncher c64_launcher() { return type_launcher<Complex<float>>(); }
}  // namespace svdserve::cuda
