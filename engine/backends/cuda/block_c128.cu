// The kernels of k > 32 for c128.
#include "engine/backends/cuda/block_kernels.h"

namespace svdserve::cuda {
template struct BlockLaunch<Complex<double>>;
}  // namespace svdserve::cuda
