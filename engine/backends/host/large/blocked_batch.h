// Batches of larger matrices: one matrix after the other on a thread. BIDIAGONAL is bidiagonal_svd.h, TRIDIAGONAL, which
// Hermitian matrices have, hermitian_eigen.h. JACOBI is the driver of large matrices (blocked_svd.h). Values alone of
// several bidiagonal forms are found at once (bidiagonal_values.h).
//
//   BlockedBatch<T> batch(plan, source, counters);
//   batch.run(first, last, cancel, values);   // from any thread, for disjoint ranges that make up all matrices
//
// The results of a matrix are a function of the plan and the matrix alone.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_BATCH_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_BATCH_H_

#include <atomic>

#include "engine/algorithms/mimo/mimo_task.h"
#include "engine/backends/host/base/matrix_source.h"
#include "engine/backends/host/base/status_counters.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_finish.h"
#include "engine/backends/host/forms/bidiagonal_svd.h"
#include "engine/backends/host/forms/hermitian_eigen.h"
#include "engine/large_engine.h"
#include "engine/planner.h"
#include "engine/vector_layout.h"

namespace svdserve::host {

// T: the real type of the matrices. Thread-safe; refers to what it is given.
template <class T>
class BlockedBatch {
 public:
  // mimo: of the plan; read for gradients alone.
  BlockedBatch(const Plan& plan, const MatrixSource& source, StatusCounters& counters, const MimoTask<T>& mimo);

  // Matrices for a call of run(), where `threads` share `count` of them: as many as are found at once, if each thread has
  // some.
  int64_t matrices_of_task(int64_t count, int threads) const;

  // Writes planes and statuses of the matrices first .. last - 1, and where kept is not null their k values each to it.
  // false: cancelled between two of them. Throws std::bad_alloc.
  bool run(int64_t first, int64_t last, const std::atomic<bool>* cancel, T* kept) const;

 private:
  struct Workspace;
  struct Made;  // what the decomposition of a matrix has given

  bool gathers_values() const { return plan_.host_method == Method::kBidiagonal && !plan_.outputs.vectors(); }
  void compute(Workspace& workspace, MatrixSource::Slot slot, T* values) const;
  bool compute_values(Workspace& workspace, int64_t first, int count, const std::atomic<bool>* cancel, T* values) const;
  const char* operand_of(Workspace& workspace, const char* matrix) const;
  template <class E>
  StridedMatrix<E> tall_operand(const void* operand) const;
  Made decompose(Workspace& workspace, const void* operand, T* values) const;
  template <class E>
  MatrixStatus bidiagonal(Workspace& workspace, BidiagonalSvd<E>& svd, const void* operand, T* values) const;
  template <class E>
  MatrixStatus tridiagonal(Workspace& workspace, HermitianEigen<E>& eigen, const E* operand, T* values) const;
  template <class E>
  void finish_vectors_of(Workspace& workspace, BlockedFinish<E>& blocked, const PlacedMatrix& x, const PlacedMatrix& y,
                         const MatrixSource::Slot& slot, const T* values) const;
  template <class E>
  void write_gradients(Workspace& workspace, BlockedFinish<E>& blocked, const PlacedMatrix& x, const PlacedMatrix& y,
                       const MatrixSource::Slot& slot, const T* values) const;
  void write_vectors(Workspace& workspace, const Made& made, const MatrixSource::Slot& slot, const T* values) const;
  void write_nan(const MatrixSource::Slot& slot, T* values) const;
  void write_values(const MatrixSource::Slot& slot, MatrixStatus status, const T* values) const;
  void copy_columns(const T* from, const VectorLayout& made, const VectorLayout& wanted,
                    const MatrixSource::Slot& slot) const;
  char* plane_of(const MatrixSource::Slot& slot, const VectorLayout& layout) const;

  const Plan& plan_;
  const MatrixSource& source_;
  StatusCounters& counters_;
  const MimoTask<T>& mimo_;
  const int64_t k_;
  const size_t components_;  // numbers of an element
  const LargePlan factor_plan_;
  const BlasThreads one_thread_a_call_;
};

extern template class BlockedBatch<float>;
extern template class BlockedBatch<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_BLOCKED_BATCH_H_
