// Kernels of MIMO answers for matrices whose real type is f32, for every instruction set.
#include "engine/backends/host/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/answers_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/answer_kernel_set.h"

#if HWY_NATIVE_FMA
SVD_KERNEL_BEGIN
const host::AnswerKernels<float>* f32_answer_table() { return make_answer_kernels<float>(); }
SVD_KERNEL_END
#endif

#if HWY_ONCE
#include "engine/backends/host/pick_kernels.h"
namespace svdserve::scalar {
const host::AnswerKernels<float>* f32_answer_table();
}
namespace svdserve::host {
const AnswerKernels<float>* f32_answers(Simd simd) { SVD_PICK_KERNELS(simd, f32_answer_table); }
}  // namespace svdserve::host
#endif
