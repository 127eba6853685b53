// General k x k matrices, k <= kLargestGeneral (general_kernels.h). The launcher of an element type calls this function.
// The units that general.cu.in makes define it.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_LAUNCH_H_

#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/device/launch_context.h"

namespace svdserve::cuda {

// Vectors of k x k matrices as a plane has them: element (i, j) of matrix m at m * k * k + i * row_stride + j *
// col_stride. Null data: not wanted.
template <class T>
struct GeneralVectors {
  Complex<T>* data;
  int64_t row_stride, col_stride;
  bool conjugate;
};

template <class T>
struct GeneralCall {
  const T* a;  // [in] aligned to an element
  int64_t count;
  int k;
  bool row_major;
  bool vectors;                // false: eigenvalues alone
  const Complex<T>* start;     // [in] JACOBI: V_0 of each matrix, as a; null: none
  Complex<T>* values;          // [out] k a matrix
  GeneralVectors<T> v, w;      // [out]
  T* conditions;               // [out] k a matrix, or null; with vectors
  T* certificates;             // [out] kCertificateNumbers a matrix, or null
  uint8_t* statuses;           // [out] or null
  uint64_t* exception_counts;  // [in,out] by MatrixStatus
  int max_sweeps;              // JACOBI's
  uint8_t* missed;             // a matrix: whether JACOBI has missed its bound [out]; QR takes these [in], or all: null
};

template <class E, bool kJacobi>
struct GeneralLaunch {
  static void decompose(Launch* launch, const GeneralCall<typename E::Scalar>& call);
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_LAUNCH_H_
