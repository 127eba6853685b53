// k <= kLargestFixedSize: one matrix a thread.
//
// A warp reads its 32 matrices as one contiguous run and turns them in shared memory: matrix t lies in slot t, and
// slots have an odd number of words, so that threads that read the same element of their own matrices hit different
// banks. Warps do not wait for each other. BIDIAGONAL then goes on in registers; dqds of k > kLargestRegisterDqds, and
// JACOBI, which index by run-time numbers, stay in the slot: unrolled, their code would not fit the instruction cache.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_

#include "engine/backends/cuda/kernel_call.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

template <class E, int K, Method kMethod>
struct LaneShape {
  using T = typename E::Scalar;
  static constexpr int kMatrix = K * K * E::kComponents;  // numbers of a matrix
  static constexpr bool kInRegisters = K <= largest_register_dqds(sizeof(T));
  // JACOBI keeps exponents and values beside the matrix; BIDIAGONAL gives the matrix up for its scratch: what is kept
  // for bisection, and where dqds has no registers its arrays and their backup.
  static constexpr int kScratch = kInRegisters ? 3 * K : 7 * K;
  static constexpr int kNeeded = kMethod == Method::kJacobi ? kMatrix + 2 * K : kMatrix > kScratch ? kMatrix : kScratch;
  static constexpr int kSlot = kNeeded | 1;
  static constexpr int kBlock = lane_block(kSlot * static_cast<int>(sizeof(T)));
  // What the compiler is told of blocks on a multiprocessor. BIDIAGONAL, 1: it takes the registers that it needs, where
  // left to itself it spills a few for one block more. JACOBI, 0: it decides, and more threads beat more registers.
  static constexpr int kLeastBlocks = kMethod == Method::kBidiagonal ? 1 : 0;
  static constexpr int kSharedBytes = kBlock * kSlot * static_cast<int>(sizeof(T));
};

// n numbers from global memory into the slots of a warp, kMatrix numbers each.
template <int kMatrix, int kSlot, class T>
__device__ __forceinline__ void load_slots(const T* __restrict__ from, int n, int lane, T* slots) {
  constexpr int kVector = 16 / sizeof(T);
  struct alignas(16) Vector {
    T x[kVector];
  };
  const auto slot_of = [](int number) { return number + number / kMatrix * (kSlot - kMatrix); };
  int done = 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    constexpr int kLoads = (kMatrix + kVector - 1) / kVector;  // of a thread; several are in flight
    constexpr int kFlight = kLoads < 8 ? kLoads : 8;
    const int vectors = n / kVector;
    for (int first = lane; first < vectors; first += kFlight * 32) {
      Vector v[kFlight];
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = first + x * 32;
        if (at < vectors) v[x] = reinterpret_cast<const Vector*>(from)[at];
      }
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = first + x * 32;
        if (at < vectors) {
          if constexpr (kMatrix % kVector == 0) {  // a vector does not straddle matrices
            T* const to = slots + slot_of(at * kVector);
            SVD_UNROLL for (int c = 0; c < kVector; ++c) to[c] = v[x].x[c];
          } else {
            SVD_UNROLL for (int c = 0; c < kVector; ++c) slots[slot_of(at * kVector + c)] = v[x].x[c];
          }
        }
      }
    }
    done = vectors * kVector;
  }
  for (int number = done + lane; number < n; number += 32) slots[slot_of(number)] = from[number];
  __syncwarp();
}

// A warp's values through shared memory, so that they leave in one run. n: its matrices.
template <int K, class T>
__device__ __forceinline__ void store_values(const Lane<T>* s, int n, int lane, T* shared, T* to) {
  constexpr int kStride = K | 1;
  __syncwarp();
  if (lane < n) {
    SVD_UNROLL for (int i = 0; i < K; ++i) shared[lane * kStride + i] = s[i].v;
  }
  __syncwarp();
  SVD_UNROLL for (int x = 0; x < K; ++x) {
    const int number = x * 32 + lane;
    if (number < n * K) to[number] = shared[number / K * kStride + number % K];
  }
}

template <class E, int K>
__device__ __forceinline__ void load_registers(const E* slot, bool row_major, E* a) {
  if (row_major) {
    SVD_UNROLL for (int i = 0; i < K; ++i) { SVD_UNROLL for (int j = 0; j < K; ++j) a[j * K + i] = slot[i * K + j]; }
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

// BIDIAGONAL from registers; the slot is scratch.
template <class E, int K>
__device__ __forceinline__ Lane<typename E::Scalar> bidiagonal_lane(scalar::MatrixView<E> a, int k,
                                                                    const Lane<typename E::Scalar>* given,
                                                                    Lane<typename E::Scalar>* slot,
                                                                    Lane<typename E::Scalar>* s) {
  using L = Lane<typename E::Scalar>;
  const scalar::FixedSize<K> size;
  L exponents[K];
  const auto finite = scalar::scale_matrix<false>(scalar::Alone(), a, size, given, exponents);
  if constexpr (LaneShape<E, K, Method::kBidiagonal>::kInRegisters) {
    L q[K], e[K], backup[2 * K];
    scalar::bidiagonalize(scalar::Alone(), a, size, q, e);
    scalar::bidiagonal_values(size, q, e, backup, slot, s);
  } else {
    L *const q = slot, *const e = q + K;
    scalar::bidiagonalize(scalar::Alone(), a, size, q, e);
    scalar::bidiagonal_values(scalar::RuntimeSize{k}, q, e, e + K, e + 3 * K, q);
    SVD_UNROLL for (int i = 0; i < K; ++i) s[i] = q[i];
  }
  return scalar::finish_values(size, exponents, finite, scalar::ScalarMask{false}, s);
}

// JACOBI in the slot, which has room for exponents and values behind the matrix.
template <class E, int K>
__device__ __forceinline__ Lane<typename E::Scalar> jacobi_lane(const SquareCall<typename E::Scalar>& call,
                                                                const Lane<typename E::Scalar>* given, E* slot,
                                                                Lane<typename E::Scalar>* s) {
  using L = Lane<typename E::Scalar>;
  if (call.row_major) transpose_slot<E, K>(slot);
  L* const exponents = reinterpret_cast<L*>(slot + K * K);
  L* const values = exponents + K;
  const scalar::ValuesTask<L> task{given, L(call.tolerance), call.max_sweeps, exponents, nullptr};
  const L status =
      scalar::matrix_values<Method::kJacobi>(scalar::MatrixView<E>{slot, K}, scalar::FixedSize<K>(), task, values);
  SVD_UNROLL for (int i = 0; i < K; ++i) s[i] = values[i];
  return status;
}

// The first half of BIDIAGONAL, for matrices that fill the registers: dqds wants more threads at once than they leave
// room for, and goes on in finish_kernel.
template <class E, int K>
__global__ void __launch_bounds__(LaneShape<E, K, Method::kBidiagonal>::kBlock)
    lane_bidiagonalize_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using Shape = LaneShape<E, K, Method::kBidiagonal>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T* const slots = reinterpret_cast<T*>(shared_bytes) + static_cast<int>(threadIdx.x) / 32 * 32 * Shape::kSlot;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock + static_cast<int>(threadIdx.x) / 32 * 32;
  const int64_t left = call.count - first;
  if (left <= 0) return;
  const int n = left < 32 ? static_cast<int>(left) : 32;
  load_slots<Shape::kMatrix, Shape::kSlot>(call.a + first * Shape::kMatrix, n * Shape::kMatrix, lane, slots);
  if (lane >= n) return;
  const int64_t m = first + lane;
  E a[K * K];
  load_registers<E, K>(reinterpret_cast<const E*>(slots + lane * Shape::kSlot), call.row_major, a);
  const scalar::MatrixView<E> view{a, K};
  const auto* const given =
      reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * K);
  Lane<T> exponents[K], q[K], e[K];
  const bool finite = scalar::scale_matrix<false>(scalar::Alone(), view, scalar::FixedSize<K>(), given, exponents).m;
  scalar::bidiagonalize(scalar::Alone(), view, scalar::FixedSize<K>(), q, e);
  SVD_UNROLL for (int i = 0; i < K; ++i) to.q[i * call.count + m] = q[i].v;
  SVD_UNROLL for (int i = 0; i < K - 1; ++i) to.e[i * call.count + m] = e[i].v;
  to.exponent[m] = exponents[0].v;
  to.state[m] = T(finite ? kOkState : kNonFiniteState);
}

template <class E, int K, Method kMethod>
__global__ void __launch_bounds__(LaneShape<E, K, kMethod>::kBlock, LaneShape<E, K, kMethod>::kLeastBlocks)
    lane_kernel(const SquareCall<typename E::Scalar> call) {
  using Shape = LaneShape<E, K, kMethod>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T* const slots = reinterpret_cast<T*>(shared_bytes) + static_cast<int>(threadIdx.x) / 32 * 32 * Shape::kSlot;

  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock + static_cast<int>(threadIdx.x) / 32 * 32;
  const int64_t left = call.count - first;
  if (left <= 0) return;
  const int n = left < 32 ? static_cast<int>(left) : 32;
  load_slots<Shape::kMatrix, Shape::kSlot>(call.a + first * Shape::kMatrix, n * Shape::kMatrix, lane, slots);

  Lane<T> s[K];
  if (lane < n) {
    const int64_t m = first + lane;
    T* const slot = slots + lane * Shape::kSlot;
    const auto* const given =
        reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * K);
    Lane<T> status;
    if constexpr (kMethod == Method::kJacobi) {
      status = jacobi_lane<E, K>(call, given, reinterpret_cast<E*>(slot), s);
    } else {
      E a[K * K];
      load_registers<E, K>(reinterpret_cast<const E*>(slot), call.row_major, a);
      status = bidiagonal_lane<E, K>(scalar::MatrixView<E>{a, K}, call.k, given, reinterpret_cast<Lane<T>*>(slot), s);
    }
    record_status(call, m, static_cast<int>(status.v));
  }
  store_values<K>(s, n, lane, slots, call.values + first * K);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANE_KERNEL_H_
