// The scalar lane of the kernels for c128: the reference of the bit contract, and what machines without FMA run.
#include "engine/backends/host/kernel_set.h"

SVD_KERNEL_BEGIN
const host::KernelTables<double>* c128_table() { return make_kernels<ComplexElement, double>(); }
SVD_KERNEL_END
