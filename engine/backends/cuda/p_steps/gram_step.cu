#include "engine/backends/cuda/p_steps/gram_step.h"

#include <algorithm>

#include "engine/backends/cuda/p_steps/gram_step_kernels.h"

namespace svdserve::cuda {
namespace {

// Slabs on their way or worked on, where shared memory allows; else two.
constexpr int kManyGramStages = 4, kManyPostStages = 3;

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

template <class E>
struct Workspace {
  E *partial, *w;
  int *exponent_changes, *active, *active_count;
};
template <class E>
uint64_t lay_out(int count, int columns, int splits, char* base, Workspace<E>* out) {
  const auto n = static_cast<uint64_t>(count), k = static_cast<uint64_t>(columns), square = k * k * sizeof(E);
  uint64_t at = 0;
  const auto take = [&](uint64_t bytes) {
    char* const p = base + at;
    at += aligned(bytes);
    return p;
  };
  Workspace<E> all{};
  // Twice as much as triangles take: CudaLargeBackend::block_cosines() counts on it.
  all.partial = reinterpret_cast<E*>(take(n * static_cast<uint64_t>(splits) * square));
  all.w = reinterpret_cast<E*>(take(n * (square + k * sizeof(E))));
  all.exponent_changes = reinterpret_cast<int*>(take(n * 2 * k * sizeof(int)));
  all.active = reinterpret_cast<int*>(take(n * sizeof(int)));
  all.active_count = reinterpret_cast<int*>(take(sizeof(int)));
  if (out != nullptr) *out = all;
  return at;
}

template <class Kernel>
cudaError_t allow(Kernel kernel, int shared_bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

// The Gram matrices of some pairs, a thread block for each split of a pair's rows, and a block a multiprocessor at once.
struct GramLoad {
  int pairs, slabs;  // slabs: of a pair
  int multiprocessors;
  double slabs_of_sum;  // what a Gram matrix takes, as a part of what a slab takes

  // The time of so many splits, in units of what a block takes for a slab. Each block has a start and an end, each sum is
  // written, and read by the next kernel. Both constants are estimates from times of device_gram_step_bench on an H100.
  double time(int splits) const {
    constexpr double kStartAndEnd = 4, kTransfer = 0.6;
    const int all = pairs * splits, rounds = (all + multiprocessors - 1) / multiprocessors;
    const int of_block = (slabs + splits - 1) / splits;
    return rounds * (of_block + kStartAndEnd) + kTransfer * 2 * slabs_of_sum * all / multiprocessors;
  }
  int best_splits(int most) const {
    int best = 1;
    for (int splits = 2; splits <= most; ++splits) {
      if (time(splits) < time(best)) best = splits;
    }
    return best;
  }
};

// The kernels of one call, which follow each other: in one stream, or with others of other calls between them.
template <class E, int K, bool kMany = false>
class GramStepKernels {
 public:
  explicit GramStepKernels(const GramStepCall<E>& call) : call_(call) {
    lay_out(call.count, K, call.parts.most, static_cast<char*>(call.workspace), &space_);
  }

  cudaError_t gram(const GramStepLimits& limits, cudaStream_t stream) const {
    return GramShape<E, K>::shared_bytes(kManyGramStages) <= limits.shared_bytes
               ? launch_gram<kManyGramStages>(limits, stream)
               : launch_gram<2>(limits, stream);
  }

  cudaError_t inner(const GramStepLimits& limits, cudaStream_t stream) const {
    using Inner = InnerShape<E, K, kMany>;
    // Blocks that share a multiprocessor share its memory, too, a KiB a block more than they see.
    const int room = kMany ? (limits.shared_bytes + 1024) / Inner::kBlocks - 1024 : limits.shared_bytes;
    const bool w_in_shared_memory = Inner::shared_bytes(true) <= room;
    const int bytes = Inner::shared_bytes(w_in_shared_memory);
    const InnerCall<E> inner{call_.pairs,        space_.partial,      splits(limits),
                             space_.w,           call_.exponents,     space_.exponent_changes,
                             space_.active,      space_.active_count, call_.counters,
                             call_.versions,     call_.width,         call_.x.cols,
                             call_.positive,     call_.tolerance,     call_.smallest_exponent,
                             call_.inner_sweeps, w_in_shared_memory,  call_.stack};
    const cudaError_t error = allow(inner_kernel<E, K, kMany>, bytes);
    if (error != cudaSuccess) return error;
    inner_kernel<E, K, kMany>
        <<<static_cast<unsigned>(call_.count), Inner::kThreads, static_cast<size_t>(bytes), stream>>>(inner);
    return cudaGetLastError();
  }

  cudaError_t post(const GramStepLimits& limits, cudaStream_t stream) const {
    // A multiprocessor's shared memory is a KiB a block more than what a block of its own can have.
    return PostShape<E, K>::kBlocks * (PostShape<E, K>::shared_bytes(kManyPostStages) + 1024) <=
                   limits.shared_bytes + 1024
               ? launch_post<kManyPostStages>(limits, stream)
               : launch_post<2>(limits, stream);
  }

 private:
  static int slabs(int64_t rows, int of) { return static_cast<int>((rows + of - 1) / of); }

  // Parts of a Gram matrix, a thread block each.
  int splits(const GramStepLimits& limits) const {
    const GramStepParts& parts = call_.parts;
    const int gram_slabs = slabs(call_.x.rows, Slab<E, K, true>::kRows);
    const GramLoad load{parts.pairs > 0 ? parts.pairs : call_.count, gram_slabs,
                        parts.multiprocessors > 0 ? parts.multiprocessors : limits.multiprocessors,
                        static_cast<double>(K) / Slab<E, K, true>::kRows};
    return load.best_splits(std::min(parts.most, gram_slabs));
  }

  template <int kStages>
  cudaError_t launch_gram(const GramStepLimits& limits, cudaStream_t stream) const {
    const auto kernel = gram_kernel<E, K, kStages>;
    const int bytes = GramShape<E, K>::shared_bytes(kStages);
    const cudaError_t error = allow(kernel, bytes);
    if (error != cudaSuccess) return error;
    const dim3 grid(static_cast<unsigned>(splits(limits)), static_cast<unsigned>(call_.count));
    kernel<<<grid, GramShape<E, K>::kThreads, static_cast<size_t>(bytes), stream>>>(
        call_.x, call_.pairs, call_.versions, call_.stack, call_.width, space_.partial, space_.active_count);
    return cudaGetLastError();
  }

  // As many blocks as are resident, and no more: each reads W first, which is as much as several slabs.
  template <int kStages>
  cudaError_t launch_post(const GramStepLimits& limits, cudaStream_t stream) const {
    const auto kernel = postmultiply_kernel<E, K, kStages>;
    const int bytes = PostShape<E, K>::shared_bytes(kStages);
    const cudaError_t error = allow(kernel, bytes);
    if (error != cudaSuccess) return error;
    const int x_slabs = slabs(call_.x.rows, Slab<E, K, false>::kRows);
    const int v_slabs = call_.v.data != nullptr ? slabs(call_.v.rows, Slab<E, K, false>::kRows) : 0;
    const int64_t resident = int64_t{PostShape<E, K>::kBlocks} * limits.multiprocessors;
    const int64_t all = int64_t{x_slabs + v_slabs} * call_.count, per_block = (all + resident - 1) / resident;
    const PostCall<E> post{call_.x,         call_.v,
                           call_.pairs,     space_.w,
                           call_.exponents, space_.exponent_changes,
                           space_.active,   space_.active_count,
                           call_.width,     x_slabs,
                           v_slabs};
    kernel<<<static_cast<unsigned>((all + per_block - 1) / per_block), PostShape<E, K>::kThreads,
             static_cast<size_t>(bytes), stream>>>(post);
    return cudaGetLastError();
  }

  const GramStepCall<E>& call_;
  Workspace<E> space_;
};

// f(kernels) of the call.
template <class E, class F>
cudaError_t with_kernels(const GramStepCall<E>& call, const F& f) {
  if (call.count == 0) return cudaSuccess;
  if constexpr (!kIsComplex<E>) {
    if (call.columns == 128) return f(GramStepKernels<E, 128>(call));
  }
  return call.stack.blocks != 0 ? f(GramStepKernels<E, 64, true>(call)) : f(GramStepKernels<E, 64>(call));
}

template <class E, int K>
bool fits(const GramStepLimits& limits) {
  return GramShape<E, K>::shared_bytes(2) <= limits.shared_bytes &&
         InnerShape<E, K>::shared_bytes(false) <= limits.shared_bytes &&
         PostShape<E, K>::shared_bytes(2) <= limits.shared_bytes;
}

}  // namespace

template <class E>
bool gram_step_supports(int columns, const GramStepLimits& limits) {
  if constexpr (!kIsComplex<E>) {
    if (columns == 128) return fits<E, 128>(limits) && InnerShape<E, 128>::shared_bytes(true) <= limits.shared_bytes;
  }
  return columns == 64 && fits<E, 64>(limits);
}

template <class E>
uint64_t gram_step_workspace_bytes(int count, int columns, int most_parts) {
  return lay_out<E>(count, columns, most_parts, nullptr, nullptr);
}

template <class E>
cudaError_t launch_gram_matrices(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream) {
  return with_kernels(call, [&](const auto& kernels) { return kernels.gram(limits, stream); });
}
template <class E>
cudaError_t launch_rotations(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream) {
  return with_kernels(call, [&](const auto& kernels) { return kernels.inner(limits, stream); });
}
template <class E>
cudaError_t launch_postmultiplication(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream) {
  return with_kernels(call, [&](const auto& kernels) { return kernels.post(limits, stream); });
}

template <class E>
cudaError_t launch_gram_step(const GramStepCall<E>& call, const GramStepLimits& limits, cudaEvent_t* marks,
                             cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  const auto mark = [&](int i) {
    if (marks != nullptr && error == cudaSuccess) error = cudaEventRecord(marks[i], stream);
  };
  mark(0);
  if (error == cudaSuccess) error = launch_gram_matrices(call, limits, stream);
  mark(1);
  if (error == cudaSuccess) error = launch_rotations(call, limits, stream);
  mark(2);
  if (error == cudaSuccess) error = launch_postmultiplication(call, limits, stream);
  mark(3);
  return error;
}

template bool gram_step_supports<double>(int, const GramStepLimits&);
template bool gram_step_supports<Complex>(int, const GramStepLimits&);
template uint64_t gram_step_workspace_bytes<double>(int, int, int);
template uint64_t gram_step_workspace_bytes<Complex>(int, int, int);
template cudaError_t launch_gram_matrices<double>(const GramStepCall<double>&, const GramStepLimits&, cudaStream_t);
template cudaError_t launch_gram_matrices<Complex>(const GramStepCall<Complex>&, const GramStepLimits&, cudaStream_t);
template cudaError_t launch_rotations<double>(const GramStepCall<double>&, const GramStepLimits&, cudaStream_t);
template cudaError_t launch_rotations<Complex>(const GramStepCall<Complex>&, const GramStepLimits&, cudaStream_t);
template cudaError_t launch_postmultiplication<double>(const GramStepCall<double>&, const GramStepLimits&,
                                                       cudaStream_t);
template cudaError_t launch_postmultiplication<Complex>(const GramStepCall<Complex>&, const GramStepLimits&,
                                                        cudaStream_t);
template cudaError_t launch_gram_step<double>(const GramStepCall<double>&, const GramStepLimits&, cudaEvent_t*,
                                              cudaStream_t);
template cudaError_t launch_gram_step<Complex>(const GramStepCall<Complex>&, const GramStepLimits&, cudaEvent_t*,
                                               cudaStream_t);

}  // namespace svdserve::cuda
