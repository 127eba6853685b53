// Engines of large matrices that are a driver on a back end of the test's own.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_BACK_END_ENGINE_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_BACK_END_ENGINE_H_

#include <complex>
#include <cstdint>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/large_engine.h"

namespace svdserve::numerics {

// Own: derived from it, with, for E = double and std::complex<double>,
//   outcome_of<E>(watch, plan, operands, control)
template <class Own>
class BackEndEngine : public LargeEngine {
 public:
  LargeWorkspace memory(const LargePlan& /*plan*/, uint64_t /*device_room*/) const override { return {}; }
  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    return is_complex(plan.problem.dtype) ? of_elements<std::complex<double>>(plan, operands, control)
                                          : of_elements<double>(plan, operands, control);
  }

 private:
  template <class E>
  LargeOutcome of_elements(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const large::LargeWatch watch(control);
    return static_cast<const Own&>(*this).template outcome_of<E>(watch, plan, operands, control);
  }
};

// The drivers of all kinds but general eigenproblems, and that of SVDs alone, which compiles in a third of the time.
struct EveryDriver {
  template <class BackEnd>
  LargeOutcome operator()(BackEnd& back_end, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    return large::decompose(back_end, plan, operands, control);
  }
};
struct SvdDriver {
  template <class BackEnd>
  LargeOutcome operator()(BackEnd& back_end, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    return large::block_jacobi(back_end, plan, operands, control);
  }
};

// SVDs on a BackEnd<E> of one thread.
template <template <class> class BackEnd>
class EngineOf final : public BackEndEngine<EngineOf<BackEnd>> {
 public:
  template <class E>
  LargeOutcome outcome_of(const large::LargeWatch& watch, const LargePlan& plan, const LargeOperands& operands,
                          const LargeControl& control) const {
    BackEnd<E> back_end(host::LargeThreads(nullptr, 1, &watch));
    return SvdDriver()(back_end, plan, operands, control);
  }
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_BACK_END_ENGINE_H_
