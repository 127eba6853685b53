// Kernels of MIMO answers (algorithms/mimo/mimo_answers.h), and what launches them.
//
//   snr_kernel      a thread for each matrix and SNR: capacity, water-filling, stream SNR
//   matrix_kernel   a thread for each matrix: condition number and ranks
//   large_..        the same for k > 32
//   group_kernel    eight threads for each group and SNR, one for each partial sum: capacity, water-filling
//
// Neighbouring threads have neighbouring SNRs of a matrix, so that they read the same values and write one run.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWER_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWER_KERNELS_H_

#include <type_traits>

#include "engine/algorithms/mimo/mimo_answers.h"
#include "engine/backends/cuda/device/kernel_call.h"
#include "engine/backends/cuda/mimo/answers.h"
#include "engine/planner.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

// Planes that are not wanted are null. Its size is within that of a kernel's parameters.
template <class T>
struct MatrixAnswers {
  const T* values;  // [in] k a matrix
  int64_t count;
  T *capacity, *water_filling, *stream_snr;               // [out]
  T *condition_number, *effective_rank, *threshold_rank;  // [out]
  MimoTask<T> task;
};

template <class T>
struct GroupAnswers {
  const T* values;  // [in] k a matrix
  int64_t groups;
  int64_t matrices;             // of a group
  T *capacity, *water_filling;  // [out]
  MimoTask<double> task;
};

template <int K>
using AnswerSize = std::conditional_t<K != 0, scalar::FixedSize<K>, scalar::RuntimeSize>;
template <int K>
__device__ __forceinline__ AnswerSize<K> answer_size(int k) {
  AnswerSize<K> size;
  if constexpr (K == 0) size.n = k;
  return size;
}
template <int K>
inline constexpr int kAnswerStorage = K != 0 ? K : static_cast<int>(kLargestReproducible);

// streams, terms: k of scratch.
template <class T, int K>
__device__ __forceinline__ void answer_snr(const MatrixAnswers<T>& call, int64_t thread,
                                           scalar::Stream<Lane<T>>* streams, Lane<T>* terms) {
  const int64_t m = thread / call.task.snr_count;
  const int x = static_cast<int>(thread - m * call.task.snr_count);
  const AnswerSize<K> k = answer_size<K>(call.task.k);
  const T* const values = call.values + m * k;
  SVD_UNROLL for (int i = 0; i < k; ++i) streams[i] = scalar::make_stream(Lane<T>(values[i]));
  const ScaledNumber<T> equal = call.task.snr_over_cols[x];
  if (call.capacity != nullptr) {
    call.capacity[thread] = scalar::equal_power_capacity(k, streams, equal, terms).v;
  }
  if (call.water_filling != nullptr) {
    call.water_filling[thread] = scalar::water_filling(k, Lane<T>(values[0]), streams, call.task.snr[x], terms).v;
  }
  if (call.stream_snr != nullptr) {
    SVD_UNROLL for (int i = 0; i < k; ++i) call.stream_snr[thread * k + i] = scalar::stream_snr(streams[i], equal).v;
  }
}

// terms: k of scratch.
template <class T, int K>
__device__ __forceinline__ void answer_matrix(const MatrixAnswers<T>& call, int64_t m, Lane<T>* terms) {
  const AnswerSize<K> k = answer_size<K>(call.task.k);
  const T* const values = call.values + m * k;
  const auto value = [&](int i) { return Lane<T>(values[i]); };
  if (call.condition_number != nullptr) {
    call.condition_number[m] = scalar::condition_number(value(0), value(k - 1)).v;
  }
  if (call.effective_rank != nullptr) call.effective_rank[m] = scalar::effective_rank<Lane<T>>(k, value, terms).v;
  if (call.threshold_rank != nullptr) {
    call.threshold_rank[m] = scalar::threshold_rank<Lane<T>>(k, value, call.task.rank_threshold).v;
  }
}

template <class T, int K>
__global__ void __launch_bounds__(kAnswerBlock) snr_kernel(const MatrixAnswers<T> call) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kAnswerBlock + threadIdx.x;
  if (thread >= call.count * call.task.snr_count) return;
  scalar::Stream<Lane<T>> streams[kAnswerStorage<K>];
  Lane<T> terms[kAnswerStorage<K>];
  answer_snr<T, K>(call, thread, streams, terms);
}

template <class T, int K>
__global__ void __launch_bounds__(kAnswerBlock) matrix_kernel(const MatrixAnswers<T> call) {
  const int64_t m = static_cast<int64_t>(blockIdx.x) * kAnswerBlock + threadIdx.x;
  if (m >= call.count) return;
  Lane<T> terms[kAnswerStorage<K>];
  answer_matrix<T, K>(call, m, terms);
}

// k > kLargestReproducible: the same with scratch in shared memory, for fewer threads a block. Local memory of that
// size would be set aside for every thread that a GPU can run.
template <class T>
struct LargeAnswers {
  using Stream = scalar::Stream<Lane<T>>;
  static constexpr int kSharedBytes = 48 * 1024;
  // A thread's streams, then its terms, an odd number of each apart.
  static constexpr int stride(int k) { return k | 1; }
  static constexpr int thread_bytes(int k) { return stride(k) * static_cast<int>(sizeof(Stream) + sizeof(T)); }
  static constexpr int threads(int k) {
    return kSharedBytes / thread_bytes(k) < 32 ? kSharedBytes / thread_bytes(k) : 32;
  }
  static __device__ __forceinline__ Stream* streams(unsigned char* shared, int k) {
    return reinterpret_cast<Stream*>(shared) + threadIdx.x * stride(k);
  }
  static __device__ __forceinline__ Lane<T>* terms(unsigned char* shared, int k) {
    Stream* const end = reinterpret_cast<Stream*>(shared) + blockDim.x * stride(k);
    return reinterpret_cast<Lane<T>*>(end) + threadIdx.x * stride(k);
  }
};

template <class T>
__global__ void __launch_bounds__(32) large_snr_kernel(const MatrixAnswers<T> call) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= call.count * call.task.snr_count) return;
  using Large = LargeAnswers<T>;
  answer_snr<T, 0>(call, thread, Large::streams(shared_bytes, call.task.k), Large::terms(shared_bytes, call.task.k));
}

template <class T>
__global__ void __launch_bounds__(32) large_matrix_kernel(const MatrixAnswers<T> call) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int64_t m = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (m >= call.count) return;
  answer_matrix<T, 0>(call, m, LargeAnswers<T>::terms(shared_bytes, call.task.k));
}

// The streams of a group, dealt to the eight threads of a team, each of which has one partial sum.
template <class T>
struct StreamsOfTeam {
  using Lane = scalar::ScalarLane<double>;
  const T* values;
  int64_t count;
  int member;     // 0 .. 7
  unsigned team;  // its threads in the warp

  __device__ Lane largest() const {
    double most = 0;
    int number = 1;
    for (int64_t j = member; j < count; j += 8) {
      const double s = values[j];
      number = number && s == s;
      most = s > most ? s : most;
    }
    for (int distance = 4; distance > 0; distance /= 2) {
      const double other = __shfl_xor_sync(team, most, distance);
      most = other > most ? other : most;
      number &= __shfl_xor_sync(team, number, distance);
    }
    return Lane(number ? most : FloatTraits<double>::nan());
  }
  // The exchange adds in the order of reduce.h's tree; both sides of one get the same bits.
  template <int kSums, class F>
  __device__ void sums(F f, Lane* total) const {
    SVD_UNROLL for (int x = 0; x < kSums; ++x) total[x] = Lane(0);
    for (int64_t j = member; j < count; j += 8) {
      Lane terms[kSums];
      f(scalar::make_stream(Lane(values[j])), terms);
      SVD_UNROLL for (int x = 0; x < kSums; ++x) total[x] = total[x] + terms[x];
    }
    for (int distance = 4; distance > 0; distance /= 2) {
      SVD_UNROLL for (int x = 0; x < kSums; ++x) {
        total[x] = total[x] + Lane(__shfl_xor_sync(team, total[x].v, distance));
      }
    }
  }
};

template <class T>
__device__ __forceinline__ T number_of(double x) {
  return x == x ? static_cast<T>(x) : FloatTraits<T>::nan();
}

template <class T>
__global__ void __launch_bounds__(kAnswerBlock) group_kernel(const GroupAnswers<T> call) {
  const int64_t team = (static_cast<int64_t>(blockIdx.x) * kAnswerBlock + threadIdx.x) / 8;
  if (team >= call.groups * call.task.snr_count) return;  // whole teams leave
  const int64_t group = team / call.task.snr_count;
  const int x = static_cast<int>(team - group * call.task.snr_count);
  const int64_t streams_of_group = call.matrices * call.task.k;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const StreamsOfTeam<T> streams{call.values + group * streams_of_group, streams_of_group, lane % 8,
                                 0xffu << (lane / 8 * 8)};
  const auto store = [&](T* plane, double answer) {
    if (streams.member == 0) plane[team] = number_of<T>(answer);
  };
  if (call.capacity != nullptr) {
    store(call.capacity, scalar::group_capacity(streams, call.task.snr_over_cols[x]).v);
  }
  if (call.water_filling != nullptr) {
    store(call.water_filling,
          scalar::group_water_filling(streams, call.task.snr[x], static_cast<double>(call.matrices)).v);
  }
}

// --- launching -----------------------------------------------------------------------------------------------------

constexpr unsigned answer_blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kAnswerBlock - 1) / kAnswerBlock);
}

template <class T, int K>
cudaError_t launch_matrix_answers(const MatrixAnswers<T>& call, cudaStream_t stream) {
  if (call.capacity != nullptr || call.water_filling != nullptr || call.stream_snr != nullptr) {
    snr_kernel<T, K><<<answer_blocks(call.count * call.task.snr_count), kAnswerBlock, 0, stream>>>(call);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  if (call.condition_number != nullptr || call.effective_rank != nullptr || call.threshold_rank != nullptr) {
    matrix_kernel<T, K><<<answer_blocks(call.count), kAnswerBlock, 0, stream>>>(call);
  }
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_large_answers(const MatrixAnswers<T>& call, cudaStream_t stream) {
  using Large = LargeAnswers<T>;
  const int k = call.task.k, threads = Large::threads(k), bytes = threads * Large::thread_bytes(k);
  const auto blocks = [&](int64_t all) { return static_cast<unsigned>((all + threads - 1) / threads); };
  if (call.capacity != nullptr || call.water_filling != nullptr || call.stream_snr != nullptr) {
    large_snr_kernel<T><<<blocks(call.count * call.task.snr_count), threads, bytes, stream>>>(call);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  if (call.condition_number != nullptr || call.effective_rank != nullptr || call.threshold_rank != nullptr) {
    large_matrix_kernel<T><<<blocks(call.count), threads, bytes, stream>>>(call);
  }
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_group_answers(const GroupAnswers<T>& call, cudaStream_t stream) {
  if (call.capacity == nullptr && call.water_filling == nullptr) return cudaSuccess;
  group_kernel<T><<<answer_blocks(8 * call.groups * call.task.snr_count), kAnswerBlock, 0, stream>>>(call);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_answers_of(const Plan& plan, const DeviceBatch& batch, const T* values, cudaStream_t stream) {
  const Outputs& o = plan.outputs;
  const Problem& p = plan.problem;
  if (batch.count == 0) return cudaSuccess;
  const auto plane = [&](Plane of, bool wanted) { return wanted ? static_cast<T*>(batch.planes[of]) : nullptr; };
  T* const capacity = plane(Plane::kCapacity, o.capacity);
  T* const water_filling = plane(Plane::kWaterFilling, o.water_filling);
  const bool grouped = o.group > 1;
  if (grouped) {
    const GroupAnswers<T> groups{
        values,        batch.count / o.group,
        o.group,       capacity,
        water_filling, make_mimo_task<double>(p.rows, p.cols, o.snr.data(), o.snr_count, o.rank_threshold)};
    if (const cudaError_t error = launch_group_answers(groups, stream); error != cudaSuccess) return error;
  }
  const MatrixAnswers<T> matrices{values,
                                  batch.count,
                                  grouped ? nullptr : capacity,
                                  grouped ? nullptr : water_filling,
                                  plane(Plane::kStreamSnr, o.stream_snr),
                                  plane(Plane::kConditionNumber, o.condition_number),
                                  plane(Plane::kEffectiveRank, o.effective_rank),
                                  plane(Plane::kThresholdRank, o.threshold_rank),
                                  make_mimo_task<T>(p.rows, p.cols, o.snr.data(), o.snr_count, o.rank_threshold)};
  if (matrices.task.k > kLargestReproducible) return launch_large_answers(matrices, stream);
  switch (matrices.task.k) {
    case 1:
      return launch_matrix_answers<T, 1>(matrices, stream);
    case 2:
      return launch_matrix_answers<T, 2>(matrices, stream);
    case 4:
      return launch_matrix_answers<T, 4>(matrices, stream);
    case 8:
      return launch_matrix_answers<T, 8>(matrices, stream);
    default:
      return launch_matrix_answers<T, 0>(matrices, stream);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_MIMO_ANSWER_KERNELS_H_
