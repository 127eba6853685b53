// The kernels of k > 32 for f32.
#include "engine/backends/cuda/block_kernels.h"

namespace svdserve::cuda {
template struct BlockLaunch<Real<float>>;
}  // namespace svdserve::cuda
