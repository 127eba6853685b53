// Which of Highway's targets kernels are built for. Included before foreach_target.h by every kernels_*.cc.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_SIMD_TARGETS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_SIMD_TARGETS_H_

// AVX2, AVX-512 and NEON. What lies between or beyond adds build time and no speed here; SSE has no fused multiply-add.
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_AVX3 | HWY_NEON | HWY_SCALAR | HWY_EMU128))

#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_SIMD_TARGETS_H_
