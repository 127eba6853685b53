// cuBLAS and cuSOLVER, opened when the first large matrix needs them. Without them small matrices work on.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LIBRARY_LOADER_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LIBRARY_LOADER_H_

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <string>

namespace svdserve::cuda {

#define SVD_CUBLAS_FUNCTIONS(F) \
  F(cublasCreate_v2)            \
  F(cublasDestroy_v2)           \
  F(cublasSetStream_v2)         \
  F(cublasDgemm_v2)             \
  F(cublasZgemm_v2)             \
  F(cublasDsyrk_v2)             \
  F(cublasZherk_v2)             \
  F(cublasSsyr2k_v2)            \
  F(cublasDsyr2k_v2)            \
  F(cublasCher2k_v2)            \
  F(cublasZher2k_v2)            \
  F(cublasDtrsm_v2)             \
  F(cublasZtrsm_v2)
#define SVD_CUSOLVER_FUNCTIONS(F) \
  F(cusolverDnCreate)             \
  F(cusolverDnDestroy)            \
  F(cusolverDnSetStream)          \
  F(cusolverDnCreateParams)       \
  F(cusolverDnDestroyParams)      \
  F(cusolverDnXgeqrf)             \
  F(cusolverDnXgeqrf_bufferSize)  \
  F(cusolverDnXsyevd)             \
  F(cusolverDnXsyevd_bufferSize)  \
  F(cusolverDnXpotrf)             \
  F(cusolverDnXpotrf_bufferSize)  \
  F(cusolverDnXgetrf)             \
  F(cusolverDnXgetrf_bufferSize)  \
  F(cusolverDnXgetrs)             \
// Since CUDA 12.6. Where they are missing, only general eigenproblems are not served.
#define SVD_GEEV_FUNCTIONS(F) \
  F(cusolverDnXgeev)          \
  F(cusolverDnXgeev_bufferSize)

// Their functions, under their names.
struct Libraries {
#define SVD_MEMBER(name) decltype(&::name) name = nullptr;
  SVD_CUBLAS_FUNCTIONS(SVD_MEMBER)
  SVD_CUSOLVER_FUNCTIONS(SVD_MEMBER)
  SVD_GEEV_FUNCTIONS(SVD_MEMBER)
#undef SVD_MEMBER
  std::string refusal;  // empty: all are there but for those of geev
  bool has_geev() const { return cusolverDnXgeev != nullptr && cusolverDnXgeev_bufferSize != nullptr; }
};

// Opened once for the process and never closed: libcublas.so.13 or .12, libcusolver.so.12 or .11, where the linker or
// the plugin's own path finds them. Thread-safe.
const Libraries& libraries();

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_LIBRARY_LOADER_H_
