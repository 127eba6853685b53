// Matrices in natural storage, as the planes of a batch hold them (engine/vector_layout.h). Element (i, j) lies at
// i * row_stride + j * col_stride elements from `data`, conjugated where it says so. One lane; not owned.
//
// Written elements are canonical: every zero is +0, also that of a conjugated imaginary part. In host memory `data` may
// have any alignment, in device memory that of a component.
#if defined(SVDSERVE_ENGINE_CORE_STRIDED_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_STRIDED_H_
#undef SVDSERVE_ENGINE_CORE_STRIDED_H_
#else
#define SVDSERVE_ENGINE_CORE_STRIDED_H_
#endif

#include <cstdint>
#include <cstring>

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

// x with every zero +0.
template <class E>
SVD_HD E canonical(E x) {
  const typename E::Lane zero(0);
  x.re = x.re + zero;
  if constexpr (E::kComplex) x.im = x.im + zero;
  return x;
}

// Byte: char, or const char for a matrix that is only read.
template <class E, class Byte = char>
struct StridedMatrix {
  using Element = E;
  using T = typename E::Scalar;
  static_assert(E::Lane::kLanes == 1);

  Byte* data;
  int64_t row_stride, col_stride;
  bool conjugate;

  SVD_HD E operator()(int i, int j) const {
    T numbers[E::kComponents];
    Byte* const from = at(i, j);
#if defined(__CUDA_ARCH__)
    SVD_UNROLL for (int c = 0; c < E::kComponents; ++c) numbers[c] = reinterpret_cast<const T*>(from)[c];
#else
    std::memcpy(numbers, from, sizeof(numbers));
#endif
    const E x = load_element<E>(numbers);
    return conjugate ? conj(x) : x;
  }

  SVD_HD void set(int i, int j, const E& x) const { store(i, j, canonical(conjugate ? conj(x) : x)); }

  // The one NaN, in every component.
  SVD_HD void set_nan(int i, int j) const {
    const typename E::Lane nan(FloatTraits<T>::nan());
    E x;
    x.re = nan;
    if constexpr (E::kComplex) x.im = nan;
    store(i, j, x);
  }

 private:
  SVD_HD Byte* at(int i, int j) const {
    return data + (i * row_stride + j * col_stride) * static_cast<int64_t>(sizeof(T) * E::kComponents);
  }
  SVD_HD void store(int i, int j, const E& x) const {
    T numbers[E::kComponents];
    store_element(x, numbers);
    Byte* const to = at(i, j);
#if defined(__CUDA_ARCH__)
    SVD_UNROLL for (int c = 0; c < E::kComponents; ++c) reinterpret_cast<T*>(to)[c] = numbers[c];
#else
    std::memcpy(to, numbers, sizeof(numbers));
#endif
  }
};

// The columns of a matrix of vectors that are there. f(i, j) is called for every element of the columns first .. last -
// 1, in the order of storage.
template <class E>
struct VectorMatrix {
  StridedMatrix<E> at;
  int rows, columns;

  template <class Team, class F>
  SVD_HD void for_each(const Team& team, int first, int last, F f) const {
    const int width = last - first, height = rows;
    const bool by_columns = at.row_stride <= at.col_stride;
    team.for_each(0, height * width, [&](int x) SVD_LAMBDA {
      by_columns ? f(x % height, first + x / height) : f(x / width, first + x % width);
    });
  }
};

SVD_KERNEL_END

#endif
