// Sizes and views of the kernels. A size is either known to the compiler (k <= kLargestFixedSize: loops unroll, arrays
// become registers) or a number. Both convert to int, so an algorithm is written once.
#if defined(SVDSERVE_ENGINE_CORE_VIEW_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_VIEW_H_
#undef SVDSERVE_ENGINE_CORE_VIEW_H_
#else
#define SVDSERVE_ENGINE_CORE_VIEW_H_
#endif

#include <cstdint>

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

template <int N>
struct FixedSize {
  static constexpr int kValue = N, kLimit = 0;  // 0 means: known at run time; no bound
  SVD_HD constexpr operator int() const { return N; }
};
struct RuntimeSize {
  static constexpr int kValue = 0, kLimit = 0;
  int n;
  SVD_HD constexpr operator int() const { return n; }
};
// A number up to N.
template <int N>
struct BoundedSize {
  static constexpr int kValue = 0, kLimit = N;
  int n;
  SVD_HD constexpr operator int() const { return n; }
};

// f(0) .. f(n - 1). Where a bound is known the loop is unrolled that far, so that arrays that f indexes stay in registers.
template <class Size, class F>
SVD_HD void for_each_below(int n, F f) {
  if constexpr (Size::kLimit != 0) {
    SVD_UNROLL for (int i = 0; i < Size::kLimit; ++i) {
      if (i >= n) break;
      f(i);
    }
  } else {
    SVD_UNROLL for (int i = 0; i < n; ++i) f(i);
  }
}

// An m x n matrix of elements in each lane, column-major with leading dimension ld (in elements). Not owned.
template <class E>
struct MatrixView {
  using Element = E;
  E* data;
  int ld;
  SVD_HD E& operator()(int i, int j) const { return data[j * ld + i]; }
};

// The same in interlaced storage: between neighbouring elements of a matrix lie those of the other matrices of the
// batch, count of them. Steps in elements of one matrix. Not owned.
template <class E>
struct InterlacedView {
  using Element = E;
  E* data;
  int row_step, col_step;
  int64_t count;
  SVD_HD E& operator()(int i, int j) const { return data[(i * row_step + j * col_step) * count]; }
};

// A matrix that is not wanted: algorithms leave out what is done to it.
template <class E>
struct NoMatrix {
  using Element = E;
};
template <class A>
inline constexpr bool kIsWanted = true;
template <class E>
inline constexpr bool kIsWanted<NoMatrix<E>> = false;

SVD_KERNEL_END

#endif
