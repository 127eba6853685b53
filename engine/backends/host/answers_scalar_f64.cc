// The scalar lane of the kernels of MIMO answers for f64.
#include "engine/backends/host/answer_kernel_set.h"

SVD_KERNEL_BEGIN
const host::AnswerKernels<double>* f64_answer_table() { return make_answer_kernels<double>(); }
SVD_KERNEL_END
