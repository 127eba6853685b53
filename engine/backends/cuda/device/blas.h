// cuBLAS's functions and types by element: double or Complex. Those of single precision have one function alone.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLAS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLAS_H_

#include "engine/backends/cuda/device/library_loader.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

struct alignas(8) ComplexFloat {
  float re, im;
};

template <class E>
struct Blas;
template <>
struct Blas<float> {
  using Native = float;
  using Real = float;
  static constexpr auto her2k = &Libraries::cublasSsyr2k_v2;
};
template <>
struct Blas<ComplexFloat> {
  using Native = cuComplex;
  using Real = float;
  static constexpr auto her2k = &Libraries::cublasCher2k_v2;
};
template <>
struct Blas<double> {
  using Native = double;
  using Real = double;
  static constexpr cudaDataType kType = CUDA_R_64F;
  static constexpr auto gemm = &Libraries::cublasDgemm_v2;
  static constexpr auto herk = &Libraries::cublasDsyrk_v2;
  static constexpr auto her2k = &Libraries::cublasDsyr2k_v2;
  static constexpr auto trsm = &Libraries::cublasDtrsm_v2;
  static constexpr cublasOperation_t kAdjoint = CUBLAS_OP_T;
  static constexpr double kOperations = 1;  // real multiply-adds of one
};
template <>
struct Blas<Complex> {
  using Native = cuDoubleComplex;
  using Real = double;
  static constexpr cudaDataType kType = CUDA_C_64F;
  static constexpr auto gemm = &Libraries::cublasZgemm_v2;
  static constexpr auto herk = &Libraries::cublasZherk_v2;
  static constexpr auto her2k = &Libraries::cublasZher2k_v2;
  static constexpr auto trsm = &Libraries::cublasZtrsm_v2;
  static constexpr cublasOperation_t kAdjoint = CUBLAS_OP_C;
  static constexpr double kOperations = 4;
};

template <class E>
const typename Blas<E>::Native* native(const E* p) {
  return reinterpret_cast<const typename Blas<E>::Native*>(p);
}
template <class E>
typename Blas<E>::Native* native(E* p) {
  return reinterpret_cast<typename Blas<E>::Native*>(p);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_BLAS_H_
