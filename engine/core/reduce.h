// The one order of summation. Up to 8 terms are added one after the other. More are dealt to 8 partial sums, term i to
// partial i mod 8, each added in ascending order, and the partials are joined by a tree:
//
//   ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
//
// which is what 8 threads do that exchange with neighbours at distance 4, 2, 1. One thread, a pack, a warp or a block
// therefore gets the same bits. A term is fused into its partial sum.
//
// tree_sum_of() has the tree for any number of terms, and +0 for a sum of zeros. So terms that are zero do not matter.
// Nor does it matter which partial is the first: the tree is the same if all numbers are shifted modulo 8. It may have
// more partials than 8, a power of two, where more threads add.
#if defined(SVDSERVE_ENGINE_CORE_REDUCE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_REDUCE_H_
#undef SVDSERVE_ENGINE_CORE_REDUCE_H_
#else
#define SVDSERVE_ENGINE_CORE_REDUCE_H_
#endif

#include "engine/core/element.h"

SVD_KERNEL_BEGIN

// Sum is a lane or an element; add(sum, i) returns sum + term i; there are n terms.
template <class Sum, class Add>
SVD_HD Sum sum_of(int n, const Sum& zero, Add add) {
  if (n <= 8) {
    Sum s = zero;
    SVD_UNROLL for (int i = 0; i < n; ++i) s = add(s, i);
    return s;
  }
  Sum s[8];
  SVD_UNROLL for (int p = 0; p < 8; ++p) s[p] = add(zero, p);
  int i = 8;
  for (; i + 8 <= n; i += 8) {
    SVD_UNROLL for (int p = 0; p < 8; ++p) s[p] = add(s[p], i + p);
  }
  SVD_UNROLL for (int p = 0; p < 8; ++p) {
    if (i + p < n) s[p] = add(s[p], i + p);
  }
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

template <int kPartials = 8, class Sum, class Add>
SVD_HD Sum tree_sum_of(int n, const Sum& zero, Add add) {
  Sum s[kPartials];
  SVD_UNROLL for (int p = 0; p < kPartials; ++p) s[p] = p < n ? add(zero, p) : zero;
  int i = kPartials;
  for (; i + kPartials <= n; i += kPartials) {
    SVD_UNROLL for (int p = 0; p < kPartials; ++p) s[p] = add(s[p], i + p);
  }
  SVD_UNROLL for (int p = 0; p < kPartials; ++p) {
    if (i + p < n) s[p] = add(s[p], i + p);
  }
  SVD_UNROLL for (int half = kPartials / 2; half > 0; half /= 2) {
    SVD_UNROLL for (int p = 0; p < half; ++p) s[p] = s[p] + s[p + half];
  }
  return s[0] + zero;
}

// As sum_of(), of k terms that are sums themselves. Where k is known at run time only, the code has one add and compiles
// in half the time. sum_of() has 25, each with the 32 of the inner sum.
template <class Size, class Sum, class Add>
SVD_HD Sum sum_of_sums(Size k, const Sum& zero, Add add) {
  if constexpr (Size::kValue != 0) {
    return sum_of(k, zero, add);
  } else {
    const int partials = k <= 8 ? 1 : 8;
    Sum s[8];
    for (int p = 0; p < partials; ++p) {
      Sum partial = zero;
      for (int i = p; i < k; i += partials) partial = add(partial, i);
      s[p] = partial;
    }
    return k <= 8 ? s[0] : ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
}

// |x|^2 of the n elements x(0) .. x(n - 1)
template <class E, class Get>
SVD_HD typename E::Lane sum_of_squares(int n, Get x) {
  using Lane = typename E::Lane;
  return sum_of(n, Lane(0), [&](Lane s, int i) SVD_LAMBDA { return add_square(s, E(x(i))); });
}

// x^H y
template <class E, class GetX, class GetY>
SVD_HD E inner_product(int n, GetX x, GetY y) {
  return sum_of(n, zero_element<E>(), [&](const E& s, int i) SVD_LAMBDA { return add_product(s, E(x(i)), E(y(i))); });
}

SVD_KERNEL_END

#endif
