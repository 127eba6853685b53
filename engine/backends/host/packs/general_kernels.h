// The lane kernels of general eigenproblems.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_KERNELS_H_
#endif

#include "engine/algorithms/general/general_eigen.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

template <bool kVectors, class E>
void compute_general(const host::GeneralCall<typename E::Scalar>& call) {
  using Lane = typename E::Lane;
  using C = ComplexElement<Lane>;
  constexpr int kStorage = static_cast<int>(kLargestGeneral);
  const RuntimeSize k{call.k};
  // Scratch holds h and z, then t.
  E* const real = reinterpret_cast<E*>(call.scratch);
  C* const complex = reinterpret_cast<C*>(real + 2 * k * k);
  Lane d[kStorage], parts[2 * kStorage], residuals[2] = {Lane(0), Lane(0)};
  C lambda[kStorage];
  const GeneralWork<MatrixView<E>, MatrixView<C>, Lane> work{{real, k},
                                                             {real + k * k, k},
                                                             {complex, k},
                                                             {reinterpret_cast<C*>(call.v), k},
                                                             {reinterpret_cast<C*>(call.w), k},
                                                             d,
                                                             lambda,
                                                             parts};
  const auto load = [&](MatrixView<E> a) SVD_LAMBDA { load_matrix(call, k, a); };
  general_eigen<kVectors>(Alone(), work, k, call.plain, call.w != nullptr, load, residuals).store(call.statuses);
  SVD_UNROLL for (int j = 0; j < k; ++j) store_element(lambda[j], call.values + j * C::kComponents * Lane::kLanes);
  for (int side = 0; side < 2; ++side) residuals[side].store(call.residuals + side * Lane::kLanes);
}

template <class E>
void general_kernel(const host::GeneralCall<typename E::Scalar>& call) {
  call.v != nullptr ? compute_general<true, E>(call) : compute_general<false, E>(call);
}

template <class Wide, class Narrow>
void list_part(PartTag<host::KernelPart::kGeneral>, host::KernelTables<typename Wide::Scalar>& tables) {
  tables.wide.general = general_kernel<Wide>;
  tables.narrow.general = general_kernel<Narrow>;
}

SVD_KERNEL_END

#endif

#endif
