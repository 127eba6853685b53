#include "engine/backends/host/mimo/answer_stage.h"

#include <algorithm>

#include "engine/backends/host/packs/packing.h"
#include "engine/core/float_traits.h"

namespace svdserve::host {
namespace {

template <class T>
MimoTask<T> task_of(const Plan& plan) {
  const Outputs& o = plan.outputs;
  return make_mimo_task<T>(plan.problem.rows, plan.problem.cols, o.snr.data(), o.snr_count, o.rank_threshold);
}

// The buffers that one thread keeps from call to call.
template <class T>
struct AnswerBuffers {
  AlignedBuffer<T> values, answers, matrix_scratch;
  AlignedBuffer<double> group_values, scratch;

  static AnswerBuffers& of_this_thread() {
    static thread_local AnswerBuffers buffers;
    return buffers;
  }
};

}  // namespace

template <class T>
AnswerStage<T>::AnswerStage(const Plan& plan, const AnswerKernels<T>& kernels, const MatrixSource& source)
    : plan_(plan), kernels_(kernels), source_(source), task_(task_of<T>(plan)), group_task_(task_of<double>(plan)) {}

// Calls f(plane, numbers of a matrix) for what is made matrix by matrix.
template <class T>
template <class F>
void AnswerStage<T>::for_each_plane_of_matrices(F f) const {
  const auto group = static_cast<size_t>(plan_.outputs.group);
  for (const MimoPlane& m : kMimoPlanes) {
    const size_t bytes = plane_bytes(plan_, m.plane, plan_.outputs.group);
    const bool of_group = m.extent == MimoPlane::kSnrsOfGroup;
    if (bytes > 0 && !(of_group && group > 1)) f(m.plane, bytes / sizeof(T) / group);
  }
}

template <class T>
size_t AnswerStage<T>::numbers_per_matrix() const {
  size_t all = 0;
  for_each_plane_of_matrices([&](Plane, size_t numbers) { all += numbers; });
  return all;
}

template <class T>
void AnswerStage<T>::run(const T* values, int64_t first, int64_t last) const {
  const int64_t group = plan_.outputs.group;
  if (numbers_per_matrix() > 0) {
    for (int64_t i = first; i < last; i += kernels_.lanes) {
      const int n = static_cast<int>(std::min<int64_t>(kernels_.lanes, last - i));
      answer_pack(values + (i - first) * task_.k, i, n);
    }
  }
  if (group == 1) return;
  for (int64_t i = first; i < last; i += group) answer_group(values + (i - first) * task_.k, i);
}

// The matrices first .. first + n - 1, one a lane; idle lanes repeat a matrix.
template <class T>
void AnswerStage<T>::answer_pack(const T* values, int64_t first, int n) const {
  AnswerBuffers<T>& buffers = AnswerBuffers<T>::of_this_thread();
  const int lanes = kernels_.lanes;
  const auto k = static_cast<size_t>(task_.k);
  const char* from[kMaxLanes];
  for (int l = 0; l < lanes; ++l) from[l] = reinterpret_cast<const char*>(values + (l < n ? l : 0) * k);
  buffers.values.reserve(k * lanes);
  interleave(from, lanes, k, buffers.values.data());

  // Planes one behind the other, null where there is none.
  struct Part {
    Plane plane;
    size_t numbers;  // of a matrix
    T* packed;
  };
  Part parts[kPlanes];
  int count = 0;
  buffers.matrix_scratch.reserve(answer_scratch(k) * lanes);
  AnswersCall<T> call{&task_, buffers.values.data(), {}, buffers.matrix_scratch.data()};
  buffers.answers.reserve(numbers_per_matrix() * lanes);
  T* next = buffers.answers.data();
  for_each_plane_of_matrices([&](Plane plane, size_t numbers) {
    call.planes[index_of(plane)] = next;
    parts[count++] = {plane, numbers, next};
    next += numbers * lanes;
  });
  kernels_.matrices(call);
  source_.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    for (int p = 0; p < count; ++p) {
      char* const to = slot.plane(parts[p].plane, parts[p].numbers * sizeof(T));
      if (to != nullptr) deinterleave_one(parts[p].packed, lanes, l, parts[p].numbers, to);
    }
  });
}

// Where the numbers of the group that begins with matrix `first` belong; null: not wanted.
template <class T>
char* AnswerStage<T>::group_plane(int64_t first, Plane plane) const {
  char* at = nullptr;
  source_.for_each(first, 1, [&](int, const MatrixSource::Slot& slot) {
    char* const begin = static_cast<char*>(slot.segment->planes[plane]);
    if (begin != nullptr) at = begin + plane_bytes(plan_, plane, slot.index);
  });
  return plane_bytes(plan_, plane, plan_.outputs.group) > 0 ? at : nullptr;
}

template <class T>
void AnswerStage<T>::answer_group(const T* values, int64_t first) const {
  AnswerBuffers<T>& buffers = AnswerBuffers<T>::of_this_thread();
  const int64_t group = plan_.outputs.group, streams = group * task_.k;
  const int64_t padded = (streams + kStreamPadding - 1) / kStreamPadding * kStreamPadding;
  buffers.group_values.reserve(static_cast<size_t>(padded));
  buffers.scratch.reserve(3 * static_cast<size_t>(padded));
  double* const s = buffers.group_values.data();
  std::copy_n(values, streams, s);
  std::fill(s + streams, s + padded, 0.0);

  char* const to[] = {group_plane(first, Plane::kCapacity), group_plane(first, Plane::kWaterFilling)};
  double answers[2][kMaxSnrs];
  kernels_.group({&group_task_, static_cast<double>(group), padded, s, buffers.scratch.data(),
                  to[0] != nullptr ? answers[0] : nullptr, to[1] != nullptr ? answers[1] : nullptr});
  for (int a = 0; a < 2; ++a) {
    for (int x = 0; to[a] != nullptr && x < task_.snr_count; ++x) {
      const double answer = answers[a][x];
      const T number = answer == answer ? static_cast<T>(answer) : FloatTraits<T>::nan();
      std::memcpy(to[a] + x * sizeof(T), &number, sizeof(T));
    }
  }
}

template class AnswerStage<float>;
template class AnswerStage<double>;

}  // namespace svdserve::host
