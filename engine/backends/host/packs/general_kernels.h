// The lane kernels of general eigenproblems by QR.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#endif

#include "engine/backends/host/packs/general_storage.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <bool kVectors, class E>
void compute_general(const host::GeneralCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  GeneralStorage<E> storage;
  Lane residuals[2] = {Lane(0), Lane(0)};
  const auto load = [&](MatrixView<E> a) SVD_LAMBDA { load_matrix(call, RuntimeSize{call.k}, a); };
  const Lane status = general_eigen<kVectors>(Alone(), storage.work(call), RuntimeSize{call.k}, call.plain,
                                              storage.wanted(call), load, residuals);
  storage.store_results(call, status, residuals);
}

template <class E>
void general_kernel(const host::GeneralCall<typename E::Scalar>& call) {
  call.vectors ? compute_general<true, E>(call) : compute_general<false, E>(call);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kGeneral>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.general = general_kernel<Wide>;
  tables.narrow.general = general_kernel<Narrow>;
}

SVD_KERNEL_END

#endif

#endif
