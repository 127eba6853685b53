// Chooses the table of a target that was built and that this processor runs.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_PICK_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_PICK_KERNELS_H_

#include "hwy/targets.h"

// One case of SVD_PICK_KERNELS for each target; empty where it is not built.
#if HWY_TARGETS & HWY_AVX3
#define SVD_PICK_AVX512(simd, table) \
  if (simd == Simd::kAvx512) return (hwy::SupportedTargets() & HWY_AVX3) ? N_AVX3::table() : nullptr;
#else
#define SVD_PICK_AVX512(simd, table)
#endif
#if HWY_TARGETS & HWY_AVX2
#define SVD_PICK_AVX2(simd, table) \
  if (simd == Simd::kAvx2) return (hwy::SupportedTargets() & HWY_AVX2) ? N_AVX2::table() : nullptr;
#else
#define SVD_PICK_AVX2(simd, table)
#endif
#if HWY_TARGETS & HWY_NEON
#define SVD_PICK_NEON(simd, table) \
  if (simd == Simd::kNeon) return (hwy::SupportedTargets() & HWY_NEON) ? N_NEON::table() : nullptr;
#else
#define SVD_PICK_NEON(simd, table)
#endif

#define SVD_PICK_KERNELS(simd, table)                          \
  if (simd == Simd::kScalar) return svdserve::scalar::table(); \
  SVD_PICK_AVX512(simd, table)                                 \
  SVD_PICK_AVX2(simd, table)                                   \
  SVD_PICK_NEON(simd, table)                                   \
  return nullptr

#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_PICK_KERNELS_H_
