// QR for general matrices (algorithms/general/general_eigen.h), a thread a matrix:
//
//   k <= 4     in registers
//   k <= 32    in the workspace, interlaced: neighbouring threads read neighbouring elements
//
// A matrix whose residual balancing has spoilt is decomposed once more by its thread, without.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_

#include "engine/algorithms/general/general_eigen.h"
#include "engine/backends/cuda/general/general_launch.h"
#include "engine/backends/cuda/lanes/element_access.h"

namespace svdserve::cuda {

inline constexpr int kGeneralBlock = 64;
inline constexpr int kLargestInRegisters = 4;

// One matrix of a call.
template <class E, bool kVectors, class Size, class Work>
struct GeneralTask {
  using T = typename E::Scalar;
  using L = Lane<T>;
  using C = Complex<T>;
  static constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestGeneral);

  const GeneralCall<T>& call;
  const int64_t m;
  const Size k;
  const Work work;

  __device__ __forceinline__ E at(int i, int j) const {
    const E* const matrix = reinterpret_cast<const E*>(call.a) + m * k * k;
    return load_element(matrix + (call.row_major ? i * k + j : j * k + i));
  }

  // NaN where one of them is.
  __device__ __forceinline__ static L worst_of(const L (&squares)[2]) {
    return squares[0].v >= squares[1].v || squares[0].v != squares[0].v ? squares[0] : squares[1];
  }
  __device__ __forceinline__ bool is_spoilt(const L (&squares)[2]) const {
    const T bound = static_cast<T>(kLargestBalancedResidual * k) * FloatTraits<T>::kUnitRoundoff;
    return kVectors && !(worst_of(squares).v <= bound * bound);
  }

  __device__ __forceinline__ void run() const {
    L d[kStorage], squares[2] = {L(T(0)), L(T(0))};
    C lambda[kStorage];
    int status = 0;
#pragma unroll 1
    for (int attempt = 0; attempt < 2; ++attempt) {
      SVD_UNROLL for (int j = 0; j < k; ++j) {
        SVD_UNROLL for (int i = 0; i < k; ++i) {
          if constexpr (E::kComplex) {
            work.t(i, j) = at(i, j);
          } else {
            work.h(i, j) = at(i, j);
          }
        }
      }
      const auto element = [&](int i, int j) { return at(i, j); };
      status = static_cast<int>(
          scalar::general_eigen<kVectors>(work, k, attempt == 1, call.w.data != nullptr, element, d, lambda, squares)
              .v);
      if (status == static_cast<int>(MatrixStatus::kNonFinite) || !is_spoilt(squares)) break;
    }
    store(lambda, squares, status);
  }

 private:
  __device__ __forceinline__ static C written(C x, bool conjugate, bool finite) {
    const L zero(T(0)), nan(FloatTraits<T>::nan());
    return {finite ? x.re + zero : nan, finite ? (conjugate ? -x.im : x.im) + zero : nan};
  }
  template <class A>
  __device__ __forceinline__ void store_vectors(A x, const GeneralVectors<T>& to, bool finite) const {
    if (to.data == nullptr) return;
    C* const first = to.data + m * k * k;
    SVD_UNROLL for (int j = 0; j < k; ++j) {
      SVD_UNROLL for (int i = 0; i < k; ++i) {
        first[i * to.row_stride + j * to.col_stride] = written(x(i, j), to.conjugate, finite);
      }
    }
  }
  __device__ __forceinline__ void store(const C (&lambda)[kStorage], const L (&squares)[2], int status) const {
    const bool finite = status != static_cast<int>(MatrixStatus::kNonFinite);
    SVD_UNROLL for (int j = 0; j < k; ++j) call.values[m * k + j] = written(lambda[j], false, finite);
    if constexpr (kVectors) {
      store_vectors(work.v, call.v, finite);
      store_vectors(work.w, call.w, finite);
    }
    if (call.certificates != nullptr) {
      const T none = finite ? T(0) : FloatTraits<T>::nan();
      T* const numbers = call.certificates + m * kCertificateNumbers;
      numbers[0] = finite ? sqrt(worst_of(squares)).v : none;
      numbers[1] = numbers[2] = none;
    }
    if (call.statuses != nullptr) call.statuses[m] = static_cast<uint8_t>(status);
    if (status != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&call.exception_counts[status]), 1ull);
  }
};

template <class E, int K, bool kVectors>
__global__ void __launch_bounds__(kGeneralBlock) lane_general_kernel(const GeneralCall<typename E::Scalar> call) {
  using C = Complex<typename E::Scalar>;
  using Work = scalar::GeneralWork<scalar::MatrixView<E>, scalar::MatrixView<C>>;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * kGeneralBlock + threadIdx.x;
  if (m >= call.count) return;
  E h[K * K], z[K * K];
  C t[K * K], v[K * K], w[K * K];
  const Work work{{h, K}, {z, K}, {t, K}, {v, K}, {w, K}};
  GeneralTask<E, kVectors, scalar::FixedSize<K>, Work>{call, m, {}, work}.run();
}

template <class E, bool kVectors>
__global__ void __launch_bounds__(kGeneralBlock) interlaced_general_kernel(const GeneralCall<typename E::Scalar> call) {
  using C = Complex<typename E::Scalar>;
  using Work = scalar::GeneralWork<scalar::InterlacedView<E>, scalar::InterlacedView<C>>;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * kGeneralBlock + threadIdx.x;
  if (m >= call.count) return;
  const int k = call.k;
  const int64_t size = static_cast<int64_t>(k) * k * call.count;
  C* const t = static_cast<C*>(call.workspace);
  E* const h = reinterpret_cast<E*>(t + 3 * size);
  const Work work{{h + m, 1, k, call.count},
                  {h + size + m, 1, k, call.count},
                  {t + m, 1, k, call.count},
                  {t + size + m, 1, k, call.count},
                  {t + 2 * size + m, 1, k, call.count}};
  GeneralTask<E, kVectors, scalar::RuntimeSize, Work>{call, m, {k}, work}.run();
}

// --- launching ---------------------------------------------------------------------------------------------------

template <class E, int K>
void launch_general(Launch* launch, const GeneralCall<typename E::Scalar>& call) {
  const unsigned blocks = blocks_for(call.count, kGeneralBlock);
  if constexpr (K <= kLargestInRegisters) {
    if (call.k != K) return launch_general<E, K + 1>(launch, call);
    call.v.data != nullptr ? launch->operator()<lane_general_kernel<E, K, true>>(blocks, kGeneralBlock, 0, call)
                           : launch->operator()<lane_general_kernel<E, K, false>>(blocks, kGeneralBlock, 0, call);
  } else {
    call.v.data != nullptr ? launch->operator()<interlaced_general_kernel<E, true>>(blocks, kGeneralBlock, 0, call)
                           : launch->operator()<interlaced_general_kernel<E, false>>(blocks, kGeneralBlock, 0, call);
  }
}

template <class E>
int64_t GeneralLaunch<E>::workspace_bytes(int k, int64_t count) {
  constexpr int64_t kElement = sizeof(E), kComplex = sizeof(Complex<typename E::Scalar>);
  if (k <= kLargestInRegisters) return 0;
  return count * k * k * (3 * kComplex + (E::kComplex ? 0 : 2 * kElement));
}

template <class E>
void GeneralLaunch<E>::decompose(Launch* launch, const GeneralCall<typename E::Scalar>& call) {
  launch_general<E, 1>(launch, call);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_GENERAL_GENERAL_KERNELS_H_
