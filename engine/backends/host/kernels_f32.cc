// Lane kernels for f32, for every instruction set.
#include "engine/backends/host/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/kernels_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/kernel_set.h"

#if HWY_NATIVE_FMA
SVD_KERNEL_BEGIN
const host::KernelTables<float>* f32_table() { return make_kernels<RealElement, float>(); }
SVD_KERNEL_END
#endif

#if HWY_ONCE
#include "engine/backends/host/pick_kernels.h"
namespace svdserve::scalar {
const host::KernelTables<float>* f32_table();
}
namespace svdserve::host {
const KernelTables<float>* f32_kernels(Simd simd) { SVD_PICK_KERNELS(simd, f32_table); }
}  // namespace svdserve::host
#endif
