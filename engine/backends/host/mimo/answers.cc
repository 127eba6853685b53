// The kernels of MIMO answers for both real types and every instruction set.
#include "engine/backends/host/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backends/host/mimo/answers.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "engine/backends/host/mimo/answer_kernel_set.h"

#if HWY_NATIVE_FMA
SVD_KERNEL_BEGIN
const host::AnswerKernels<float>* f32_answer_table() { return make_answer_kernels<float>(); }
const host::AnswerKernels<double>* f64_answer_table() { return make_answer_kernels<double>(); }
SVD_KERNEL_END
#endif

#if HWY_ONCE
#include "engine/backends/host/base/pick_kernels.h"
namespace svdserve::scalar {
const host::AnswerKernels<float>* f32_answer_table();
const host::AnswerKernels<double>* f64_answer_table();
}  // namespace svdserve::scalar
namespace svdserve::host {
const AnswerKernels<float>* f32_answers(Simd simd) { SVD_PICK_KERNELS(simd, f32_answer_table); }
const AnswerKernels<double>* f64_answers(Simd simd) { SVD_PICK_KERNELS(simd, f64_answer_table); }
}  // namespace svdserve::host
#endif
