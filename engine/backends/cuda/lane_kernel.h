// k <= kLargestFixedSize: one matrix a thread.
//
// A block reads its matrices as one contiguous run and turns them in shared memory: matrix t lies in slot t, and slots
// have an odd number of words, so that threads that read the same element of their own matrices hit different banks.
// BIDIAGONAL then goes on in registers; JACOBI, which indexes columns by run-time numbers, in its slot.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_

#include "engine/backends/cuda/kernel_call.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

template <class E, int K, Method kMethod>
struct LaneShape {
  using T = typename E::Scalar;
  static constexpr int kMatrix = K * K * E::kComponents;  // numbers of a matrix
  // The matrix, which BIDIAGONAL gives up for 3 K numbers of scratch; JACOBI keeps it beside exponents and values.
  static constexpr int kNeeded = kMethod == Method::kJacobi ? kMatrix + 2 * K : kMatrix > 3 * K ? kMatrix : 3 * K;
  static constexpr int kSlot = kNeeded | 1;
  static constexpr int kBlock = lane_block(kSlot * static_cast<int>(sizeof(T)));
  static constexpr int kSharedBytes = kBlock * kSlot * static_cast<int>(sizeof(T));
};

// n numbers from global memory into slots of kMatrix numbers each.
template <int kMatrix, int kSlot, int kBlock, class T>
__device__ __forceinline__ void load_slots(const T* __restrict__ from, int n, T* slots) {
  constexpr int kVector = 16 / sizeof(T);
  struct alignas(16) Vector {
    T x[kVector];
  };
  int done = 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    constexpr int kLoads = (kMatrix + kVector - 1) / kVector;  // of a thread; several are in flight
    constexpr int kFlight = kLoads < 8 ? kLoads : 8;
    const int vectors = n / kVector;
    for (int first = threadIdx.x; first < vectors; first += kFlight * kBlock) {
      Vector v[kFlight];
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = first + x * kBlock;
        if (at < vectors) v[x] = reinterpret_cast<const Vector*>(from)[at];
      }
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = first + x * kBlock;
        if (at < vectors) {
          SVD_UNROLL for (int c = 0; c < kVector; ++c) {
            const int number = at * kVector + c;
            slots[number + number / kMatrix * (kSlot - kMatrix)] = v[x].x[c];
          }
        }
      }
    }
    done = vectors * kVector;
  }
  for (int number = done + threadIdx.x; number < n; number += kBlock) {
    slots[number + number / kMatrix * (kSlot - kMatrix)] = from[number];
  }
}

// Values through shared memory, so that they leave in one run.
template <int K, int kBlock, class T>
__device__ __forceinline__ void store_values(const Lane<T>* s, bool mine, int n, T* shared, T* to) {
  __syncthreads();
  if (mine) {
    SVD_UNROLL for (int i = 0; i < K; ++i) shared[threadIdx.x * K + i] = s[i].v;
  }
  __syncthreads();
  for (int x = threadIdx.x; x < n * K; x += kBlock) to[x] = shared[x];
}

template <class E, int K>
__device__ __forceinline__ void load_registers(const E* slot, bool row_major, E* a) {
  if (row_major) {
    SVD_UNROLL for (int i = 0; i < K; ++i) {
      SVD_UNROLL for (int j = 0; j < K; ++j) a[j * K + i] = slot[i * K + j];
    }
  } else {
    SVD_UNROLL for (int x = 0; x < K * K; ++x) a[x] = slot[x];
  }
}

template <class E, int K>
__device__ __forceinline__ void transpose_slot(E* slot) {
  SVD_UNROLL for (int i = 0; i < K; ++i) {
    SVD_UNROLL for (int j = i + 1; j < K; ++j) {
      const E x = slot[i * K + j];
      slot[i * K + j] = slot[j * K + i];
      slot[j * K + i] = x;
    }
  }
}

template <class E, int K, Method kMethod>
__global__ void __launch_bounds__(LaneShape<E, K, kMethod>::kBlock) lane_kernel(const SquareCall<typename E::Scalar> call) {
  using Shape = LaneShape<E, K, kMethod>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const slots = reinterpret_cast<T*>(shared_bytes);

  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock;
  const int64_t left = call.count - first;
  const int n = left < Shape::kBlock ? static_cast<int>(left) : Shape::kBlock;
  load_slots<Shape::kMatrix, Shape::kSlot, Shape::kBlock>(call.a + first * Shape::kMatrix, n * Shape::kMatrix, slots);
  __syncthreads();

  const bool mine = static_cast<int>(threadIdx.x) < n;
  Lane<T> s[K];
  if (mine) {
    const int64_t m = first + threadIdx.x;
    T* const slot = slots + threadIdx.x * Shape::kSlot;
    const auto* const given = reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * K);
    Lane<T> status;
    if constexpr (kMethod == Method::kJacobi) {
      if (call.row_major) transpose_slot<E, K>(reinterpret_cast<E*>(slot));
      auto* const exponents = reinterpret_cast<Lane<T>*>(slot + Shape::kMatrix);
      const scalar::ValuesTask<Lane<T>> task{given, Lane<T>(call.tolerance), call.max_sweeps, exponents, nullptr};
      auto* const values = exponents + K;
      status = scalar::matrix_values<kMethod>(scalar::MatrixView<E>{reinterpret_cast<E*>(slot), K},
                                              scalar::FixedSize<K>(), task, values);
      SVD_UNROLL for (int i = 0; i < K; ++i) s[i] = values[i];
    } else {
      E a[K * K];
      load_registers<E, K>(reinterpret_cast<const E*>(slot), call.row_major, a);
      Lane<T> exponents[K];
      const scalar::ValuesTask<Lane<T>> task{given, Lane<T>(call.tolerance), call.max_sweeps, exponents,
                                             reinterpret_cast<Lane<T>*>(slot)};
      status = scalar::matrix_values<kMethod>(scalar::MatrixView<E>{a, K}, scalar::FixedSize<K>(), task, s);
    }
    record_status(call, m, static_cast<int>(status.v));
  }
  store_values<K, Shape::kBlock>(s, mine, n, slots, call.values + first * K);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_
