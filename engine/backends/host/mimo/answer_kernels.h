// Lane kernels that make MIMO answers of singular values, behind plain function pointers as in kernel_table.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNELS_H_

#include <cstdint>

#include "engine/algorithms/mimo/mimo_task.h"
#include "engine/execution.h"

namespace svdserve::host {

// Numbers of a matrix with k values: the values, a term and the three numbers of a stream of each.
constexpr size_t answer_scratch(size_t k) { return 5 * k; }

// The answers of one pack of matrices. Number snr * k + i of a matrix is the stream SNR i.
template <class T>
struct AnswersCall {
  const MimoTask<T>* task;
  const T* values;     // [in] packed, k a matrix
  T* planes[kPlanes];  // [out] each packed, or null where it is not wanted
  T* scratch;          // answer_scratch(k) packed numbers, aligned to a pack

  T* operator[](Plane plane) const { return planes[index_of(plane)]; }
};

// A group's streams are padded with values of 0, which change no bit, to a multiple of this.
inline constexpr int64_t kStreamPadding = 8;

// The capacities of one group, in double precision whatever the matrices are.
struct GroupCall {
  const MimoTask<double>* task;
  double power;           // the number of matrices
  int64_t streams;        // padded
  const double* values;   // [in] of all matrices, one after the other
  double* scratch;        // 3 * streams, aligned to kAlignment
  double* capacity;       // [out] snr_count, or null
  double* water_filling;  // [out] snr_count, or null
};

template <class T>
struct AnswerKernels {
  int lanes;
  void (*matrices)(const AnswersCall<T>&);
  void (*group)(const GroupCall&);
};

// Null where this build or this processor has not the instructions; never for kScalar.
const AnswerKernels<float>* f32_answers(Simd simd);
const AnswerKernels<double>* f64_answers(Simd simd);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNELS_H_
