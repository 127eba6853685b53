// Batches of larger matrices: one matrix after the other on a thread, by the blocked Jacobi method (small_factor.h).
//
//   FactorBatch<T> batch(plan, source, counters);
//   batch.run(first, last, cancel, values);   // from any thread, for disjoint ranges that make up all matrices
//
// What a matrix becomes is a function of the plan and the matrix alone.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FACTOR_BATCH_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FACTOR_BATCH_H_

#include <atomic>

#include "engine/backends/host/blas.h"
#include "engine/backends/host/matrix_source.h"
#include "engine/backends/host/status_counters.h"
#include "engine/large_factor.h"
#include "engine/planner.h"
#include "engine/vector_layout.h"

namespace svdserve::host {

// Least k of a factor batch; below, matrices are lanes of packs. A choice by the plan alone, for the bits are not the
// same. Measured on one core with AVX-512, a factor's time relative to a lane's of a full pack: with vectors 1.8 (f64,
// c64) for k = 33, 1.05 and 1.2 for 64, 0.5 and 0.6 for 128; values alone 3, 1.5 and 1.8, 0.85 and 0.95, and 1.0 and
// 1.2 for 96. A lane of a pack that has no other matrix takes 4 to 20 times as long, and that is what decides between
// equals. With vectors all beyond the k of equal bits are factors: decisions/0008-beyond-32-values.md.
inline constexpr int64_t kLeastFactorWithVectors = kLargestReproducible + 1, kLeastFactorOfValues = 96;
inline bool is_factor_batch(const Plan& plan) {
  return values_per_matrix(plan.problem) >= (plan.outputs.vectors() ? kLeastFactorWithVectors : kLeastFactorOfValues);
}
// The k of packs are smaller.
inline constexpr int64_t kPackLimit = kLeastFactorOfValues;

// T: the real type of the matrices. Thread-safe; refers to what it is given.
template <class T>
class FactorBatch {
 public:
  FactorBatch(const Plan& plan, const MatrixSource& source, StatusCounters& counters);

  // Writes planes and statuses of the matrices first .. last - 1, and where kept is not null their k values each to it.
  // false: cancelled between two of them. Throws std::bad_alloc.
  bool run(int64_t first, int64_t last, const std::atomic<bool>* cancel, T* kept) const;

 private:
  struct Workspace;

  void compute(Workspace& workspace, const MatrixSource::Slot& slot, T* values) const;
  MatrixStatus decompose(Workspace& workspace, const char* matrix, T* values) const;
  void write_vectors(Workspace& workspace, const MatrixSource::Slot& slot, const T* values) const;
  void write_nan(const MatrixSource::Slot& slot, T* values) const;
  void copy_columns(const T* from, const VectorLayout& made, const VectorLayout& wanted,
                    const MatrixSource::Slot& slot) const;
  char* plane_of(const MatrixSource::Slot& slot, const VectorLayout& layout) const;

  const Plan& plan_;
  const MatrixSource& source_;
  StatusCounters& counters_;
  const int64_t k_;
  const size_t components_;  // numbers of an element
  const FactorPlan factor_plan_;
  const Outputs made_;  // the thin U and V^H that the factorization gives
  const BlasThreads one_thread_a_call_;
};

extern template class FactorBatch<float>;
extern template class FactorBatch<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FACTOR_BATCH_H_
