// Arguments from the launcher to kernels: plain data in device memory, and the types that they are instantiated for.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_KERNEL_CALL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_KERNEL_CALL_H_

#include <cstdint>

#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/planner.h"

namespace svdserve::cuda {

template <class T>
using Lane = scalar::ScalarLane<T>;
template <class T>
using Real = scalar::RealElement<Lane<T>>;
template <class T>
using Complex = scalar::ComplexElement<Lane<T>>;

// k x k matrices, one after the other.
template <class T>
struct SquareCall {
  const T* a;          // [in] aligned to an element
  const T* exponents;  // [in] k a matrix: column j stands for 2^exponents[j] a(:, j); null: zero
  int64_t count;
  int k;
  bool row_major;
  T tolerance;
  int max_sweeps;
  T* values;                   // [out] k a matrix
  uint8_t* statuses;           // [out] or null
  uint64_t* exception_counts;  // [in,out] by MatrixStatus
};

// Results of k x k matrices between two kernels, interlaced: number i of matrix m lies at [i * count + m].
template <class T>
struct Between {
  T* q;         // k: squared diagonal of B, or alpha of B^T B; JACOBI: s
  T* e;         // k: squared superdiagonal of B, or beta^2; JACOBI: exponents
  T* exponent;  // 1: of the matrix
  T* state;     // 1: one of the following
};
inline constexpr int kOkState = 0, kNonFiniteState = 1, kNotConvergedState = 2;

template <class T>
__device__ __forceinline__ void record_status(const SquareCall<T>& call, int64_t m, int status) {
  if (call.statuses != nullptr) call.statuses[m] = static_cast<uint8_t>(status);
  if (status != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&call.exception_counts[status]), 1ull);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_KERNEL_CALL_H_
