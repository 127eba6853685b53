// The tables of the kernels' scalar lane.
#include "engine/backends/host/packs/kernel_parts.h"

SVD_KERNEL_BEGIN
template const host::KernelTables<float>* kernel_tables<DType::kF32>();
template const host::KernelTables<double>* kernel_tables<DType::kF64>();
template const host::KernelTables<float>* kernel_tables<DType::kC64>();
template const host::KernelTables<double>* kernel_tables<DType::kC128>();
SVD_KERNEL_END
