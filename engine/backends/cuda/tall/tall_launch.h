// Launches of the QR tree, k <= kLargestReproducible: matrices with m != n to k x k triangles with exponents, and X = Q
// X_k back through the tree. Tiles are in registers where they fit, and in shared memory otherwise.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_LAUNCH_H_

#include <algorithm>

#include "engine/algorithms/blocks/block_qr.h"
#include "engine/backends/cuda/device/batch_shape.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/team_kernels.h"
#include "engine/backends/cuda/tall/join_registers.h"
#include "engine/backends/cuda/tall/tall_kernels.h"
#include "engine/backends/cuda/tall/tall_registers.h"

namespace svdserve::cuda {

template <class E>
bool in_register_tiles(const TallCall<typename E::Scalar>& call) {
  return is_register_tile(call.tile_rows, call.k, sizeof(E));
}

// The reduction of `count` matrices at `a`, of any k, with its memory from `carver`. Square matrices need none.
template <class E>
TallCall<typename E::Scalar> carve_tall_call(const BatchShape& shape, const typename E::Scalar* a, int64_t count,
                                             Carver* carver) {
  using T = typename E::Scalar;
  const int k = shape.k;
  TallCall<T> call{};
  call.a = a;
  call.count = count;
  call.long_side = shape.long_side;
  call.k = k;
  call.row_stride = shape.rows_contiguous() ? k : 1;
  call.col_stride = shape.rows_contiguous() ? 1 : shape.long_side;
  call.by_column = shape.plan.method == Method::kJacobi;
  call.tile_rows = shape.tile_rows;
  call.tiles = shape.tiles;
  if (!shape.is_reduced()) return call;
  const int64_t tiles = count * shape.tiles;
  const bool factorizes_again =
      !shape.is_large() && in_register_tiles<E>(call) && has_room_for_x(call.tile_rows, k, sizeof(E));
  call.exponents = carver->take<T>(count * k);
  call.triangles = reinterpret_cast<T*>(carver->take<E>(tiles * k * k));
  if (!shape.keeps_factors()) return call;
  using Block = scalar::BlockQrShape<E>;
  const int64_t steps = count * Block::tiles(static_cast<int>(shape.long_side)) * k;  // of matrices for thread blocks
  if (!factorizes_again) {
    const int64_t elements = shape.is_large() ? steps * Block::kHeight : tiles * shape.tile_rows * k;
    call.factors = reinterpret_cast<T*>(carver->take<E>(elements));
  }
  call.g = carver->take<T>(shape.is_large() ? steps : tiles * 2 * k);
  call.heads = reinterpret_cast<T*>(carver->take<E>(shape.is_large() ? steps : tiles * k));
  return call;
}

// --- to triangles ----------------------------------------------------------------------------------------------------

template <class E, int kThreads>
void launch_tiles(Launch* launch, const TallCall<typename E::Scalar>& call) {
  if (in_register_tiles<E>(call)) {
    with_register_tile<E>(call.tile_rows, call.k, [&]<int kRows, int kGroups, int kColumns>() {
      launch->operator()<tile_registers_kernel<E, kRows, kGroups, kColumns>>(
          blocks_for(call.count * call.tiles, register_block(kGroups) / (8 * kGroups)), register_block(kGroups), 0,
          call);
    });
    return;
  }
  const int bytes = TeamKernel<E, kThreads>::team_bytes(call.tile_rows, call.k), block = team_block(kThreads, bytes);
  launch->operator()<tile_kernel<E, kThreads>>(blocks_for(call.count * call.tiles, block / kThreads), block,
                                               block / kThreads * bytes, call);
}

template <class E, int kThreads>
void launch_joins(Launch* launch, const TallCall<typename E::Scalar>& call) {
  const int bytes = TeamKernel<E, kThreads>::team_bytes(2 * call.k, call.k), block = team_block(kThreads, bytes);
  for (int d = 1; d < call.tiles; d *= 2) {
    const int64_t pairs = (call.tiles - d + 2 * d - 1) / (2 * d);
    if (in_register_tiles<E>(call)) {
      with_register_tile<E>(call.tile_rows, call.k, [&]<int kRows, int kGroups, int kColumns>() {
        launch->operator()<join_registers_kernel<E, kGroups, kColumns>>(
            blocks_for(call.count * pairs, register_block(kGroups) / (8 * kGroups)), register_block(kGroups), 0, call,
            d);
      });
      continue;
    }
    launch->operator()<join_kernel<E, kThreads>>(blocks_for(call.count * pairs, block / kThreads), block,
                                                 block / kThreads * bytes, call, d);
  }
}

template <class E>
void launch_reduction(Launch* launch, const TallCall<typename E::Scalar>& call) {
  if (call.tiles > 1 || !in_register_tiles<E>(call)) {
    const int scan_block = call.long_side * call.k <= 4096 ? 64 : 256;
    launch->operator()<scan_kernel<E>>(static_cast<unsigned>(call.count), scan_block, 0, call);
  }
  if (call.k <= kSmallTeamColumns) {
    launch_tiles<E, kSmallTeam>(launch, call);
    launch_joins<E, kSmallTeam>(launch, call);
  } else {
    launch_tiles<E, kLargeTeam>(launch, call);
    launch_joins<E, kLargeTeam>(launch, call);
  }
}

// --- and back --------------------------------------------------------------------------------------------------------

template <class E, int kThreads>
void launch_expanding_joins(Launch* launch, const TallCall<typename E::Scalar>& call, int columns) {
  const int bytes = TeamKernel<E, kThreads>::team_bytes(3 * call.k, call.k), block = team_block(kThreads, bytes);
  int d = 1;
  while (d < call.tiles) d *= 2;
  for (d /= 2; d >= 1; d /= 2) {
    const int64_t pairs = (call.tiles - d + 2 * d - 1) / (2 * d);
    if (in_register_tiles<E>(call)) {
      with_register_tile<E>(call.tile_rows, call.k, [&]<int kRows, int kGroups, int kColumns>() {
        launch->operator()<expand_join_registers_kernel<E, kGroups, kColumns>>(
            blocks_for(call.count * pairs, register_block(kGroups) / (8 * kGroups)), register_block(kGroups), 0, call,
            d);
      });
      continue;
    }
    launch->operator()<apply_join_kernel<E, kThreads>>(blocks_for(call.count * pairs, block / kThreads), block,
                                                       block / kThreads * bytes, call, d, columns);
  }
}

template <class E, int kThreads>
void launch_expanding_tiles(Launch* launch, const TallCall<typename E::Scalar>& call, const Columns<E>& to,
                            int columns) {
  if (in_register_tiles<E>(call)) {
    with_register_tile<E>(call.tile_rows, call.k, [&]<int kRows, int kGroups, int kColumns>() {
      launch->operator()<expand_registers_kernel<E, kRows, kGroups, kColumns>>(
          blocks_for(call.count * call.tiles, register_block(kGroups) / (8 * kGroups)), register_block(kGroups), 0,
          call, to, columns);
    });
    return;
  }
  const int bytes = TeamKernel<E, kThreads>::team_bytes(2 * call.tile_rows, call.k);
  const int block = team_block(kThreads, bytes);
  launch->operator()<apply_tile_kernel<E, kThreads>>(blocks_for(call.count * call.tiles, block / kThreads), block,
                                                     block / kThreads * bytes, call, to, columns);
}

// X = Q X_k, of its columns those that `to` has. X_k is where the first tile's triangle was.
template <class E>
void launch_expansion(Launch* launch, const TallCall<typename E::Scalar>& call, const Columns<E>& to) {
  const int columns = std::min(to.columns, call.k);
  if (call.k <= kSmallTeamColumns) {
    launch_expanding_joins<E, kSmallTeam>(launch, call, columns);
    launch_expanding_tiles<E, kSmallTeam>(launch, call, to, columns);
  } else {
    launch_expanding_joins<E, kLargeTeam>(launch, call, columns);
    launch_expanding_tiles<E, kLargeTeam>(launch, call, to, columns);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TALL_TALL_LAUNCH_H_
