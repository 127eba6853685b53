// Instantiates the kernels of MIMO answers for the target at hand.
#if defined(SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNEL_SET_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNEL_SET_H_
#undef SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNEL_SET_H_
#else
#define SVDSERVE_ENGINE_BACKENDS_HOST_MIMO_ANSWER_KERNEL_SET_H_
#endif

#include "engine/algorithms/mimo/mimo_answers.h"
#include "engine/backends/host/mimo/answer_kernels.h"

// As packs/pack_access.h: a target without fused multiply-adds is served by the scalar lane.
#if !defined(HWY_HIGHWAY_INCLUDED) || HWY_NATIVE_FMA

SVD_KERNEL_BEGIN

// terms: scratch of k numbers.
template <class Lane>
void capacities_of_pack(const host::AnswersCall<typename Lane::Scalar>& call, RuntimeSize k, const Lane* s,
                        Stream<Lane>* streams, Lane* terms) {
  using T = typename Lane::Scalar;
  const auto& task = *call.task;
  for (int i = 0; i < k; ++i) streams[i] = make_stream(s[i]);
  for (int x = 0; x < task.snr_count; ++x) {
    const int at = x * Lane::kLanes;
    if (T* const to = call[Plane::kCapacity]) {
      equal_power_capacity(k, streams, task.snr_over_cols[x], terms).store(to + at);
    }
    if (T* const to = call[Plane::kWaterFilling]) {
      water_filling(k, s[0], streams, task.snr[x], terms).store(to + at);
    }
    if (T* const to = call[Plane::kStreamSnr]) {
      for (int i = 0; i < k; ++i) {
        stream_snr(streams[i], task.snr_over_cols[x]).store(to + at * k + i * Lane::kLanes);
      }
    }
  }
}

template <class Lane>
void answers_of_pack(const host::AnswersCall<typename Lane::Scalar>& call) {
  using T = typename Lane::Scalar;
  const RuntimeSize k{call.task->k};
  static_assert(sizeof(Stream<Lane>) == 3 * sizeof(Lane));
  Lane* const s = reinterpret_cast<Lane*>(call.scratch);
  Lane* const terms = s + call.task->k;
  Stream<Lane>* const streams = reinterpret_cast<Stream<Lane>*>(terms + call.task->k);
  for (int i = 0; i < k; ++i) s[i] = Lane::load(call.values + i * Lane::kLanes);
  const auto value = [&](int i) SVD_LAMBDA { return s[i]; };
  if (call[Plane::kCapacity] != nullptr || call[Plane::kWaterFilling] != nullptr ||
      call[Plane::kStreamSnr] != nullptr) {
    capacities_of_pack(call, k, s, streams, terms);
  }
  if (T* const to = call[Plane::kConditionNumber]) condition_number(s[0], s[k - 1]).store(to);
  if (T* const to = call[Plane::kEffectiveRank]) effective_rank(k, value, terms).store(to);
  if (T* const to = call[Plane::kThresholdRank]) threshold_rank<Lane>(k, value, call.task->rank_threshold).store(to);
}

// The streams of a group in arrays: eight at a time, so that partial sum p is number p of 8 / kLanes packs.
template <class L>
struct PackedStreams {
  using Lane = L;
  static constexpr int kPacks = 8 / L::kLanes;
  static_assert(kPacks * L::kLanes == 8 && host::kStreamPadding == 8);
  const double *values, *square, *inverse, *exponent;
  int64_t count;

  SVD_HD Lane largest() const {
    double most = 0;
    bool number = true;
    for (int64_t j = 0; j < count; ++j) {
      number = number && values[j] == values[j];
      most = values[j] > most ? values[j] : most;
    }
    return Lane(number ? most : FloatTraits<double>::nan());
  }
  template <int kSums, class F>
  SVD_HD void sums(F f, Lane* total) const {
    Lane partial[kSums][kPacks];
    for (int x = 0; x < kSums; ++x) {
      for (int p = 0; p < kPacks; ++p) partial[x][p] = Lane(0);
    }
    for (int64_t j = 0; j < count; j += 8) {
      for (int p = 0; p < kPacks; ++p) {
        const int64_t at = j + p * Lane::kLanes;
        Lane terms[kSums];
        f(Stream<Lane>{Lane::load(square + at), Lane::load(inverse + at), Lane::load(exponent + at)}, terms);
        for (int x = 0; x < kSums; ++x) partial[x][p] = partial[x][p] + terms[x];
      }
    }
    for (int x = 0; x < kSums; ++x) {
      double s[8];
      for (int p = 0; p < kPacks; ++p) partial[x][p].store(s + p * Lane::kLanes);
      total[x] = Lane(((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])));
    }
  }
};

template <class Lane>
void answers_of_group(const host::GroupCall& call) {
  double* const square = call.scratch;
  double* const inverse = square + call.streams;
  double* const exponent = inverse + call.streams;
  for (int64_t j = 0; j < call.streams; j += Lane::kLanes) {
    const Stream<Lane> stream = make_stream(Lane::load(call.values + j));
    stream.square.store(square + j);
    stream.inverse.store(inverse + j);
    stream.exponent.store(exponent + j);
  }
  const PackedStreams<Lane> streams{call.values, square, inverse, exponent, call.streams};
  double all_lanes[Lane::kLanes];
  for (int x = 0; x < call.task->snr_count; ++x) {
    if (call.capacity != nullptr) {
      group_capacity(streams, call.task->snr_over_cols[x]).store(all_lanes);
      call.capacity[x] = all_lanes[0];
    }
    if (call.water_filling != nullptr) {
      group_water_filling(streams, call.task->snr[x], call.power).store(all_lanes);
      call.water_filling[x] = all_lanes[0];
    }
  }
}

#if defined(HWY_HIGHWAY_INCLUDED)
// As many registers as hold eight numbers.
using GroupLane = Pack<double, 8 / static_cast<int>(NarrowLane<double>::kLanes)>;
#else
using GroupLane = ScalarLane<double>;
#endif

template <class T>
const host::AnswerKernels<T>* make_answer_kernels() {
  static constexpr host::AnswerKernels<T> kKernels{WideLane<T>::kLanes, answers_of_pack<WideLane<T>>,
                                                   answers_of_group<GroupLane>};
  return &kKernels;
}

SVD_KERNEL_END

#endif

#endif
