// BISECTION as it was published: interlaced storage, one thread a matrix for the bidiagonalization, one thread a value
// for the bisection.
//
//   interlace_kernel      natural -> interlaced storage                               32 x 32 elements a block
//   bidiagonal_kernel     A -> alpha, beta^2 of T = B^T B (Between)                    a thread a matrix
//   bisection_kernel      alpha, beta^2 -> s                                          a thread a value, 2-D grid
//   finish_kernel         as for the other methods (team_kernels.h)
// Source: Capozzoli, Curcio, Di Donna, Liseno, Electronics 2025, 14(16), 3217, section 3. Theirs keeps the matrix in
// global memory throughout; here a matrix of k <= kLargestFixedSize is read once, into registers.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_BISECTION_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_BISECTION_KERNELS_H_

#include "engine/backends/cuda/device/kernel_call.h"

namespace svdserve::cuda {

inline constexpr int kInterlaceTile = 32;

// Element x of matrix m goes to [x * count + m]. Blocks of kInterlaceTile x 8 threads; grid: matrices, elements.
template <class E>
__global__ void interlace_kernel(const SquareCall<typename E::Scalar> call, E* to) {
  // Storage for E without its constructor.
  __shared__ __align__(16) unsigned char tile_bytes[kInterlaceTile * (kInterlaceTile + 1) * sizeof(E)];
  E(*const tile)[kInterlaceTile + 1] = reinterpret_cast<E(*)[kInterlaceTile + 1]>(tile_bytes);
  const int size = call.k * call.k;
  const int64_t first_matrix = static_cast<int64_t>(blockIdx.x) * kInterlaceTile;
  const int first_element = static_cast<int>(blockIdx.y) * kInterlaceTile;
  const E* const from = reinterpret_cast<const E*>(call.a);
  for (int r = threadIdx.y; r < kInterlaceTile; r += blockDim.y) {
    const int64_t m = first_matrix + r;
    const int x = first_element + static_cast<int>(threadIdx.x);
    if (m < call.count && x < size) tile[r][threadIdx.x] = from[m * size + x];
  }
  __syncthreads();
  for (int r = threadIdx.y; r < kInterlaceTile; r += blockDim.y) {
    const int64_t m = first_matrix + threadIdx.x;
    const int x = first_element + r;
    if (m < call.count && x < size) to[x * call.count + m] = tile[threadIdx.x][r];
  }
}

template <class T, class Size>
__device__ __forceinline__ void store_tridiagonal(Size k, Lane<T>* q, Lane<T>* e, Lane<T> exponent, bool finite,
                                                  int64_t count, int64_t m, const Between<T>& to) {
  scalar::form_tridiagonal(k, q, e);
  SVD_UNROLL for (int i = 0; i < k; ++i) to.q[i * count + m] = q[i].v;
  SVD_UNROLL for (int i = 0; i < k - 1; ++i) to.e[i * count + m] = e[i].v;
  to.exponent[m] = exponent.v;
  to.state[m] = T(finite ? kOkState : kNonFiniteState);
}

// K = 0: k is known at run time, and the matrix stays where it is.
template <class E, int K>
__global__ void __launch_bounds__(128)
    bidiagonal_kernel(const SquareCall<typename E::Scalar> call, E* interlaced, const Between<typename E::Scalar> to) {
  using T = typename E::Scalar;
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= call.count) return;
  const auto* const given =
      reinterpret_cast<const Lane<T>*>(call.exponents == nullptr ? nullptr : call.exponents + m * call.k);
  if constexpr (K != 0) {
    const scalar::FixedSize<K> k;
    E storage[K * K];
    SVD_UNROLL for (int i = 0; i < K; ++i) {
      SVD_UNROLL for (int j = 0; j < K; ++j) {
        storage[j * K + i] = interlaced[(call.row_major ? i * K + j : j * K + i) * call.count + m];
      }
    }
    const scalar::MatrixView<E> a{storage, K};
    Lane<T> exponents[K], q[K], e[K];
    const bool finite = scalar::scaled_bidiagonal(scalar::Alone(), a, k, given, exponents, q, e).m;
    store_tridiagonal(k, q, e, exponents[0], finite, call.count, m, to);
  } else {
    const scalar::RuntimeSize k{call.k};
    const int row_step = call.row_major ? call.k : 1, col_step = call.row_major ? 1 : call.k;
    const scalar::InterlacedView<E> a{interlaced + m, row_step, col_step, call.count};
    Lane<T> exponents[kLargestReproducible], q[kLargestReproducible], e[kLargestReproducible];
    const bool finite = scalar::scaled_bidiagonal(scalar::Alone(), a, k, given, exponents, q, e).m;
    store_tridiagonal(k, q, e, exponents[0], finite, call.count, m, to);
  }
}

// Grid: matrices, values. Value j of matrix m, ascending, goes to s, interlaced. K as above.
template <class T, int K>
__global__ void __launch_bounds__(128) bisection_kernel(const SquareCall<T> call, const Between<T> from, T* s) {
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= call.count) return;
  using Size = std::conditional_t<K != 0, scalar::FixedSize<K>, scalar::RuntimeSize>;
  Size k;
  if constexpr (K == 0) k.n = call.k;
  constexpr int kStorage = K != 0 ? K : static_cast<int>(kLargestReproducible);
  const int j = static_cast<int>(blockIdx.y);
  Lane<T> alpha[kStorage], beta2[kStorage];
  SVD_UNROLL for (int i = 0; i < k; ++i) alpha[i] = Lane<T>(from.q[i * call.count + m]);
  SVD_UNROLL for (int i = 0; i < k - 1; ++i) beta2[i] = Lane<T>(from.e[i * call.count + m]);
  const auto start = scalar::bisection_start(k, alpha, beta2);
  auto open = Lane<T>::mask(false);
  const Lane<T> value = scalar::bisect_one(
      k, [&](int i) { return alpha[i]; }, [&](int i) { return beta2[i]; }, start, Lane<T>(call.tolerance), j, &open);
  s[j * call.count + m] = value.v;
  if (open.m) from.state[m] = T(kNotConvergedState);  // of a finite matrix: the others are zero, and end at once
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_BISECTION_KERNELS_H_
