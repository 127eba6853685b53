// The scalar lane of the kernels of MIMO answers for f32.
#include "engine/backends/host/answer_kernel_set.h"

SVD_KERNEL_BEGIN
const host::AnswerKernels<float>* f32_answer_table() { return make_answer_kernels<float>(); }
SVD_KERNEL_END
