// Puts the parts of the kernels for the target at hand together. The parts are in other translation units.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_PARTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_PARTS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_PARTS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_PARTS_H_
#endif

#include "engine/backends/host/packs/kernel_table.h"
#include "engine/core/kernel_namespace.h"

// As pack_access.h: a target without fused multiply-adds is served by the scalar lane.
#if !defined(HWY_HIGHWAY_INCLUDED) || HWY_NATIVE_FMA

SVD_KERNEL_BEGIN

template <host::KernelPart kPart, DType kType>
void list_kernels(host::KernelTables<host::RealOf<kType>>& tables);

template <DType kType>
const host::KernelTables<host::RealOf<kType>>* kernel_tables() {
  using host::KernelPart;
  static const host::KernelTables<host::RealOf<kType>> tables = [] {
    host::KernelTables<host::RealOf<kType>> t{};
    list_kernels<KernelPart::kBidiagonal, kType>(t);
    list_kernels<KernelPart::kBisection, kType>(t);
    list_kernels<KernelPart::kJacobi, kType>(t);
    list_kernels<KernelPart::kVectors, kType>(t);
    list_kernels<KernelPart::kTall, kType>(t);
    list_kernels<KernelPart::kHermitian, kType>(t);
    list_kernels<KernelPart::kTridiagonal, kType>(t);
    list_kernels<KernelPart::kGeneral, kType>(t);
    list_kernels<KernelPart::kGeneralJacobi, kType>(t);
    return t;
  }();
  return &tables;
}

SVD_KERNEL_END

#endif

#endif
