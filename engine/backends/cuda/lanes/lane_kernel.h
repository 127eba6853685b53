// k <= kLargestFixedSize: one matrix a thread.
//
// A warp reads its 32 matrices as one contiguous run and turns them in shared memory. Matrix t lies in slot t. Slots have
// an odd number of words, or of vectors: so threads that read the same element of their own matrices hit different
// banks. Warps do not wait for each other. BIDIAGONAL then goes on in registers, with the slots as scratch. dqds of
// k > largest_register_dqds() stays in the slots, as JACOBI does. Both index by run-time numbers, and unrolled their
// code would not fit the instruction cache.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_LANE_KERNEL_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_LANE_KERNEL_H_

#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

template <class E, int K, Method kMethod>
struct LaneShape {
  using T = typename E::Scalar;
  static constexpr int kMatrix = K * K * E::kComponents;  // numbers of a matrix
  static constexpr bool kInRegisters = K <= largest_register_dqds(sizeof(T));
  // JACOBI keeps exponents and values beside the matrix. BIDIAGONAL gives the matrix up for its scratch: the operands of
  // bisection, and where dqds has no registers its arrays and their backup.
  static constexpr int kScratch = kInRegisters ? 3 * K : 7 * K;
  static constexpr int kNumbers = kMatrix + (kMethod == Method::kJacobi ? 2 * K : 0);
  // A matrix that goes on in registers is read from its slot once: by vectors of 16 bytes where it consists of them.
  static constexpr int kVector =
      kMethod == Method::kBidiagonal && kMatrix * sizeof(T) % 16 == 0 ? 16 / static_cast<int>(sizeof(T)) : 1;
  static constexpr int kSlot = (kNumbers / kVector | 1) * kVector;
  static constexpr int kScratchSlot = kMethod == Method::kBidiagonal ? kScratch | 1 : kSlot;
  static constexpr int kLargerSlot = kSlot > kScratchSlot ? kSlot : kScratchSlot;
  static constexpr int kBlock = lane_block(kLargerSlot * static_cast<int>(sizeof(T)));
  // The compiler's least number of blocks on a multiprocessor. BIDIAGONAL, 1: it takes the registers that it needs;
  // left to itself it spills a few for one block more. JACOBI, 0: it decides, and more threads beat more registers.
  static constexpr int kLeastBlocks = kMethod == Method::kBidiagonal ? 1 : 0;
  static constexpr int kSharedBytes = kBlock * kLargerSlot * static_cast<int>(sizeof(T));
};

template <class T, int kNumbers>
struct alignas(kNumbers * sizeof(T)) Vector {
  T x[kNumbers];
};

// n numbers from global memory into the slots of a warp, kMatrix numbers each.
template <int kMatrix, int kSlot, class T>
__device__ __forceinline__ void load_slots(const T* __restrict__ from, int n, int lane, T* slots) {
  constexpr int kVector = 16 / sizeof(T);
  using V = Vector<T, kVector>;
  const auto slot_of = [](int number) { return number + number / kMatrix * (kSlot - kMatrix); };
  const auto to_slot = [&](int at, const V& v) {
    if constexpr (kMatrix % kVector == 0) {  // a vector does not straddle matrices
      T* const to = slots + slot_of(at * kVector);
      if constexpr (kSlot % kVector == 0) {
        *reinterpret_cast<V*>(to) = v;
      } else {
        SVD_UNROLL for (int c = 0; c < kVector; ++c) to[c] = v.x[c];
      }
    } else {
      SVD_UNROLL for (int c = 0; c < kVector; ++c) slots[slot_of(at * kVector + c)] = v.x[c];
    }
  };
  if (n == 32 * kMatrix && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    constexpr int kVectors = 32 * kMatrix / kVector, kLoads = (kVectors + 31) / 32;
    constexpr int kFlight = kLoads < 8 ? kLoads : 8;  // of a thread
    const V* const vectors = reinterpret_cast<const V*>(from);
    SVD_UNROLL for (int first = 0; first < kLoads; first += kFlight) {
      V v[kFlight];
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = (first + x) * 32 + lane;
        if (at < kVectors) v[x] = vectors[at];
      }
      SVD_UNROLL for (int x = 0; x < kFlight; ++x) {
        const int at = (first + x) * 32 + lane;
        if (at < kVectors) to_slot(at, v[x]);
      }
    }
  } else {  // the last warp, or matrices at an odd address
    _Pragma("unroll 1") for (int number = lane; number < n; number += 32) slots[slot_of(number)] = from[number];
  }
  __syncwarp();
}

// A thread's values where they belong, as wide as they come; else through shared memory, so that a warp's leave in one
// run. n: its matrices.
template <int K, class T>
__device__ __forceinline__ void store_values(const Lane<T>* s, int n, int lane, T* shared, T* to) {
  constexpr int kBytes = K * static_cast<int>(sizeof(T)), kWidth = kBytes < 16 ? kBytes : 16;
  if constexpr (kBytes <= 32 && kBytes % kWidth == 0 && (kWidth & (kWidth - 1)) == 0) {
    if (reinterpret_cast<uintptr_t>(to) % kWidth == 0) {
      constexpr int kVector = kWidth / static_cast<int>(sizeof(T));
      using V = Vector<T, kVector>;
      if (lane >= n) return;
      SVD_UNROLL for (int i = 0; i < K; i += kVector) {
        V v;
        SVD_UNROLL for (int c = 0; c < kVector; ++c) v.x[c] = s[i + c].v;
        *reinterpret_cast<V*>(to + lane * K + i) = v;
      }
      return;
    }
  }
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

template <class E, int K, int kVector>
__device__ __forceinline__ void load_registers(const typename E::Scalar* slot, bool row_major, E* a) {
  using T = typename E::Scalar;
  using V = Vector<T, kVector>;
  constexpr int kMatrix = K * K * E::kComponents;
  T numbers[kMatrix];
  SVD_UNROLL for (int x = 0; x < kMatrix; x += kVector) {
    const V v = *reinterpret_cast<const V*>(slot + x);
    SVD_UNROLL for (int c = 0; c < kVector; ++c) numbers[x + c] = v.x[c];
  }
  SVD_UNROLL for (int j = 0; j < K; ++j) {
    SVD_UNROLL for (int i = 0; i < K; ++i) {
      const int at = (j * K + i) * E::kComponents, transposed = (i * K + j) * E::kComponents;
      a[j * K + i].re.v = row_major ? numbers[transposed] : numbers[at];
      if constexpr (E::kComplex) a[j * K + i].im.v = row_major ? numbers[transposed + 1] : numbers[at + 1];
    }
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
  using T = typename E::Scalar;
  using L = Lane<T>;
  const scalar::FixedSize<K> size;
  L exponents[K];
  if constexpr (LaneShape<E, K, Method::kBidiagonal>::kInRegisters) {
    return scalar::matrix_values<Method::kBidiagonal>(a, size, {given, L(T(0)), 0, exponents, slot}, s);
  } else {
    // The steps of it, with dqds in the slot, for a size that the compiler does not know.
    L *const q = slot, *const e = q + K;
    const auto finite = scalar::scaled_bidiagonal(scalar::Alone(), a, size, given, exponents, q, e);
    scalar::bidiagonal_values(scalar::RuntimeSize{k}, q, e, e + K, e + 3 * K, q);
    SVD_UNROLL for (int i = 0; i < K; ++i) s[i] = q[i];
    const auto exponent = [&](int) { return exponents[0]; };
    return scalar::finish_values(size, exponent, finite, scalar::ScalarMask{false}, s);
  }
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

// The first half of BIDIAGONAL, for matrices that fill the registers. dqds wants more threads at once than they leave
// room for, so it runs in finish_kernel.
template <class E, int K>
__global__ void __launch_bounds__(LaneShape<E, K, Method::kBidiagonal>::kBlock)
    lane_bidiagonalize_kernel(const SquareCall<typename E::Scalar> call, const Between<typename E::Scalar> to) {
  using Shape = LaneShape<E, K, Method::kBidiagonal>;
  using T = typename E::Scalar;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  T* const slots = reinterpret_cast<T*>(shared_bytes) + static_cast<int>(threadIdx.x) / 32 * 32 * Shape::kLargerSlot;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock + static_cast<int>(threadIdx.x) / 32 * 32;
  const int64_t left = call.count - first;
  if (left <= 0) return;
  const int n = left < 32 ? static_cast<int>(left) : 32;
  load_slots<Shape::kMatrix, Shape::kSlot>(call.a + first * Shape::kMatrix, n * Shape::kMatrix, lane, slots);
  if (lane >= n) return;
  const int64_t m = first + lane;
  E a[K * K];
  load_registers<E, K, Shape::kVector>(slots + lane * Shape::kSlot, call.row_major, a);
  const scalar::MatrixView<E> view{a, K};
  const auto* const given =
      reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * K);
  Lane<T> exponents[K], q[K], e[K];
  const bool finite =
      scalar::scaled_bidiagonal(scalar::Alone(), view, scalar::FixedSize<K>(), given, exponents, q, e).m;
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
  T* const slots = reinterpret_cast<T*>(shared_bytes) + static_cast<int>(threadIdx.x) / 32 * 32 * Shape::kLargerSlot;

  const int64_t first = static_cast<int64_t>(blockIdx.x) * Shape::kBlock + static_cast<int>(threadIdx.x) / 32 * 32;
  const int64_t left = call.count - first;
  if (left <= 0) return;
  const int n = left < 32 ? static_cast<int>(left) : 32;
  load_slots<Shape::kMatrix, Shape::kSlot>(call.a + first * Shape::kMatrix, n * Shape::kMatrix, lane, slots);

  Lane<T> s[K];
  E a[K * K];
  if constexpr (kMethod == Method::kBidiagonal) {
    if (lane < n) load_registers<E, K, Shape::kVector>(slots + lane * Shape::kSlot, call.row_major, a);
    __syncwarp();  // the slots become scratch
  }
  if (lane < n) {
    const int64_t m = first + lane;
    T* const slot = slots + lane * Shape::kScratchSlot;
    const auto* const given =
        reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * K);
    Lane<T> status;
    if constexpr (kMethod == Method::kJacobi) {
      status = jacobi_lane<E, K>(call, given, reinterpret_cast<E*>(slot), s);
    } else {
      status = bidiagonal_lane<E, K>(scalar::MatrixView<E>{a, K}, call.k, given, reinterpret_cast<Lane<T>*>(slot), s);
    }
    record_status(call, m, static_cast<int>(status.v));
  }
  store_values<K>(s, n, lane, slots, call.values + first * K);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_LANE_KERNEL_H_
