#include "engine/backends/cuda/p_steps/gram_step.h"

#include <algorithm>

#include "engine/backends/cuda/p_steps/gram_step_kernels.h"

namespace svdserve::cuda {
namespace {

constexpr int kMostSplits = 8;
// Slabs on their way or worked on, where shared memory allows; else two.
constexpr int kManyGramStages = 4, kManyPostStages = 3;

constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

constexpr int most_splits(bool whole_columns) { return whole_columns ? 1 : kMostSplits; }

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
  all.partial = reinterpret_cast<E*>(take(n * static_cast<uint64_t>(splits) * square));
  all.w = reinterpret_cast<E*>(take(n * square));
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

template <class E, int K, bool kMany = false>
cudaError_t launch(const GramStepCall<E>& call, const GramStepLimits& limits, cudaEvent_t* marks, cudaStream_t stream) {
  using Inner = InnerShape<E, K, kMany>;
  Workspace<E> space;
  lay_out(call.count, K, most_splits(call.whole_columns), static_cast<char*>(call.workspace), &space);
  cudaError_t error = cudaSuccess;
  const auto mark = [&](int i) {
    if (marks != nullptr && error == cudaSuccess) error = cudaEventRecord(marks[i], stream);
  };
  const auto after = [&](cudaError_t e) {
    if (error == cudaSuccess) error = e;
  };

  mark(0);
  const auto slabs = [](int64_t rows, int of) { return static_cast<int>((rows + of - 1) / of); };
  const int gram_slabs = slabs(call.x.rows, Slab<E, K, true>::kRows);
  const GramLoad load{call.parts_for > 0 ? call.parts_for : call.count, gram_slabs, limits.multiprocessors,
                      static_cast<double>(K) / Slab<E, K, true>::kRows};
  const int splits = call.whole_columns ? 1 : load.best_splits(std::min(kMostSplits, gram_slabs));
  const dim3 gram_grid(static_cast<unsigned>(splits), static_cast<unsigned>(call.count));
  const auto gram = [&](auto kernel, int stages) {
    const int bytes = GramShape<E, K>::shared_bytes(stages);
    after(allow(kernel, bytes));
    if (error != cudaSuccess) return;
    kernel<<<gram_grid, GramShape<E, K>::kThreads, static_cast<size_t>(bytes), stream>>>(
        call.x, call.pairs, call.versions, call.stack, call.width, space.partial, space.active_count);
    after(cudaGetLastError());
  };
  if (GramShape<E, K>::shared_bytes(kManyGramStages) <= limits.shared_bytes) {
    gram(gram_kernel<E, K, kManyGramStages>, kManyGramStages);
  } else {
    gram(gram_kernel<E, K, 2>, 2);
  }
  if (error != cudaSuccess) return error;
  mark(1);

  // Blocks that share a multiprocessor share its memory, too, a KiB a block more than they see.
  const int room = kMany ? (limits.shared_bytes + 1024) / Inner::kBlocks - 1024 : limits.shared_bytes;
  const bool w_in_shared_memory = Inner::shared_bytes(true) <= room;
  const int inner_bytes = Inner::shared_bytes(w_in_shared_memory);
  const InnerCall<E> inner{call.pairs,        space.partial,      splits,
                           space.w,           call.exponents,     space.exponent_changes,
                           space.active,      space.active_count, call.counters,
                           call.versions,     call.width,         call.x.cols,
                           call.positive,     call.tolerance,     call.smallest_exponent,
                           call.inner_sweeps, w_in_shared_memory, call.stack};
  after(allow(inner_kernel<E, K, kMany>, inner_bytes));
  if (error != cudaSuccess) return error;
  inner_kernel<E, K, kMany>
      <<<static_cast<unsigned>(call.count), Inner::kThreads, static_cast<size_t>(inner_bytes), stream>>>(inner);
  after(cudaGetLastError());
  mark(2);

  // As many blocks as are resident, and no more: each reads W first, which is as much as several slabs.
  const int x_slabs = slabs(call.x.rows, Slab<E, K, false>::kRows);
  const int v_slabs = call.v.data != nullptr ? slabs(call.v.rows, Slab<E, K, false>::kRows) : 0;
  const int64_t resident = int64_t{PostShape<E, K>::kBlocks} * limits.multiprocessors;
  const int64_t all = int64_t{x_slabs + v_slabs} * call.count, per_block = (all + resident - 1) / resident;
  const auto post_grid = static_cast<unsigned>((all + per_block - 1) / per_block);
  const PostCall<E> post{call.x,         call.v,
                         call.pairs,     space.w,
                         call.exponents, space.exponent_changes,
                         space.active,   space.active_count,
                         call.width,     x_slabs,
                         v_slabs};
  const auto postmultiply = [&](auto kernel, int stages) {
    const int bytes = PostShape<E, K>::shared_bytes(stages);
    after(allow(kernel, bytes));
    if (error != cudaSuccess) return;
    kernel<<<post_grid, PostShape<E, K>::kThreads, static_cast<size_t>(bytes), stream>>>(post);
    after(cudaGetLastError());
  };
  // A multiprocessor's shared memory is a KiB a block more than what a block of its own can have.
  if (PostShape<E, K>::kBlocks * (PostShape<E, K>::shared_bytes(kManyPostStages) + 1024) <=
      limits.shared_bytes + 1024) {
    postmultiply(postmultiply_kernel<E, K, kManyPostStages>, kManyPostStages);
  } else {
    postmultiply(postmultiply_kernel<E, K, 2>, 2);
  }
  if (error != cudaSuccess) return error;
  mark(3);
  return error;
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
uint64_t gram_step_workspace_bytes(int count, int columns, bool whole_columns) {
  return lay_out<E>(count, columns, most_splits(whole_columns), nullptr, nullptr);
}

template <class E>
cudaError_t launch_gram_step(const GramStepCall<E>& call, const GramStepLimits& limits, cudaEvent_t* marks,
                             cudaStream_t stream) {
  if (call.count == 0) return cudaSuccess;
  if constexpr (!kIsComplex<E>) {
    if (call.columns == 128) return launch<E, 128>(call, limits, marks, stream);
  }
  return call.stack.blocks != 0 ? launch<E, 64, true>(call, limits, marks, stream)
                                : launch<E, 64>(call, limits, marks, stream);
}

template bool gram_step_supports<double>(int, const GramStepLimits&);
template bool gram_step_supports<Complex>(int, const GramStepLimits&);
template uint64_t gram_step_workspace_bytes<double>(int, int, bool);
template uint64_t gram_step_workspace_bytes<Complex>(int, int, bool);
template cudaError_t launch_gram_step<double>(const GramStepCall<double>&, const GramStepLimits&, cudaEvent_t*,
                                              cudaStream_t);
template cudaError_t launch_gram_step<Complex>(const GramStepCall<Complex>&, const GramStepLimits&, cudaEvent_t*,
                                               cudaStream_t);

}  // namespace svdserve::cuda
