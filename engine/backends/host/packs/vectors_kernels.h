// The lane kernels of singular values and vectors.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VECTORS_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VECTORS_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VECTORS_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VECTORS_KERNELS_H_
#endif

#include "engine/algorithms/lanes/jacobi_vectors.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <class E, class Size>
SVD_HD void compute_vectors(const host::VectorsCall<typename E::Scalar>& call, Size k, MatrixView<E> x,
                            MatrixView<E> y) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestInLanes);
  load_matrix(call, k, x);
  Lane given[kStorage], s[kStorage], rank[kStorage];
  ColumnScale<Lane> scales[kStorage];
  if (call.exponents != nullptr) {
    SVD_UNROLL for (int j = 0; j < k; ++j) given[j] = Lane::load(call.exponents + j * Lane::kLanes);
  }
  jacobi_vectors(x, y, k, call.exponents != nullptr ? given : nullptr, Lane(call.tolerance), call.max_sweeps, scales, s,
                 rank)
      .store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    s[j].store(call.values + j * Lane::kLanes);
    rank[j].store(call.ranks + j * Lane::kLanes);
  }
}

template <class E, int K>
void fixed_vectors(const host::VectorsCall<typename E::Scalar>& call) {
  constexpr int kStep = E::kComponents * E::Lane::kLanes;
  E x[K * K], y[K * K];
  compute_vectors<E>(call, FixedSize<K>(), MatrixView<E>{x, K}, MatrixView<E>{y, K});
  for (int i = 0; i < K * K; ++i) {
    store_element(x[i], call.x + i * kStep);
    store_element(y[i], call.y + i * kStep);
  }
}

template <class E>
void runtime_vectors(const host::VectorsCall<typename E::Scalar>& call) {
  compute_vectors<E>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.x), call.k},
                     MatrixView<E>{reinterpret_cast<E*>(call.y), call.k});
}

template <class Wide, class Narrow, int... kBelow>
void list_vectors(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.vectors[0] = runtime_vectors<Wide>;
  ((tables.wide.vectors[kBelow + 1] = fixed_vectors<Wide, kBelow + 1>), ...);
  tables.narrow.vectors[0] = runtime_vectors<Narrow>;
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kVectors>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_vectors<Wide, Narrow>(SizesBelow<host::kLargestFixedVectors>(), tables);
}

SVD_KERNEL_END

#endif

#endif
