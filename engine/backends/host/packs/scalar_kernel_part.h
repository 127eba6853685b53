// The scalar lane of one part of the lane kernels of some element types; see vector_kernel_part.h. It is the reference of
// the bit contract, and machines without fused multiply-adds run it.
#include "engine/backends/host/packs/kernel_set.h"

#if defined(SVD_KERNEL_PART)
SVD_KERNEL_BEGIN
SVD_KERNEL_TYPES(SVD_LIST_KERNELS)
SVD_KERNEL_END
#endif
