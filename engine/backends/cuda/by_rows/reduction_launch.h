// The launch of a reduction in memory, and parts of a batch: shared by bidiagonal_kernels.h and tridiagonal_kernels.h, where
// shared memory has no room for rows.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_REDUCTION_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_REDUCTION_LAUNCH_H_

#include <algorithm>
#include <type_traits>

#include "engine/backends/cuda/by_rows/row_kernels.h"
#include "engine/planner.h"

namespace svdserve::cuda {

// A reduction of algorithms/blocks/ in the memory of rows, which come later: by a thread block or by a cluster of blocks, the
// Threads. k <= K. The bits do not depend on that.
template <template <class, class, int, int, int, int> class Reduction, class E, int K, class Threads,
          bool kIsCluster = std::is_same_v<Threads, ClusterThreads>>
using InMemory =
    Reduction<Threads, E, K / 32, reduction_warps(sizeof(E), K), kIsCluster ? kWriteEveryByCluster : kWriteEveryByBlock,
              kIsCluster ? kKeptByCluster : kept_by_block(sizeof(E))>;

// The memory that the threads of matrix m share: a block's shared memory, or what a cluster has in its place.
template <class Algorithm, class Threads, class Memory>
__device__ __forceinline__ typename Algorithm::Shared* shared_of(const Memory& memory, int64_t m) {
  using Shared = typename Algorithm::Shared;
  if constexpr (std::is_same_v<Threads, ClusterThreads>) {
    static_assert(sizeof(Shared) <= kReductionElements * sizeof(*memory.reduction));
    return reinterpret_cast<Shared*>(memory.reduction + m * kReductionElements);
  } else {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    return reinterpret_cast<Shared*>(shared_bytes);
  }
}
// Blocks of a matrix.
template <class Threads>
constexpr int blocks_of_matrix() {
  return std::is_same_v<Threads, ClusterThreads> ? kReductionCluster : 1;
}

inline int device_attribute(Launch* launch, cudaDeviceAttr attribute) {
  int value = 0;
  const cudaError_t e = cudaDeviceGetAttribute(&value, attribute, launch->device);
  if (launch->error == cudaSuccess) launch->error = e;
  return value;
}
inline int multiprocessors_of(Launch* launch) {
  return std::max(1, device_attribute(launch, cudaDevAttrMultiProcessorCount));
}

// Kernels: class with
//   Algorithm<E, K, Threads>   InMemory of a reduction
//   kernel<E, K, Threads>      what runs it
template <class Kernels, class E, int K, class Call, class Memory>
void launch_in_memory(Launch* launch, int64_t count, const Call& call, const Memory& memory) {
  using Algorithm = typename Kernels::template Algorithm<E, K, BlockThreads>;
  if constexpr (has_reduction_clusters(K)) {
    constexpr int kBlocks = blocks_of_matrix<ClusterThreads>();
    if (count * kBlocks <= multiprocessors_of(launch) && device_attribute(launch, cudaDevAttrClusterLaunch) != 0) {
      return launch->in_clusters<Kernels::template kernel<E, K, ClusterThreads>>(
          kBlocks, static_cast<unsigned>(count * kBlocks), Algorithm::kThreads / kBlocks, call, memory);
    }
  }
  launch->operator()<Kernels::template kernel<E, K, BlockThreads>>(static_cast<unsigned>(count), Algorithm::kThreads,
                                                                   static_cast<int>(sizeof(typename Algorithm::Shared)),
                                                                   call, memory);
}

// Matrices of a part of the batch, for which there is `room`. Where rows are in memory each matrix has a multiprocessor, and
// none of these should be idle. So their number is a multiple of that of multiprocessors, or all that are left.
inline int64_t matrices_of_part(Launch* launch, int k, int64_t room, int64_t count) {
  if (are_rows_in_shared(k)) return room;
  const int multiprocessors = multiprocessors_of(launch);
  return room >= count || room < multiprocessors ? room : room - room % multiprocessors;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BY_ROWS_REDUCTION_LAUNCH_H_
