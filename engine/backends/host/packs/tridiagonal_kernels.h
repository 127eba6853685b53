// The lane kernels of small Hermitian eigenproblems by TRIDIAGONAL.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TRIDIAGONAL_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TRIDIAGONAL_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TRIDIAGONAL_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_TRIDIAGONAL_KERNELS_H_
#endif

#include <algorithm>

#include "engine/algorithms/lanes/tridiagonal_ql.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <class E, class Size>
SVD_HD void compute_tridiagonal(const host::HermitianCall<typename E::Scalar>& call, Size k) {
  using Lane = typename E::Lane;
  using R = RealElement<Lane>;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : kLargestTridiagonal;
  E u[kStorage * kStorage], m[kStorage * kStorage];
  R z[kStorage * kStorage];
  Lane lambda[kStorage], rank[kStorage];
  const MatrixView<E> matrix{m, k};
  load_matrix(call, k, matrix);
  tridiagonal_eigen(MatrixView<E>{u, k}, matrix, MatrixView<R>{z, k}, k, call.upper, lambda, rank).store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j].store(call.values + j * Lane::kLanes);
    rank[j].store(call.ranks + j * Lane::kLanes);
  }
  for (int i = 0; i < k * k; ++i) store_element(u[i], call.u + i * E::kComponents * E::Lane::kLanes);
}

template <class E, int K>
void fixed_tridiagonal(const host::HermitianCall<typename E::Scalar>& call) {
  compute_tridiagonal<E>(call, FixedSize<K>());
}

template <class E>
void runtime_tridiagonal(const host::HermitianCall<typename E::Scalar>& call) {
  compute_tridiagonal<E>(call, RuntimeSize{call.k});
}

template <class Wide, class Narrow, int... kBelow>
void list_tridiagonal(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.tridiagonal[0] = runtime_tridiagonal<Wide>;
  ((tables.wide.tridiagonal[kBelow + 1] = fixed_tridiagonal<Wide, kBelow + 1>), ...);
  tables.narrow.tridiagonal[0] = runtime_tridiagonal<Narrow>;
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kTridiagonal>, host::KernelTables<typename Wide::Scalar>& tables) {
  constexpr int kSizes = std::min(host::kLargestFixedVectors, kLargestTridiagonal);
  list_tridiagonal<Wide, Narrow>(SizesBelow<kSizes>(), tables);
}

SVD_KERNEL_END

#endif

#endif
