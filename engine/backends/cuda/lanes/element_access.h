// Elements between registers and memory, in as few accesses as their bytes allow. A complex one takes one access; several
// beside each other go in vectors of 16 bytes. Memory is aligned to an element.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_ELEMENT_ACCESS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_ELEMENT_ACCESS_H_

#include "engine/backends/cuda/lanes/lane_kernel.h"

namespace svdserve::cuda {

template <class E>
__device__ __forceinline__ E load_element(const E* from) {
  using T = typename E::Scalar;
  if constexpr (E::kComplex) {
    const auto v = *reinterpret_cast<const Vector<T, 2>*>(from);
    return {Lane<T>(v.x[0]), Lane<T>(v.x[1])};
  } else {
    return *from;
  }
}
template <class E>
__device__ __forceinline__ void store_element(const E& x, E* to) {
  using T = typename E::Scalar;
  if constexpr (E::kComplex) {
    *reinterpret_cast<Vector<T, 2>*>(to) = {{x.re.v, x.im.v}};
  } else {
    *to = x;
  }
}

// Bytes of the longest vectors, of up to 16, that make up a run of so many bytes.
constexpr int run_vector_bytes(int bytes) { return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 2; }

// n elements beside each other, by such vectors where they begin at a multiple of one.
template <class E, int n>
struct ElementRun {
  using T = typename E::Scalar;
  static constexpr int kBytes = run_vector_bytes(n * static_cast<int>(sizeof(E)));
  static constexpr int kNumbers = kBytes / static_cast<int>(sizeof(T)), kVectors = n * E::kComponents / kNumbers;
  using V = Vector<T, kNumbers>;

  static __device__ __forceinline__ bool begins_at(const E* p) { return reinterpret_cast<uintptr_t>(p) % kBytes == 0; }
  static __device__ __forceinline__ void load(const E* from, E (&to)[n]) {
    SVD_UNROLL for (int x = 0; x < kVectors; ++x) {
      const V v = reinterpret_cast<const V*>(from)[x];
      SVD_UNROLL for (int i = 0; i < kNumbers; ++i) number(to, x * kNumbers + i) = Lane<T>(v.x[i]);
    }
  }
  static __device__ __forceinline__ void store(E (&from)[n], E* to) {
    SVD_UNROLL for (int x = 0; x < kVectors; ++x) {
      V v;
      SVD_UNROLL for (int i = 0; i < kNumbers; ++i) v.x[i] = number(from, x * kNumbers + i).v;
      reinterpret_cast<V*>(to)[x] = v;
    }
  }

 private:
  static __device__ __forceinline__ Lane<T>& number(E (&x)[n], int i) {
    if constexpr (E::kComplex) {
      return i % 2 == 0 ? x[i / 2].re : x[i / 2].im;
    } else {
      return x[i].re;
    }
  }
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_ELEMENT_ACCESS_H_
