// The second stage of a task that is asked for MIMO answers: from the singular values of its matrices to their planes.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_STAGE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_STAGE_H_

#include "engine/backends/host/base/matrix_source.h"
#include "engine/backends/host/mimo/answer_kernels.h"
#include "engine/planner.h"

namespace svdserve::host {

// T: the real type of the matrices. Made once a call, thread-safe then; refers to what it is given.
template <class T>
class AnswerStage {
 public:
  AnswerStage(const Plan& plan, const AnswerKernels<T>& kernels, const MatrixSource& source);

  // values: k of each of the matrices first .. last - 1, which are whole groups. Throws std::bad_alloc.
  void run(const T* values, int64_t first, int64_t last) const;
  // The task of single matrices.
  const MimoTask<T>& task() const { return task_; }

 private:
  template <class F>
  void for_each_plane_of_matrices(F f) const;
  size_t numbers_per_matrix() const;
  void answer_pack(const T* values, int64_t first, int n) const;
  void answer_group(const T* values, int64_t first) const;
  char* group_plane(int64_t first, Plane plane) const;

  const Plan& plan_;
  const AnswerKernels<T>& kernels_;
  const MatrixSource& source_;
  const MimoTask<T> task_;             // of matrices
  const MimoTask<double> group_task_;  // of groups
};

extern template class AnswerStage<float>;
extern template class AnswerStage<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_STAGE_H_
