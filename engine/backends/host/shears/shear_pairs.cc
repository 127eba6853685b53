#include "engine/backends/host/shears/shear_pairs.h"

#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/shears/shear_pairs.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/algorithms/general/shear_block.h"

SVD_KERNEL_BEGIN
ShearBlockCounts shear_sweep_of_target(const ShearBlock<double>& block, double least, bool shears) {
  ShearBlockSteps<NarrowLane<double>> steps(block);
  return shears ? steps.sweep<true>(least) : steps.sweep<false>(least);
}
SVD_KERNEL_END

#if HWY_ONCE
namespace svdserve {
HWY_EXPORT(shear_sweep_of_target);
namespace host {
ShearBlockCounts shear_sweep(const ShearBlock<double>& block, double least, ShearKind kind) {
  return HWY_DYNAMIC_DISPATCH(shear_sweep_of_target)(block, least, kind == ShearKind::kShearsAndRotations);
}
}  // namespace host
}  // namespace svdserve
#endif
