// Which of Highway's targets kernels are built for. Included before foreach_target.h by every source of vector kernels.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_

// AVX2, AVX-512 and NEON. Targets between or beyond add build time and no speed here; SSE has no fused multiply-add.
// Sanitizer builds name fewer (engine/CMakeLists.txt).
#if !defined(SVD_KERNEL_TARGETS)
#define SVD_KERNEL_TARGETS (HWY_AVX2 | HWY_AVX3 | HWY_NEON)
#endif
#define HWY_DISABLED_TARGETS (~(SVD_KERNEL_TARGETS | HWY_SCALAR | HWY_EMU128))

#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_
