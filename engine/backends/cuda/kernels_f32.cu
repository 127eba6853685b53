// The kernels for f32.
#include "engine/backends/cuda/launch.h"

namespace svdserve::cuda {
TypeLauncher f32_launcher() { return type_launcher<Real<float>>(); }
}  // namespace svdserve::cuda
