// The kernels of k > 32 for c64.
#include "engine/backends/cuda/block_kernels.h"

namespace svdserve::cuda {
template struct BlockLaunch<Complex<float>>;
}  // namespace svdserve::cuda
