// Lane kernels for c128, for every instruction set.
#include "engine/backends/host/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/kernels_c128.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/kernel_set.h"

#if HWY_NATIVE_FMA
SVD_KERNEL_BEGIN
const host::KernelTables<double>* c128_table() { return make_kernels<ComplexElement, double>(); }
SVD_KERNEL_END
#endif

#if HWY_ONCE
#include "engine/backends/host/pick_kernels.h"
namespace svdserve::scalar {
const host::KernelTables<double>* c128_table();
}
namespace svdserve::host {
const KernelTables<double>* c128_kernels(Simd simd) { SVD_PICK_KERNELS(simd, c128_table); }
}  // namespace svdserve::host
#endif
