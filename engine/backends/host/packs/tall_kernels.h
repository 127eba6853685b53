// The lane kernels of the tall-skinny QR, and what is true of all kernels of a table.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TALL_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TALL_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TALL_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TALL_KERNELS_H_
#endif

#include "engine/algorithms/tall/qr.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <class E>
void store_triangle(MatrixView<E> a, int k, int rows, typename E::Scalar* r) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) {
      store_element(j >= i && i < rows ? a(i, j) : zero_element<E>(), r + (i * k + j) * kStep);
    }
  }
}

template <class E>
void tile_kernel(const host::TileCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  constexpr int kStep = E::kComponents * Lane::kLanes;
  const MatrixView<E> a{reinterpret_cast<E*>(call.scratch), call.rows};
  for (int j = 0; j < call.k; ++j) {
    const Pow2<Lane> scale = make_pow2(-Lane::load(call.exponents + j * Lane::kLanes));
    for (int i = 0; i < call.rows; ++i) a(i, j) = scaled(load_element<E>(call.a + (i * call.k + j) * kStep), scale);
  }
  tall_qr(Alone(), a, call.rows, RuntimeSize{call.k});
  store_triangle(a, call.k, call.rows, call.r);
}

template <class E>
void join_kernel(const host::JoinCall<typename E::Scalar>& call) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  const int k = call.k;
  const MatrixView<E> top{reinterpret_cast<E*>(call.scratch), k};
  const MatrixView<E> bottom{reinterpret_cast<E*>(call.scratch) + k * k, k};
  for (int i = 0; i < k; ++i) {
    for (int j = i; j < k; ++j) {
      top(i, j) = load_element<E>(call.top + (i * k + j) * kStep);
      bottom(i, j) = load_element<E>(call.bottom + (i * k + j) * kStep);
    }
  }
  join_qr(Alone(), top, bottom, RuntimeSize{k});
  store_triangle(top, k, k, call.top);
}

template <class E>
MatrixView<E> packed_view(const typename E::Scalar* data, int ld) {
  return {reinterpret_cast<E*>(const_cast<typename E::Scalar*>(data)), ld};
}

template <class E>
void keep_tile_kernel(const host::KeepTileCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  const int k = call.k, rows = call.rows;
  const auto a = packed_view<E>(call.a, rows), r = packed_view<E>(call.r, k);
  for (int j = 0; j < k; ++j) {
    const Pow2<Lane> scale = make_pow2(-Lane::load(call.exponents + j * Lane::kLanes));
    for (int i = 0; i < rows; ++i) a(i, j) = scaled(a(i, j), scale);
  }
  E diagonal[kLargestInLanes];
  keep_tall_qr(Alone(), a, rows, RuntimeSize{k}, reinterpret_cast<Lane*>(call.g), diagonal);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) r(i, j) = i < j ? a(i, j) : i == j ? diagonal[j] : zero_element<E>();
  }
}

template <class E>
void keep_join_kernel(const host::KeepJoinCall<typename E::Scalar>& call) {
  keep_join_qr(Alone(), packed_view<E>(call.top, call.k), packed_view<E>(call.bottom, call.k), RuntimeSize{call.k},
               reinterpret_cast<typename E::Lane*>(call.g), reinterpret_cast<E*>(call.heads));
}

template <class E>
void apply_tile_kernel(const host::ApplyTileCall<typename E::Scalar>& call) {
  const int k = call.k, rows = call.rows;
  const auto y = packed_view<E>(call.y, rows), top = packed_view<E>(call.top, k);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < rows; ++i) y(i, j) = i < k ? top(i, j) : zero_element<E>();
  }
  apply_tall_q(Alone(), packed_view<E>(call.factor, rows), rows, k, reinterpret_cast<const typename E::Lane*>(call.g),
               y, k);
}

template <class E>
void apply_join_kernel(const host::ApplyJoinCall<typename E::Scalar>& call) {
  const int k = call.k;
  const auto factor = packed_view<E>(call.factor, k), bottom = packed_view<E>(call.scratch, k);
  apply_join_q(Alone(), factor, k, reinterpret_cast<const typename E::Lane*>(call.g),
               reinterpret_cast<const E*>(call.heads), packed_view<E>(call.top, k), bottom, k);
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) factor(i, j) = bottom(i, j);
  }
}

template <class E>
void list_tall(host::KernelTable<typename E::Scalar>& table) {
  table.lanes = E::Lane::kLanes;
  table.components = E::kComponents;
  table.tile = tile_kernel<E>;
  table.join = join_kernel<E>;
  table.keep_tile = keep_tile_kernel<E>;
  table.keep_join = keep_join_kernel<E>;
  table.apply_tile = apply_tile_kernel<E>;
  table.apply_join = apply_join_kernel<E>;
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kTall>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_tall<Wide>(tables.wide);
  list_tall<Narrow>(tables.narrow);
}

SVD_KERNEL_END

#endif

#endif
