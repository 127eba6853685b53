// The lane kernels of singular values alone: BIDIAGONAL, BISECTION and JACOBI.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VALUES_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VALUES_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VALUES_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_VALUES_KERNELS_H_
#endif

#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <Method kMethod, class E, class Size>
SVD_HD void compute_values(const host::ValuesCall<typename E::Scalar>& call, Size k, MatrixView<E> a) {
  using Lane = typename E::Lane;
  constexpr int kStorage = storage_of<kMethod, Size>;
  load_matrix(call, k, a);
  Lane given[kStorage], exponents[kStorage], kept[3 * kStorage], s[kStorage];
  if (call.exponents != nullptr) {
    SVD_UNROLL for (int j = 0; j < k; ++j) given[j] = Lane::load(call.exponents + j * Lane::kLanes);
  }
  const ValuesTask<Lane> task{call.exponents != nullptr ? given : nullptr, Lane(call.tolerance), call.max_sweeps,
                              exponents, kept};
  matrix_values<kMethod>(a, k, task, s).store(call.statuses);
  SVD_UNROLL for (int i = 0; i < k; ++i) s[i].store(call.values + i * Lane::kLanes);
}

template <Method kMethod, class E, int K>
void fixed_values(const host::ValuesCall<typename E::Scalar>& call) {
  E storage[K * K];
  compute_values<kMethod>(call, FixedSize<K>(), MatrixView<E>{storage, K});
}

template <Method kMethod, class E>
void runtime_values(const host::ValuesCall<typename E::Scalar>& call) {
  compute_values<kMethod>(call, RuntimeSize{call.k}, MatrixView<E>{reinterpret_cast<E*>(call.scratch), call.k});
}

template <Method kMethod, class Wide, class Narrow, int... kBelow>
void list_values(std::integer_sequence<int, kBelow...>, host::KernelTables<typename Wide::Scalar>& tables) {
  auto& wide = tables.wide.values[host::index_of(kMethod)];
  wide[0] = runtime_values<kMethod, Wide>;
  ((wide[kBelow + 1] = fixed_values<kMethod, Wide, kBelow + 1>), ...);
  tables.narrow.values[host::index_of(kMethod)][0] = runtime_values<kMethod, Narrow>;
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kBidiagonal>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_values<Method::kBidiagonal, Wide, Narrow>(SizesBelow<host::kLargestFixedValues>(), tables);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kBisection>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_values<Method::kBisection, Wide, Narrow>(SizesBelow<host::kLargestFixedValues>(), tables);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kJacobi>, host::KernelTables<typename Wide::Scalar>& tables) {
  list_values<Method::kJacobi, Wide, Narrow>(SizesBelow<host::kLargestFixedValues>(), tables);
}

SVD_KERNEL_END

#endif

#endif
