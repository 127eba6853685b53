// Which of Highway's targets kernels are built for. Included before foreach_target.h by every source of vector kernels.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_

// AVX2, AVX-512 and NEON. Targets between or beyond add build time and no speed here; SSE has no fused multiply-add.
// The build may name fewer (cmake/SvdserveSimd.cmake), and a generated unit names one of them.
#if !defined(SVD_KERNEL_TARGETS)
#define SVD_KERNEL_TARGETS (HWY_AVX2 | HWY_AVX3 | HWY_NEON)
#endif
#if !defined(SVD_UNIT_TARGETS)
#define SVD_UNIT_TARGETS SVD_KERNEL_TARGETS
#endif
#define HWY_DISABLED_TARGETS (~((SVD_UNIT_TARGETS) | HWY_SCALAR | HWY_EMU128))

#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_SIMD_TARGETS_H_
