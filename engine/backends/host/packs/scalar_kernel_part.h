// The scalar lane of one part of the lane kernels of one element type; see vector_kernel_part.h. It is the reference of
// the bit contract, and machines without fused multiply-adds run it.
#include "engine/backends/host/packs/kernel_set.h"

#if defined(SVD_KERNEL_PART)
SVD_KERNEL_BEGIN
template void list_kernels<host::KernelPart::SVD_KERNEL_PART, DType::SVD_KERNEL_TYPE>(
    host::KernelTables<host::RealOf<DType::SVD_KERNEL_TYPE>>&);
SVD_KERNEL_END
#endif
