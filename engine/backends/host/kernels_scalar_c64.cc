// The scalar lane of the kernels for c64: the reference of the bit contract, and what machines without FMA run.
#include "engine/backends/host/kernel_set.h"

SVD_KERNEL_BEGIN
const host::KernelTables<float>* c64_table() { return make_kernels<ComplexElement, float>(); }
SVD_KERNEL_END
