// The lane kernels of Hermitian eigenproblems.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_HERMITIAN_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_HERMITIAN_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_HERMITIAN_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_HERMITIAN_KERNELS_H_
#endif

#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <class E, class Size>
SVD_HD void compute_hermitian(const host::HermitianCall<typename E::Scalar>& call, Size k, MatrixView<E> u,
                              MatrixView<E> m) {
  using Lane = typename E::Lane;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestReproducible);
  load_matrix(call, k, m);
  Lane lambda[kStorage], rank[kStorage];
  ColumnScale<Lane> scales[kStorage];
  hermitian_eigen(u, m, k, call.upper, Lane(call.tolerance), call.max_sweeps, scales, lambda, rank)
      .store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j].store(call.values + j * Lane::kLanes);
    rank[j].store(call.ranks + j * Lane::kLanes);
  }
}

template <class E, int K>
void fixed_hermitian(const host::HermitianCall<typename E::Scalar>& call) {
  E u[K * K], m[K * K];
  compute_hermitian<E>(call, FixedSize<K>(), MatrixView<E>{u, K}, MatrixView<E>{m, K});
  for (int i = 0; i < K * K; ++i) store_element(u[i], call.u + i * E::kComponents * E::Lane::kLanes);
}

template <class E>
void runtime_hermitian(const host::HermitianCall<typename E::Scalar>& call) {
  compute_hermitian<E>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.u), call.k},
                       MatrixView<E>{reinterpret_cast<E*>(call.scratch), call.k});
}

template <class Wide, class Narrow, int... kBelow>
void list_hermitian(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.hermitian[0] = runtime_hermitian<Wide>;
  ((tables.wide.hermitian[kBelow + 1] = fixed_hermitian<Wide, kBelow + 1>), ...);
  tables.narrow.hermitian[0] = runtime_hermitian<Narrow>;
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kHermitian>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_hermitian<Wide, Narrow>(SizesBelow<host::kLargestFixedVectors>(), tables);
}

SVD_KERNEL_END

#endif

#endif
