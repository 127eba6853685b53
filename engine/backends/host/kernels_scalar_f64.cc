// The scalar lane of the kernels for f64: the reference of the bit contract, and what machines without FMA run.
#include "engine/backends/host/kernel_set.h"

SVD_KERNEL_BEGIN
const host::KernelTables<double>* f64_table() { return make_kernels<RealElement, double>(); }
SVD_KERNEL_END
