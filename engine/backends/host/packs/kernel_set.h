// list_kernels(), which puts one part of the lane kernels for the target at hand into KernelTables. A unit includes the
// headers that have the kernels of its parts before this one. So a change to one algorithm compiles the units of its part.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#endif

#include "engine/backends/host/packs/pack_access.h"

// list_kernels() of a part, a name of KernelPart, for a type, a name of DType.
#undef SVD_LIST_KERNELS
#define SVD_LIST_KERNELS(part, type) \
  template void list_kernels<host::KernelPart::part, DType::type>(host::KernelTables<host::RealOf<DType::type>>&);

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <host::KernelPart kPart, DType kType>
void list_kernels(host::KernelTables<host::RealOf<kType>>& tables) {
  using T = host::RealOf<kType>;
  using Wide = std::conditional_t<is_complex(kType), ComplexElement<WideLane<T>>, RealElement<WideLane<T>>>;
  using Narrow = std::conditional_t<is_complex(kType), ComplexElement<NarrowLane<T>>, RealElement<NarrowLane<T>>>;
  list_part<Wide, Narrow>(PartTag<kPart>(), tables);
}

SVD_KERNEL_END

#endif

#endif
