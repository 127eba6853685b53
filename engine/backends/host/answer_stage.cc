#include "engine/backends/host/answer_stage.h"

#include <algorithm>

#include "engine/backends/host/packing.h"
#include "engine/core/float_traits.h"

namespace svdserve::host {
namespace {

template <class T>
MimoTask<T> task_of(const Plan& plan) {
  const Outputs& o = plan.outputs;
  return make_mimo_task<T>(plan.problem.rows, plan.problem.cols, o.snr.data(), o.snr_count, o.rank_threshold);
}

// What one thread keeps from call to call.
template <class T>
struct AnswerBuffers {
  AlignedBuffer<T> values, answers;
  AlignedBuffer<double> group_values, scratch;

  static AnswerBuffers& of_this_thread() {
    static thread_local AnswerBuffers buffers;
    return buffers;
  }
};

constexpr Plane kPerMatrix[] = {Plane::kStreamSnr, Plane::kConditionNumber, Plane::kEffectiveRank,
                                Plane::kThresholdRank};
constexpr Plane kPerGroup[] = {Plane::kCapacity, Plane::kWaterFilling};

}  // namespace

template <class T>
AnswerStage<T>::AnswerStage(const Plan& plan, const AnswerKernels<T>& kernels, const MatrixSource& source)
    : plan_(plan), kernels_(kernels), source_(source), task_(task_of<T>(plan)), group_task_(task_of<double>(plan)) {}

template <class T>
void AnswerStage<T>::run(const T* values, int64_t first, int64_t last) const {
  const int64_t group = plan_.outputs.group;
  const auto wanted = [&](Plane plane) { return plane_bytes(plan_, plane, group) > 0; };
  if (group == 1 || std::any_of(std::begin(kPerMatrix), std::end(kPerMatrix), wanted)) {
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
  size_t numbers[kPlanes] = {}, all = 0;
  for (const Plane plane : kPerMatrix) numbers[index_of(plane)] = plane_bytes(plan_, plane, plan_.outputs.group);
  if (plan_.outputs.group == 1) {
    for (const Plane plane : kPerGroup) numbers[index_of(plane)] = plane_bytes(plan_, plane, 1);
  }
  for (size_t& x : numbers) all += x = x / sizeof(T) / static_cast<size_t>(plan_.outputs.group);
  buffers.answers.reserve(all * lanes);
  T* packed[kPlanes] = {};
  T* next = buffers.answers.data();
  for (int p = 0; p < kPlanes; ++p) {
    if (numbers[p] > 0) packed[p] = next;
    next += numbers[p] * lanes;
  }
  const auto plane = [&](Plane p) { return packed[index_of(p)]; };
  kernels_.matrices({&task_, buffers.values.data(), plane(Plane::kCapacity), plane(Plane::kWaterFilling),
                     plane(Plane::kStreamSnr), plane(Plane::kConditionNumber), plane(Plane::kEffectiveRank),
                     plane(Plane::kThresholdRank)});
  source_.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    for (int p = 0; p < kPlanes; ++p) {
      if (packed[p] == nullptr) continue;
      char* const to = slot.plane(static_cast<Plane>(p), numbers[p] * sizeof(T));
      if (to != nullptr) deinterleave_one(packed[p], lanes, l, numbers[p], to);
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

  char* const to[] = {group_plane(first, kPerGroup[0]), group_plane(first, kPerGroup[1])};
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
