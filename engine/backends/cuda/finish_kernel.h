// From what lies between two kernels to finished values: a thread a matrix. BIDIAGONAL runs dqds here.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_KERNEL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_KERNEL_H_

#include <type_traits>

#include "engine/backends/cuda/kernel_call.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// Numbers of shared memory that a thread has: s or q, e, and the backup of both; an odd number.
constexpr int finish_slot(Method method, int k) { return (method == Method::kBidiagonal ? 4 * k : k) | 1; }

// K = 0: k is known at run time. BISECTION comes with its s in q, like JACOBI.
template <class T, Method kMethod, int K>
__global__ void __launch_bounds__(kFinishBlock) finish_kernel(const SquareCall<T> call, const Between<T> from) {
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= call.count) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int kStorage = K != 0 ? K : static_cast<int>(kShapeLimits.max_values);
  const int run_time_k = call.k;
  std::conditional_t<K != 0, scalar::FixedSize<K>, scalar::RuntimeSize> k;
  if constexpr (K == 0) k.n = run_time_k;
  Lane<T>* const slot =
      reinterpret_cast<Lane<T>*>(shared_bytes) + static_cast<int>(threadIdx.x) * finish_slot(kMethod, k);
  SVD_UNROLL for (int i = 0; i < k; ++i) slot[i] = Lane<T>(from.q[i * call.count + m]);
  if constexpr (kMethod == Method::kBidiagonal) {
    Lane<T>* const e = slot + k;
    SVD_UNROLL for (int i = 0; i < k - 1; ++i) e[i] = Lane<T>(from.e[i * call.count + m]);
    Lane<T> kept[3 * kStorage];  // local memory: written once, read by the few that go to bisection
    scalar::bidiagonal_values(scalar::RuntimeSize{run_time_k}, slot, e, e + k, kept, slot);
  }
  Lane<T> exponents[kStorage], registers[K != 0 ? K : 1];
  SVD_UNROLL for (int i = 0; i < k; ++i) {
    exponents[i] = Lane<T>(kMethod == Method::kJacobi ? from.e[i * call.count + m] : from.exponent[m]);
  }
  Lane<T>* s = slot;
  if constexpr (K != 0) {
    SVD_UNROLL for (int i = 0; i < K; ++i) registers[i] = slot[i];
    s = registers;
  }
  const int state = static_cast<int>(from.state[m]);
  const Lane<T> status = scalar::finish_values(k, exponents, scalar::ScalarMask{state != kNonFiniteState},
                                               scalar::ScalarMask{state == kNotConvergedState}, s);
  SVD_UNROLL for (int i = 0; i < k; ++i) call.values[m * k + i] = s[i].v;
  record_status(call, m, static_cast<int>(status.v));
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_KERNEL_H_
