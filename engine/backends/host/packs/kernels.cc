// The tables of lane kernels of every element type, for every instruction set.
#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/packs/kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/packs/kernel_parts.h"

#if HWY_ONCE
#include "engine/backends/host/base/pick_kernels.h"
namespace svdserve::scalar {
template <DType kType>
const host::KernelTables<host::RealOf<kType>>* kernel_tables();
}
namespace svdserve::host {
const KernelTables<float>* f32_kernels(Simd simd) { SVD_PICK_KERNELS(simd, kernel_tables<DType::kF32>); }
const KernelTables<double>* f64_kernels(Simd simd) { SVD_PICK_KERNELS(simd, kernel_tables<DType::kF64>); }
const KernelTables<float>* c64_kernels(Simd simd) { SVD_PICK_KERNELS(simd, kernel_tables<DType::kC64>); }
const KernelTables<double>* c128_kernels(Simd simd) { SVD_PICK_KERNELS(simd, kernel_tables<DType::kC128>); }
}  // namespace svdserve::host
#endif
