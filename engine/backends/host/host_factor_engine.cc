// The factor engine of the host: an arena of threads, and a back end for each decomposition.
#include <complex>

#include "engine/algorithms/block_jacobi.h"
#include "engine/backends/host/blas.h"
#include "engine/backends/host/host_factor_backend.h"
#include "engine/large_factor.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve {
namespace {

// Matrices of the order of the triangle that are held at once beside the operand's copy; what block_jacobi.h takes.
constexpr uint64_t kTrianglesForValues = 3;
constexpr uint64_t kTrianglesForVectors = 6;

class HostFactorEngine : public FactorEngine {
 public:
  explicit HostFactorEngine(int threads)
      : threads_(threads > 0 ? threads : oneapi::tbb::info::default_concurrency()), arena_(threads_) {}

  FactorMemory memory(const FactorPlan& plan) const override {
    const uint64_t m = std::max(plan.problem.rows, plan.problem.cols), n = plan.values;
    const uint64_t element = is_complex(plan.problem.dtype) ? 16 : 8;
    const bool vectors = plan.left_columns > 0;
    const uint64_t left = vectors ? m * std::max(plan.left_columns, plan.right_rows) : 0;
    const uint64_t squares = (vectors ? kTrianglesForVectors : kTrianglesForValues) * n * n;
    // LAPACK's divide and conquer takes four more for a warm start, before there is any basis.
    const uint64_t entries = m * n + std::max(squares + left, uint64_t{7} * n * n);
    return {entries * element + (uint64_t{1} << 20), 0};
  }

  FactorOutcome decompose(const FactorPlan& plan, const FactorOperands& operands,
                          const FactorControl& control) const override {
    const host::FpEnvironment environment;
    return is_complex(plan.problem.dtype) ? run<std::complex<double>>(plan, operands, control)
                                          : run<double>(plan, operands, control);
  }

 private:
  template <class E>
  FactorOutcome run(const FactorPlan& plan, const FactorOperands& operands, const FactorControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const factor::FactorWatch watch(control);
    host::HostFactorBackend<E> backend(host::FactorThreads(&arena_, threads_, &watch));
    return factor::block_jacobi(backend, plan, operands, control);
  }

  const int threads_;
  mutable oneapi::tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<FactorEngine> make_host_factor_engine(int threads) {
  return std::make_unique<HostFactorEngine>(threads);
}

}  // namespace svdserve
