// The scalar lane of the kernels of MIMO answers, for both real types.
#include "engine/backends/host/mimo/answer_kernel_set.h"

SVD_KERNEL_BEGIN
const host::AnswerKernels<float>* f32_answer_table() { return make_answer_kernels<float>(); }
const host::AnswerKernels<double>* f64_answer_table() { return make_answer_kernels<double>(); }
SVD_KERNEL_END
