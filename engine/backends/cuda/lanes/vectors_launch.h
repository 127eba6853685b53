// Launches of the kernels that give vectors of k x k matrices, k <= kLargestReproducible: lane_vectors up to
// kLargestLaneVectors, and team_vectors of 6, 8, 12, 16, 24 or 32 columns.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_LAUNCH_H_

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"
#include "engine/vector_layout.h"

namespace svdserve::cuda {

template <class E>
Columns<E> columns_of(const VectorLayout& layout, void* data) {
  return {static_cast<E*>(data), layout.matrix_stride(),           layout.row_stride,
          layout.col_stride,     static_cast<int>(layout.columns), layout.conjugate};
}

template <class E, int K>
void launch_lane_vectors(Launch* launch, const VectorsCall<E>& call) {
  if constexpr (K <= kLargestLaneVectors) {
    if (call.square.k != K) return launch_lane_vectors<E, K + 1>(launch, call);
    using Shape = LaneVectorsShape<E, K>;
    launch->operator()<lane_vectors_kernel<E, K>>(blocks_for(call.square.count, Shape::kBlock), Shape::kBlock,
                                                  Shape::kSharedBytes, call);
  }
}

template <class E, int K>
void launch_team_vectors(Launch* launch, const VectorsCall<E>& call) {
  constexpr int kSplit = vectors_split(K, sizeof(E));
  using Team = TeamVectors<E, K, kSplit>;
  launch->operator()<team_vectors_kernel<E, K, kSplit>>(blocks_for(call.square.count, Team::kTeams), kVectorsBlock,
                                                        Team::kSharedBytes, call);
}

// U, S and V.
template <class E>
void launch_vectors(Launch* launch, const VectorsCall<E>& call) {
  const int k = call.square.k;
  if (k <= kLargestLaneVectors) return launch_lane_vectors<E, 1>(launch, call);
  with_team_columns(k, [&]<int K>() { launch_team_vectors<E, K>(launch, call); });
}

// The leading columns of staged vectors, k of each matrix by columns, to their plane, where it is wanted.
template <class E>
void launch_copy_columns(Launch* launch, const E* from, int k, int64_t count, const VectorLayout& wanted, void* to) {
  if (wanted.columns == 0 || to == nullptr) return;
  constexpr int kBlock = 256;
  launch->operator()<copy_columns_kernel<E>>(blocks_for(count * wanted.matrix_stride(), kBlock), kBlock, 0, from,
                                             static_cast<int>(wanted.rows), k, count, columns_of<E>(wanted, to));
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VECTORS_LAUNCH_H_
