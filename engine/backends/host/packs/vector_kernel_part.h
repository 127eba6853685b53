// One part of the lane kernels of some element types, for every instruction set. The build makes a translation unit of
// this file for each SVD_KERNEL_PART, a name of KernelPart, and its SVD_KERNEL_TYPES, names of DType
// (engine/CMakeLists.txt). No include guard: Highway includes it once for each instruction set.
#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/packs/vector_kernel_part.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/packs/kernel_set.h"

#if HWY_NATIVE_FMA && defined(SVD_KERNEL_PART)
SVD_KERNEL_BEGIN
SVD_KERNEL_TYPES(SVD_LIST_KERNELS)
SVD_KERNEL_END
#endif
