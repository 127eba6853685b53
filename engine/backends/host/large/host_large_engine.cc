// The engine of large matrices on the host: an arena of threads, and a back end for each decomposition.
#include <algorithm>
#include <complex>

#include "engine/algorithms/large/large_driver.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/general_eigenproblem.h"
#include "engine/backends/host/large/host_large_backend.h"
#include "engine/backends/host/large/host_tall_operand.h"
#include "engine/backends/host/large/host_work_speeds.h"
#include "engine/large_engine.h"
#include "engine/planner.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve {
namespace {

// n x n matrices that block_jacobi.h holds at once beside the operand's copy. Values alone take X, which is the second
// of two behind a second QR, and those in which a warm start makes its eigenbasis. Vectors take X, R_2, X_2, W, and two to polish it with, or four beside a basis that
// is stored.
constexpr uint64_t kTrianglesForValues = 1;
constexpr uint64_t kTrianglesForValuesByEigenbasis = 5;
constexpr uint64_t kTrianglesForVectors = 6;
constexpr uint64_t kTrianglesBesideBasis = 4;
// The most bytes that small blocks kept by the pool, and scratch of threads, take.
constexpr uint64_t kMostSlackBytes = 32 << 20;

// The slack of a factor whose matrices take `bytes`. The pool keeps no more than there was once. Each thread has some
// twelve k x k matrices for a pair of blocks with k columns, and columns of all n rows where it needs its QR.
uint64_t slack_bytes(uint64_t bytes, uint64_t n, uint64_t element, int threads) {
  const uint64_t k = std::min(n, 2 * static_cast<uint64_t>(host_large_block_width(static_cast<int64_t>(n))));
  constexpr uint64_t kLists = 64 << 10;
  const uint64_t scratch = static_cast<uint64_t>(threads) * (16 * k * k + 2 * n * k) * element + kLists;
  return std::min(kMostSlackBytes, bytes + scratch);
}

// hermitian_tridiagonal.h on `threads` threads: M, V, a product, and the eigensolver's memory. That has panels, the
// vectors of the tridiagonal matrix, those of two halves that are joined, and columns of each thread's products. The
// last three are real. In single precision there are copies of M and V, too.
uint64_t tridiagonal_bytes(const LargePlan& plan, int threads) {
  const auto n = static_cast<uint64_t>(plan.values);
  const uint64_t element = is_complex(plan.problem.dtype) ? sizeof(std::complex<double>) : sizeof(double);
  const uint64_t parts = std::min(n + static_cast<uint64_t>(threads), static_cast<uint64_t>(threads) * 128);
  const bool single = large::precision_of_results(plan.problem.dtype) == large::Precision::kSingle;
  const uint64_t real = single ? sizeof(float) : sizeof(double);
  const uint64_t bytes = (single ? 4 : 3) * n * n * element + (2 * n + parts) * n * real + 256 * n * element;
  return bytes + slack_bytes(bytes, n, element, threads);
}

// hermitian_factored.h on `threads` threads: G, and the SVD of G with U. Before that M and G, after it U and the basis.
// The certificate has a QR of G beside G, and after the SVD G J G^H, U and two products.
uint64_t factored_bytes(const LargePlan& plan, int threads) {
  const auto m = static_cast<uint64_t>(plan.problem.rows), n = static_cast<uint64_t>(plan.problem.cols);
  const uint64_t element = is_complex(plan.problem.dtype) ? sizeof(std::complex<double>) : sizeof(double);
  uint64_t entries = m * n + std::max(kTrianglesForVectors * n * n, kTrianglesBesideBasis * n * n + m * n);
  entries = std::max(entries, m * n + m * m);
  if (plan.options.certificate) entries = std::max(entries, 3 * m * m + 2 * m * n);
  const uint64_t bytes = entries * element;
  return bytes + slack_bytes(bytes, n, element, threads);
}

// leading_triplets.h beside the operand: its subspace, R and the SVD of R, blocks, and bases of k columns with their
// residuals. Random numbers are doubles of the caller's. Without a subspace the bases alone.
uint64_t leading_entries(const LargePlan& plan) {
  if (plan.options.top_k == 0) return 0;
  const auto m = static_cast<uint64_t>(plan.problem.rows), n = static_cast<uint64_t>(plan.problem.cols);
  const auto k = static_cast<uint64_t>(plan.values), d = static_cast<uint64_t>(plan.subspace_columns);
  const auto b = static_cast<uint64_t>(d > 0 ? subspace_block(plan.values) : 0);
  const uint64_t small = std::max(d, k);
  return (m + n) * (d + 4 * b + 3 * k) + (2 + kTrianglesForVectors) * small * small;
}

// The states of block_jacobi.h on `threads` threads: Q and R; R_2 and X_0; X and W, and those before the last sweep. A
// tall operand has its factors in its own memory, and in the basis.
uint64_t svd_state_bytes(const LargePlan& plan, int threads) {
  const auto m = static_cast<uint64_t>(std::max(plan.problem.rows, plan.problem.cols));
  const auto n = static_cast<uint64_t>(std::min(plan.problem.rows, plan.problem.cols));
  const uint64_t element = is_complex(plan.problem.dtype) ? sizeof(std::complex<double>) : sizeof(double);
  const bool vectors = plan.left_columns > 0 || plan.right_rows > 0;
  const bool tall = host::takes_tall_operand(plan);
  const uint64_t blocks = n / static_cast<uint64_t>(host_large_block_width(static_cast<int64_t>(n))) + 2;
  constexpr uint64_t kNamesAndNumbers = 16 << 10, kArraysOfRows = 3 * 8, kArraysOfColumns = 16 * 8;
  uint64_t bytes = (vectors && !tall ? m * n + 6 * n * n : vectors ? 7 * n * n : 3 * n * n) * element;
  if (tall) bytes += std::max(plan.left_bytes(), plan.right_bytes()) + host::tall_operand_bytes(plan, threads);
  if (!tall) bytes += kArraysOfRows * m;
  return bytes + kArraysOfColumns * n + sizeof(int32_t) * blocks * blocks + kNamesAndNumbers;
}

uint64_t triangles_for_values(const LargePlan& plan) {
  return large::may_start_by_eigenbasis(plan) ? kTrianglesForValuesByEigenbasis : kTrianglesForValues;
}

class HostLargeEngine : public LargeEngine {
 public:
  explicit HostLargeEngine(int threads)
      : threads_(threads > 0 ? threads : oneapi::tbb::info::default_concurrency()),
        speeds_(host::host_work_speeds(threads_)),
        arena_(threads_) {}

  LargeWorkspace memory(const LargePlan& plan, uint64_t /*device_room*/) const override {
    if (plan.options.kind == LargeKind::kGeneral) return {host::general_eigenproblem_bytes(plan, threads_), 0};
    if (large::is_factored(plan)) return {factored_bytes(plan, threads_), 0};
    if (plan.options.method == Method::kTridiagonal) return {tridiagonal_bytes(plan, threads_), 0};
    const uint64_t m = std::max(plan.problem.rows, plan.problem.cols);
    const uint64_t n = std::min(plan.problem.rows, plan.problem.cols);
    const uint64_t element = is_complex(plan.problem.dtype) ? 16 : 8;
    if (host::takes_tall_operand(plan)) {
      const uint64_t triangles = plan.left_columns > 0 ? kTrianglesForVectors : triangles_for_values(plan);
      const uint64_t entries = std::max(triangles * n * n, leading_entries(plan));
      const uint64_t bytes = entries * element + host::tall_operand_bytes(plan, threads_);
      return {bytes + slack_bytes(bytes, n, element, threads_), 0};
    }
    const uint64_t left = std::max(plan.left_columns, plan.right_rows);  // of the tall matrix's bases, the larger one
    uint64_t entries = m * n + triangles_for_values(plan) * n * n;
    if (left > 0) {
      entries = m * n + std::max(kTrianglesForVectors * n * n, kTrianglesBesideBasis * n * n + m * left);
      // Both bases as they were stored, their Gram matrix, the operand.
      if (plan.options.certificate) entries = std::max(entries, m * left + n * n + left * left + m * n);
    }
    if (plan.options.top_k > 0) entries = std::max(entries, m * n + leading_entries(plan));
    const uint64_t bytes = entries * element;
    return {bytes + slack_bytes(bytes, n, element, threads_), 0};
  }

  double predicted_seconds(const LargePlan& plan) const override { return large::predicted_seconds(plan, speeds_); }

  uint64_t state_bytes(const LargePlan& plan) const override {
    if (!large::has_states(plan)) return 0;
    if (!large::is_factored(plan)) return svd_state_bytes(plan, threads_);
    return svd_state_bytes(large::factor_svd_plan(plan, plan.problem.cols, LargeKind::kHyperbolicSvd), threads_);
  }

  LargeOutcome decompose(const LargePlan& plan, const LargeOperands& operands,
                         const LargeControl& control) const override {
    const host::FpEnvironment environment;
    if (plan.options.kind == LargeKind::kGeneral) return run_general(plan, operands, control);
    return is_complex(plan.problem.dtype) ? run<std::complex<double>>(plan, operands, control)
                                          : run<double>(plan, operands, control);
  }

 private:
  template <class E>
  LargeOutcome run(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const large::LargeWatch watch(control);
    host::HostLargeBackend<E> backend(host::LargeThreads(&arena_, threads_, &watch));
    return large::decompose(backend, plan, operands, control);
  }

  LargeOutcome run_general(const LargePlan& plan, const LargeOperands& operands, const LargeControl& control) const {
    const host::BlasThreads one_thread_a_call;
    const large::LargeWatch watch(control);
    return host::general_eigenproblem(host::LargeThreads(&arena_, threads_, &watch), plan, operands, control);
  }

  const int threads_;
  const large::WorkSpeeds speeds_;  // known from here on, so that decompose() needs no memory for it
  mutable oneapi::tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<LargeEngine> make_host_large_engine(int threads) { return std::make_unique<HostLargeEngine>(threads); }

}  // namespace svdserve
