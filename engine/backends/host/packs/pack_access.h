// Shared by the lane kernels: how a kernel reads its matrices, and the names that make a part of them.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACK_ACCESS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACK_ACCESS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACK_ACCESS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_PACK_ACCESS_H_
#endif

#include <type_traits>
#include <utility>

#include "engine/backends/host/packs/kernel_table.h"
#include "engine/core/view.h"

// A target without a fused multiply-add instruction would need a call for each one: it is served by the scalar lane.
#undef SVD_TARGET_HAS_KERNELS
#if !defined(HWY_HIGHWAY_INCLUDED) || HWY_NATIVE_FMA
#define SVD_TARGET_HAS_KERNELS 1
#else
#define SVD_TARGET_HAS_KERNELS 0
#endif

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

// A part's header overloads list_part() for its tag. Wide and Narrow: the element types of both tables.
template <host::KernelPart kPart>
using PartTag = std::integral_constant<host::KernelPart, kPart>;

// 0 .. n - 1, one less than the sizes that have kernels of their own.
template <int n>
using SizesBelow = std::make_integer_sequence<int, n>;

// call: any with a, row_stride and col_stride.
template <class E, class Call, class Size>
SVD_HD void load_matrix(const Call& call, Size k, MatrixView<E> a) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      a(i, j) = load_element<E>(call.a + static_cast<ptrdiff_t>(i * call.row_stride + j * call.col_stride) * kStep);
    }
  }
}

SVD_KERNEL_END

#endif

#endif
