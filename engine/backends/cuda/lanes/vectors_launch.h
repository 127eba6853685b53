// Launches of the kernels that give vectors of k x k matrices, k <= kLargestReproducible: lane_vectors up to
// kLargestLaneVectors, and team_vectors of 8, 16 or 32 columns.
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
  constexpr int kTeams = kVectorsBlock / TeamJacobi<E, K, kSplit>::kThreads;
  launch->operator()<team_vectors_kernel<E, K, kSplit>>(blocks_for(call.square.count, kTeams), kVectorsBlock, 0, call);
}

// U, S and V.
template <class E>
void launch_vectors(Launch* launch, const VectorsCall<E>& call) {
  const int k = call.square.k;
  if (k <= kLargestLaneVectors) return launch_lane_vectors<E, 1>(launch, call);
  if (k <= 8) return launch_team_vectors<E, 8>(launch, call);
  k <= 16 ? launch_team_vectors<E, 16>(launch, call) : launch_team_vectors<E, 32>(launch, call);
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
