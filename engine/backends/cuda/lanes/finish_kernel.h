// From what lies between two kernels to finished values: a thread a matrix. BIDIAGONAL runs dqds here.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_FINISH_KERNEL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_FINISH_KERNEL_H_

#include <type_traits>

#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// K: the size of the matrices where it is known, else the largest that they may have, beyond kLargestFixedSize. 0: any.
template <int K>
inline constexpr bool kIsFixed = K != 0 && K <= kLargestFixedSize;

// Whether dqds has all of its arrays in registers. Else it has the backup of q and e there, if K is known. Shared memory
// holds both, and then has room for twice as many threads.
template <class T, int K>
inline constexpr bool kDqdsInRegisters = K != 0 && K <= largest_register_dqds(sizeof(T));

// Numbers of shared memory that a thread has, an odd number. BIDIAGONAL: with dqds in registers what is kept for
// bisection, else q or s, e, and their backup where K is not known. Others: s.
template <class T, Method kMethod, int K>
constexpr int finish_slot(int k) {
  return (kMethod != Method::kBidiagonal ? k : kDqdsInRegisters<T, K> ? 3 * k : K != 0 ? 2 * k : 4 * k) | 1;
}

// s of matrix m, in any order. BISECTION comes with its s in q, like JACOBI.
template <class T, Method kMethod, int K, class Size>
__device__ __forceinline__ void found_values(const Between<T>& from, int64_t count, int64_t m, Size k, int run_time_k,
                                             Lane<T>* slot, Lane<T>* s) {
  if constexpr (kMethod == Method::kBidiagonal && kDqdsInRegisters<T, K>) {
    Lane<T> e[K], backup[2 * K];
    SVD_UNROLL for (int i = 0; i < K; ++i) s[i] = Lane<T>(from.q[i * count + m]);
    SVD_UNROLL for (int i = 0; i < K - 1; ++i) e[i] = Lane<T>(from.e[i * count + m]);
    scalar::bidiagonal_values(k, s, e, backup, slot, s);
  } else {
    SVD_UNROLL for (int i = 0; i < k; ++i) slot[i] = Lane<T>(from.q[i * count + m]);
    if constexpr (kMethod == Method::kBidiagonal) {
      using Bound = std::conditional_t<K != 0, scalar::BoundedSize<K>, scalar::RuntimeSize>;
      const Bound size{run_time_k};
      Lane<T>* const e = slot + k;
      Lane<T> registers[K != 0 ? 2 * K : 1], of_bisection[K != 0 ? K : 1];
      Lane<T>* const backup = K != 0 ? registers : e + k;
      Lane<T>* const found = K != 0 ? of_bisection : backup;
      for (int i = 0; i < size - 1; ++i) e[i] = Lane<T>(from.e[i * count + m]);
      // Few matrices need bisection, and its operands are read a second time.
      const auto again = [&] {
        for (int i = 0; i < size; ++i) slot[i] = Lane<T>(from.q[i * count + m]);
        for (int i = 0; i < size - 1; ++i) e[i] = Lane<T>(from.e[i * count + m]);
        return scalar::BisectionOperands<Lane<T>>{slot, e, found};
      };
      scalar::bidiagonal_values(size, slot, e, backup, again, slot);
    }
    if constexpr (kIsFixed<K>) {
      SVD_UNROLL for (int i = 0; i < k; ++i) s[i] = slot[i];
    }
  }
}

template <class T, Method kMethod, int K>
__global__ void __launch_bounds__(kFinishBlock) finish_kernel(const SquareCall<T> call, const Between<T> from) {
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= call.count) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  std::conditional_t<kIsFixed<K>, scalar::FixedSize<K>, scalar::RuntimeSize> k;
  if constexpr (!kIsFixed<K>) k.n = call.k;
  Lane<T>* const slot =
      reinterpret_cast<Lane<T>*>(shared_bytes) + static_cast<int>(threadIdx.x) * finish_slot<T, kMethod, K>(k);
  Lane<T> registers[kIsFixed<K> ? K : 1];
  Lane<T>* const s = kIsFixed<K> ? registers : slot;
  found_values<T, kMethod, K>(from, call.count, m, k, call.k, slot, s);
  const auto exponent = [&](int i) {
    return Lane<T>(kMethod == Method::kJacobi ? from.e[i * call.count + m] : from.exponent[m]);
  };
  const int state = static_cast<int>(from.state[m]);
  const Lane<T> status = scalar::finish_values(k, exponent, scalar::ScalarMask{state != kNonFiniteState},
                                               scalar::ScalarMask{state == kNotConvergedState}, s);
  SVD_UNROLL for (int i = 0; i < k; ++i) call.values[m * k + i] = s[i].v;
  record_status(call, m, static_cast<int>(status.v));
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_FINISH_KERNEL_H_
