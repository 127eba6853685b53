// One part of the lane kernels of one element type, for every instruction set. The build makes a translation unit of
// this file for each SVD_KERNEL_PART, a name of KernelPart, and SVD_KERNEL_TYPE, a name of DType
// (engine/CMakeLists.txt). No include guard: Highway includes it once for each instruction set.
#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/packs/vector_kernel_part.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/packs/kernel_set.h"

#if HWY_NATIVE_FMA && defined(SVD_KERNEL_PART)
SVD_KERNEL_BEGIN
template void list_kernels<host::KernelPart::SVD_KERNEL_PART, DType::SVD_KERNEL_TYPE>(
    host::KernelTables<host::RealOf<DType::SVD_KERNEL_TYPE>>&);
SVD_KERNEL_END
#endif
