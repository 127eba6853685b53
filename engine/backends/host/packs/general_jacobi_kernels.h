// The lane kernels of general eigenproblems by JACOBI.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_JACOBI_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_JACOBI_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_JACOBI_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_JACOBI_KERNELS_H_
#endif

#include "engine/algorithms/general/general_jacobi.h"
#include "engine/backends/host/packs/general_storage.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

// v := V_0 of a call that has one.
template <class T, class C>
void load_start_of(const host::GeneralCall<T>& call, MatrixView<C> v) {
  constexpr int kStep = C::kComponents * C::Lane::kLanes;
  for (int j = 0; j < call.k; ++j) {
    for (int i = 0; i < call.k; ++i) {
      v(i, j) = load_element<C>(call.start + static_cast<ptrdiff_t>(i * call.row_stride + j * call.col_stride) * kStep);
    }
  }
}

template <class E>
void general_jacobi_kernel(const host::GeneralCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  GeneralStorage<E> storage;
  PairTransform<Lane> transforms[round_robin_pairs(GeneralStorage<E>::kMost)];
  Lane residuals[2] = {Lane(0), Lane(0)};
  const auto load = [&](MatrixView<E> a) SVD_LAMBDA { load_matrix(call, RuntimeSize{call.k}, a); };
  const auto load_start = [&](auto v) SVD_LAMBDA { load_start_of(call, v); };
  const GeneralStart<decltype(load_start)> start{call.start != nullptr, load_start};
  const Lane status = general_jacobi(Alone(), storage.work(call), RuntimeSize{call.k}, call.max_sweeps,
                                     storage.wanted(call), start, transforms, load, residuals);
  storage.store_results(call, status, residuals);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kGeneralJacobi>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.general_jacobi = general_jacobi_kernel<Wide>;
  tables.narrow.general_jacobi = general_jacobi_kernel<Narrow>;
}

SVD_KERNEL_END

#endif

#endif
