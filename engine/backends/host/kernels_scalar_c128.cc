// The scalar lane of the kernels for c128: the reference of the bit contract, and what machines without FMA run.
#include "engine/backends/host/kernel_set.h"

SVD_KERNEL_BEGIN
const host::KernelTable<double>* c128_table(Simd simd) { return make_kernels<ComplexElement<NativeLane<double>>>(simd); }
SVD_KERNEL_END
