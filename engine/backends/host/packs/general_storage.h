// The memory of the lane kernels of general eigenproblems, and their results.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_STORAGE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_STORAGE_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_STORAGE_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_GENERAL_STORAGE_H_
#endif

#include "engine/algorithms/general/general_eigen.h"
#include "engine/backends/host/packs/pack_access.h"

#if SVD_TARGET_HAS_KERNELS

SVD_KERNEL_BEGIN

// The memory of a call, on the stack and in the call's scratch.
template <class E>
struct GeneralStorage {
  using Lane = typename E::Lane;
  using C = ComplexElement<Lane>;
  using Call = host::GeneralCall<typename E::Scalar>;
  static constexpr int kMost = static_cast<int>(kLargestGeneral);
  Lane d[kMost], parts[2 * kMost];
  C lambda[kMost];

  // Scratch holds h and z, then t.
  GeneralWork<MatrixView<E>, MatrixView<C>, Lane> work(const Call& call) {
    const int k = call.k;
    E* const real = reinterpret_cast<E*>(call.scratch);
    C* const complex = reinterpret_cast<C*>(real + 2 * k * k);
    return {{real, k},
            {real + k * k, k},
            {complex, k},
            {reinterpret_cast<C*>(call.v), k},
            {reinterpret_cast<C*>(call.w), k},
            d,
            lambda,
            parts};
  }
  static GeneralWanted wanted(const Call& call) {
    return {call.vectors, call.w != nullptr, call.conditions != nullptr};
  }
  void store_results(const Call& call, const Lane& status, const Lane (&residuals)[2]) const {
    status.store(call.statuses);
    for (int j = 0; j < call.k; ++j) store_element(lambda[j], call.values + j * C::kComponents * Lane::kLanes);
    for (int side = 0; side < 2; ++side) residuals[side].store(call.residuals + side * Lane::kLanes);
    if (call.conditions == nullptr) return;
    for (int j = 0; j < call.k; ++j) parts[j].store(call.conditions + j * Lane::kLanes);
  }
};

SVD_KERNEL_END

#endif

#endif
