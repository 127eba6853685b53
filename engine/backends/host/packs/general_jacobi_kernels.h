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

template <bool kVectors, class E>
void compute_general_jacobi(const host::GeneralCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  GeneralStorage<E> storage;
  PairTransform<Lane> transforms[round_robin_pairs(GeneralStorage<E>::kMost)];
  Lane residuals[2] = {Lane(0), Lane(0)};
  const auto load = [&](MatrixView<E> a) SVD_LAMBDA { load_matrix(call, RuntimeSize{call.k}, a); };
  const Lane status = general_jacobi<kVectors>(Alone(), storage.work(call), RuntimeSize{call.k}, call.max_sweeps,
                                               call.w != nullptr, transforms, load, residuals);
  storage.store_results(call, status, residuals);
}

template <class E>
void general_jacobi_kernel(const host::GeneralCall<typename E::Scalar>& call) {
  call.vectors ? compute_general_jacobi<true, E>(call) : compute_general_jacobi<false, E>(call);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kGeneralJacobi>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.general_jacobi = general_jacobi_kernel<Wide>;
  tables.narrow.general_jacobi = general_jacobi_kernel<Narrow>;
}

SVD_KERNEL_END

#endif

#endif
