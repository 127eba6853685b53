// The scalar lane of the kernels for f32: the reference of the bit contract, and what machines without FMA run.
#include "engine/backends/host/kernel_set.h"

SVD_KERNEL_BEGIN
const host::KernelTables<float>* f32_table() { return make_kernels<RealElement, float>(); }
SVD_KERNEL_END
