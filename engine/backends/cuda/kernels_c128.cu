// The kernels for c128.
#include "engine/backends/cuda/launch.h"

namespace svdserve::cuda {
TypeLauncher c128_launcher() { return type_launcher<Complex<double>>(); }
}  // namespace svdserve::cuda
