// The kernels of k > 32 for f64.
#include "engine/backends/cuda/block_kernels.h"

namespace svdserve::cuda {
template struct BlockLaunch<Real<double>>;
}  // namespace svdserve::cuda
