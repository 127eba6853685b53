// list_kernels(), which puts one part of the lane kernels for the target at hand into KernelTables. The unit names the
// part, SVD_KERNEL_PART, and the header that has its kernels, SVD_KERNEL_HEADER. So a change to one algorithm compiles
// the units of its part.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_SET_H_
#endif

#include "engine/backends/host/packs/pack_access.h"

#if defined(SVD_KERNEL_HEADER)
#include SVD_KERNEL_HEADER
#endif

// list_kernels() of the unit's part for one type, a name of DType.
#undef SVD_LIST_KERNELS
#define SVD_LIST_KERNELS(type)                                                \
  template void list_kernels<host::KernelPart::SVD_KERNEL_PART, DType::type>( \
      host::KernelTables<host::RealOf<DType::type>>&);

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
