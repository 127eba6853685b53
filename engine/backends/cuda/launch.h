// From a plan to kernels: the launcher of one element type. All thresholds of shape that choose a kernel are here and
// in policies/cuda_tuning.h; none changes a bit.
//
//   m != n        scan, tile, join ..      to k x k triangles with exponents, then as square matrices; a scan of its
//                                          own where a matrix is more than a tile in registers
//   vectors       lane_vectors or team_vectors
//   k > 32        block_launch.h, with vectors or without; a matrix with m != n is one tile
//   BISECTION     interlace, bidiagonal, bisection, finish
//   small         lane_kernel              k <= kLargestFixedSize; BIDIAGONAL only while a matrix fits the registers
//   otherwise     bidiagonalize or jacobi kernel, finish
//   MIMO answers  answers.h                after the values of all matrices, which stay on the device
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_

#include <algorithm>

#include "engine/backends/cuda/blocks/block_launch.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/finish/finishing_kernels.h"
#include "engine/backends/cuda/lanes/bisection_kernels.h"
#include "engine/backends/cuda/lanes/finish_kernel.h"
#include "engine/backends/cuda/lanes/lane_kernel.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"
#include "engine/backends/cuda/mimo/answers.h"
#include "engine/backends/cuda/tall/join_registers.h"
#include "engine/backends/cuda/tall/tall_kernels.h"
#include "engine/backends/cuda/tall/tall_registers.h"
#include "engine/cuda_outcome.h"
#include "engine/planner.h"
#include "engine/vector_layout.h"

namespace svdserve::cuda {

// Threads of a block of teams, so that several blocks share a multiprocessor where a team's memory allows it.
inline int team_block(int threads, int team_bytes) {
  int block = kTeamBlock;
  while (block > 32 && block / threads * team_bytes > kTeamBlockBytes) block /= 2;
  return block;
}

template <class E>
class Launcher {
 public:
  using T = typename E::Scalar;

  explicit Launcher(const Plan& plan)
      : plan_(plan),
        method_(plan.method),
        k_(static_cast<int>(values_per_matrix(plan.problem))),
        long_side_(std::max(plan.problem.rows, plan.problem.cols)),
        tile_rows_(static_cast<int>(is_large() ? long_side_ : std::min<int64_t>(long_side_, kTileRows))),
        tiles_(static_cast<int>((long_side_ + tile_rows_ - 1) / tile_rows_)) {}

  uint64_t workspace_bytes(int64_t count) const {
    Carver carver(nullptr);
    carve(&carver, count);
    return carver.used();
  }

  cudaError_t launch(const DeviceBatch& batch, int device, cudaStream_t stream) const {
    Launch launch{device, stream};
    Carver carver(batch.workspace);
    const Workspace w = carve(&carver, batch.count);
    SquareCall<T> call{static_cast<const T*>(batch.matrices),
                       nullptr,
                       batch.count,
                       k_,
                       plan_.problem.order == Order::kRowMajor,
                       static_cast<T>(plan_.tolerance),
                       plan_.max_sweeps,
                       gives_all_values() ? static_cast<T*>(batch.planes[Plane::kValues]) : w.values,
                       batch.statuses,
                       batch.exception_counts};
    if (!square()) {
      reduce(&launch, call.a, batch.count, w);
      call.a = w.triangles;
      call.exponents = w.exponents;
      call.row_major = true;
    }
    if (with_vectors()) {
      vectors(&launch, call, batch, w);
    } else if (is_large()) {
      by_blocks(&launch, {call, {}, {}}, w);
    } else if (method_ == Method::kBisection) {
      by_bisection(&launch, call, w);
    } else if (in_lanes()) {
      method_ == Method::kJacobi ? by_lanes<Method::kJacobi, 1>(&launch, call, w)
                                 : by_lanes<Method::kBidiagonal, 1>(&launch, call, w);
    } else {
      k_ <= kSmallTeamColumns ? by_teams<kSmallTeam>(&launch, call, w) : by_teams<kLargeTeam>(&launch, call, w);
    }
    if (!gives_all_values()) copy_leading_values(&launch, call, batch);
    if (launch.error == cudaSuccess && plan_.outputs.answers()) {
      launch.error = launch_answers(plan_, batch, call.values, stream);
    }
    return launch.error;
  }

 private:
  struct Workspace {
    T* values;  // all k of each matrix, where the plane has not room for them
    T* exponents;
    T* triangles;
    T *factors, *g, *heads;  // of the reduction, with vectors
    E *staged_x, *staged_y;
    char* finishing;
    char* blocks;
    Between<T> between;
    T* s;
    E* interlaced;
  };

  bool with_vectors() const { return plan_.outputs.left_columns > 0 || plan_.outputs.right_columns > 0; }
  bool staged() const { return is_staged(plan_.problem, plan_.outputs); }
  // Columns of X that are made.
  int64_t x_columns() const {
    return staged()                                  ? k_
           : plan_.problem.cols > plan_.problem.rows ? plan_.outputs.right_columns
                                                     : plan_.outputs.left_columns;
  }
  // Too large for teams: a block a matrix.
  bool is_large() const { return k_ > kLargestReproducible; }
  // Whether X is made, and is Q times something.
  bool keeps_factors() const { return !square() && x_columns() > 0; }
  // Y needs no finishing but for phases.
  bool finishes() const { return x_columns() > 0; }
  FinishPlan finishing(int64_t count) const {
    return finish_plan<E>(k_, static_cast<int>(long_side_), static_cast<int>(x_columns()), count);
  }
  bool gives_all_values() const { return plan_.outputs.values == k_; }
  void copy_leading_values(Launch* launch, const SquareCall<T>& call, const DeviceBatch& batch) const {
    const size_t row = sizeof(T) * static_cast<size_t>(plan_.outputs.values);
    if (launch->error != cudaSuccess || row == 0 || call.count == 0) return;
    launch->error = cudaMemcpy2DAsync(batch.planes[Plane::kValues], row, call.values, sizeof(T) * k_, row,
                                      static_cast<size_t>(call.count), cudaMemcpyDeviceToDevice, launch->stream);
  }

  bool square() const { return plan_.problem.rows == plan_.problem.cols; }
  static constexpr bool fits_registers(int k) {
    return k <= kLargestFixedSize && k * k * static_cast<int>(sizeof(E)) <= kLargestRegisterMatrixBytes;
  }
  static constexpr bool is_split(int k) {
    return fits_registers(k) && k * k * static_cast<int>(sizeof(E)) > kLargestFusedMatrixBytes;
  }
  bool in_lanes() const { return method_ == Method::kJacobi ? k_ <= kLargestFixedSize : fits_registers(k_); }

  Workspace carve(Carver* carver, int64_t count) const {
    Workspace w{};
    if (!gives_all_values()) w.values = carver->take<T>(count * k_);
    if (!square()) {
      w.exponents = carver->take<T>(count * k_);
      w.triangles = reinterpret_cast<T*>(carver->template take<E>(count * tiles_ * k_ * k_));
      if ((keeps_factors() && !factorizes_again()) || is_large()) {
        w.factors = reinterpret_cast<T*>(carver->template take<E>(count * tiles_ * tile_rows_ * k_));
      }
      if (keeps_factors() || is_large()) {
        w.g = carver->take<T>(count * tiles_ * 2 * k_);
        w.heads = reinterpret_cast<T*>(carver->template take<E>(count * tiles_ * k_));
      }
    }
    if (with_vectors()) {
      if (staged()) {
        w.staged_x = carver->take<E>(count * long_side_ * k_);
        w.staged_y = carver->take<E>(count * k_ * k_);
      }
      if (finishes()) w.finishing = carver->take<char>(finishing(count).scratch_bytes);
    }
    if (is_large()) {
      w.blocks = carver->take<char>(BlockLaunch<E>::workspace_bytes(k_, with_vectors(), count));
      return w;
    }
    if (method_ == Method::kBisection || !in_lanes() || (method_ == Method::kBidiagonal && is_split(k_))) {
      w.between = {carver->take<T>(count * k_), carver->take<T>(count * k_), carver->take<T>(count),
                   carver->take<T>(count)};
    }
    if (method_ == Method::kBisection) {
      w.s = carver->take<T>(count * k_);
      w.interlaced = carver->take<E>(count * k_ * k_);
    }
    return w;
  }

  // --- k <= kLargestFixedSize ----------------------------------------------------------------------

  template <Method kMethod, int K>
  void by_lanes(Launch* launch, const SquareCall<T>& call, const Workspace& w) const {
    if constexpr (K <= kLargestFixedSize && (kMethod == Method::kJacobi || fits_registers(K))) {
      if (k_ != K) return by_lanes<kMethod, K + 1>(launch, call, w);
      using Shape = LaneShape<E, K, kMethod>;
      const unsigned blocks = blocks_for(call.count, Shape::kBlock);
      if constexpr (kMethod == Method::kBidiagonal && is_split(K)) {
        launch->operator()<lane_bidiagonalize_kernel<E, K>>(blocks, Shape::kBlock, Shape::kSharedBytes, call,
                                                            w.between);
        finish<kMethod, K>(launch, call, w.between);
      } else {
        launch->operator()<lane_kernel<E, K, kMethod>>(blocks, Shape::kBlock, Shape::kSharedBytes, call);
      }
    }
  }

  // --- larger ----------------------------------------------------------------------------------------

  template <int kThreads>
  void by_teams(Launch* launch, const SquareCall<T>& call, const Workspace& w) const {
    const int team_bytes = TeamKernel<E, kThreads>::team_bytes(k_, k_), block = team_block(kThreads, team_bytes);
    const int teams = block / kThreads;
    if (method_ == Method::kJacobi) {
      launch->operator()<jacobi_kernel<E, kThreads>>(blocks_for(call.count, teams), block, teams * team_bytes, call,
                                                     w.between);
      finish<Method::kJacobi, 0>(launch, call, w.between);
    } else {
      launch->operator()<bidiagonalize_kernel<E, kThreads>>(blocks_for(call.count, teams), block, teams * team_bytes,
                                                            call, w.between);
      finish<Method::kBidiagonal, 0>(launch, call, w.between);
    }
  }

  template <Method kMethod, int K>
  void finish(Launch* launch, const SquareCall<T>& call, const Between<T>& between) const {
    const int shared_bytes =
        kFinishBlock * finish_slot(kMethod, k_, kDqdsInRegisters<T, K>) * static_cast<int>(sizeof(T));
    launch->operator()<finish_kernel<T, kMethod, K>>(blocks_for(call.count, kFinishBlock), kFinishBlock, shared_bytes,
                                                     call, between);
  }

  // --- vectors -------------------------------------------------------------------------------------------

  Columns<E> columns_of(const VectorLayout& layout, void* data) const {
    return {static_cast<E*>(data), layout.matrix_stride(),           layout.row_stride,
            layout.col_stride,     static_cast<int>(layout.columns), layout.conjugate};
  }

  void vectors(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w) const {
    const VectorLayout wanted_x = long_layout(plan_.problem, plan_.outputs);
    const VectorLayout wanted_y = short_layout(plan_.problem, plan_.outputs);
    const VectorLayout x_layout = staged() ? staged_layout(wanted_x, k_) : wanted_x;
    const VectorLayout y_layout = staged() ? staged_layout(wanted_y, k_) : wanted_y;
    void* const x_data = staged() ? w.staged_x : x_columns() > 0 ? batch.planes[wanted_x.plane] : nullptr;
    void* const y_data = staged() ? w.staged_y : y_layout.columns > 0 ? batch.planes[wanted_y.plane] : nullptr;
    const Columns<E> x = columns_of(x_layout, x_data), y = columns_of(y_layout, y_data);
    const Columns<E> triangles{reinterpret_cast<E*>(w.triangles), k_ * k_, k_, 1, k_, false};
    const VectorsCall<E> call{square, keeps_factors() ? triangles : x, y};
    is_large() ? by_blocks(launch, call, w) : decompose(launch, call);
    if (keeps_factors()) {
      const TallCall<T> tall = tall_call(static_cast<const T*>(batch.matrices), square.count, w);
      expand(launch, tall, x);
    }
    if (finishes())
      finish_planes(launch, square, batch, w, finish_vectors_of<T>(x_data, x_layout),
                    finish_vectors_of<T>(y_data, y_layout));
    if (staged()) {
      copy_columns(launch, w.staged_x, wanted_x, square.count, batch);
      copy_columns(launch, w.staged_y, wanted_y, square.count, batch);
    }
  }

  void by_blocks(Launch* launch, const VectorsCall<E>& call, const Workspace& w) const {
    if (launch->error != cudaSuccess || call.square.count == 0) return;
    launch->error = BlockLaunch<E>::decompose(call, with_vectors(), w.blocks, launch->device, launch->stream);
  }

  void expand(Launch* launch, const TallCall<T>& tall, const Columns<E>& x) const {
    if (is_large()) {
      if (launch->error == cudaSuccess && tall.count > 0) {
        launch->error = BlockLaunch<E>::expand(tall, x, launch->stream);
      }
      return;
    }
    k_ <= kSmallTeamColumns ? apply_tiles<kSmallTeam>(launch, tall, x) : apply_tiles<kLargeTeam>(launch, tall, x);
  }

  void decompose(Launch* launch, const VectorsCall<E>& call) const {
    if (k_ <= kLargestLaneVectors) return vectors_by_lanes<1>(launch, call);
    if (k_ <= 8) return vectors_by_teams<8>(launch, call);
    k_ <= 16 ? vectors_by_teams<16>(launch, call) : vectors_by_teams<32>(launch, call);
  }

  void finish_planes(Launch* launch, const SquareCall<T>& square, const DeviceBatch& batch, const Workspace& w,
                     const FinishVectors<T>& x, const FinishVectors<T>& y) const {
    const bool by_rows = (plan_.problem.order == Order::kRowMajor) == (plan_.problem.rows >= plan_.problem.cols);
    FinishCall<T> call{};
    call.options = {k_, plan_.problem.cols > plan_.problem.rows, plan_.outputs.fix_phases, true,
                    plan_.outputs.certificate};
    call.count = square.count;
    call.x = x;
    call.y = y;
    call.s = square.values;
    call.statuses = batch.statuses;
    call.a = static_cast<const T*>(batch.matrices);
    call.row_stride = by_rows ? k_ : 1;
    call.col_stride = by_rows ? 1 : long_side_;
    call.certificates = static_cast<T*>(batch.planes[Plane::kCertificate]);
    call.scratch = w.finishing;
    finish_vectors<E>(launch, finishing(square.count), call);
  }

  void copy_columns(Launch* launch, const E* from, const VectorLayout& wanted, int64_t count,
                    const DeviceBatch& batch) const {
    void* const to = batch.planes[wanted.plane];
    if (wanted.columns == 0 || to == nullptr) return;
    constexpr int kBlock = 256;
    launch->operator()<copy_columns_kernel<E>>(blocks_for(count * wanted.matrix_stride(), kBlock), kBlock, 0, from,
                                               static_cast<int>(wanted.rows), k_, count, columns_of(wanted, to));
  }

  // X_k, which is where the first tile's triangle was, back through the tree.
  template <int kThreads>
  void apply_tiles(Launch* launch, const TallCall<T>& call, const Columns<E>& to) const {
    using Kernel = TeamKernel<E, kThreads>;
    const int columns = std::min(to.columns, k_);
    const int join_bytes = Kernel::team_bytes(3 * k_, k_), join_block = team_block(kThreads, join_bytes);
    int d = 1;
    while (d < tiles_) d *= 2;
    for (d /= 2; d >= 1; d /= 2) {
      const int64_t pairs = (tiles_ - d + 2 * d - 1) / (2 * d);
      if (in_register_tiles()) {
        with_register_tile<E>(tile_rows_, k_, [&]<int kRows, int kGroups, int kColumns>() {
          launch->operator()<expand_join_registers_kernel<E, kGroups, kColumns>>(
              blocks_for(call.count * pairs, kRegisterBlock / (8 * kGroups)), kRegisterBlock, 0, call, d);
        });
        continue;
      }
      launch->operator()<apply_join_kernel<E, kThreads>>(blocks_for(call.count * pairs, join_block / kThreads),
                                                         join_block, join_block / kThreads * join_bytes, call, d,
                                                         columns);
    }
    if (in_register_tiles()) {
      with_register_tile<E>(tile_rows_, k_, [&]<int kRows, int kGroups, int kColumns>() {
        launch->operator()<expand_registers_kernel<E, kRows, kGroups, kColumns>>(
            blocks_for(call.count * tiles_, kRegisterBlock / (8 * kGroups)), kRegisterBlock, 0, call, to, columns);
      });
      return;
    }
    const int tile_bytes = Kernel::team_bytes(2 * tile_rows_, k_), tile_block = team_block(kThreads, tile_bytes);
    launch->operator()<apply_tile_kernel<E, kThreads>>(blocks_for(call.count * tiles_, tile_block / kThreads),
                                                       tile_block, tile_block / kThreads * tile_bytes, call, to,
                                                       columns);
  }

  template <int K>
  void vectors_by_lanes(Launch* launch, const VectorsCall<E>& call) const {
    if constexpr (K <= kLargestLaneVectors) {
      if (k_ != K) return vectors_by_lanes<K + 1>(launch, call);
      using Shape = LaneVectorsShape<E, K>;
      launch->operator()<lane_vectors_kernel<E, K>>(blocks_for(call.square.count, Shape::kBlock), Shape::kBlock,
                                                    Shape::kSharedBytes, call);
    }
  }

  template <int K>
  void vectors_by_teams(Launch* launch, const VectorsCall<E>& call) const {
    constexpr int kSplit = vectors_split(K, sizeof(E));
    constexpr int kTeams = kVectorsBlock / VectorsTeam<E, K, kSplit>::kThreads;
    launch->operator()<team_vectors_kernel<E, K, kSplit>>(blocks_for(call.square.count, kTeams), kVectorsBlock, 0,
                                                          call);
  }

  // --- BISECTION ---------------------------------------------------------------------------------------

  void by_bisection(Launch* launch, const SquareCall<T>& call, const Workspace& w) const {
    const dim3 tiles(blocks_for(call.count, kInterlaceTile), blocks_for(k_ * k_, kInterlaceTile));
    launch->operator()<interlace_kernel<E>>(tiles, dim3(kInterlaceTile, 8), 0, call, w.interlaced);
    bisection_kernels<1>(launch, call, w);
    Between<T> finished = w.between;
    finished.q = w.s;
    finish<Method::kBisection, 0>(launch, call, finished);
  }

  template <int K>
  void bisection_kernels(Launch* launch, const SquareCall<T>& call, const Workspace& w) const {
    if constexpr (K != 0) {
      if (k_ != K) return bisection_kernels<(fits_registers(K + 1) ? K + 1 : 0)>(launch, call, w);
    }
    constexpr int kBlock = 128;
    const unsigned blocks = blocks_for(call.count, kBlock);
    launch->operator()<bidiagonal_kernel<E, K>>(blocks, kBlock, 0, call, w.interlaced, w.between);
    launch->operator()<bisection_kernel<T, K>>(dim3(blocks, k_), kBlock, 0, call, w.between, w.s);
  }

  // --- m != n --------------------------------------------------------------------------------------------

  bool in_register_tiles() const { return is_register_tile(tile_rows_, k_, sizeof(E)); }

  bool factorizes_again() const { return in_register_tiles() && has_room_for_x(tile_rows_, k_, sizeof(E)); }

  TallCall<T> tall_call(const T* a, int64_t count, const Workspace& w) const {
    // Consecutive elements of a row-major tall matrix are a row of it; of a row-major wide one, a column of its
    // transpose.
    const bool rows_contiguous =
        (plan_.problem.order == Order::kRowMajor) == (plan_.problem.rows >= plan_.problem.cols);
    return {a,
            count,
            long_side_,
            k_,
            rows_contiguous ? k_ : 1,
            rows_contiguous ? 1 : long_side_,
            method_ == Method::kJacobi,
            tile_rows_,
            tiles_,
            w.exponents,
            w.triangles,
            w.factors,
            w.g,
            w.heads};
  }

  void reduce(Launch* launch, const T* a, int64_t count, const Workspace& w) const {
    const TallCall<T> call = tall_call(a, count, w);
    if (is_large()) {
      if (launch->error == cudaSuccess && count > 0) launch->error = BlockLaunch<E>::reduce(call, launch->stream);
      return;
    }
    if (tiles_ > 1 || !in_register_tiles()) {
      const int scan_block = long_side_ * k_ <= 4096 ? 64 : 256;
      launch->operator()<scan_kernel<E>>(static_cast<unsigned>(count), scan_block, 0, call);
    }
    k_ <= kSmallTeamColumns ? reduce_tiles<kSmallTeam>(launch, call) : reduce_tiles<kLargeTeam>(launch, call);
  }

  template <int kThreads>
  void reduce_tiles(Launch* launch, const TallCall<T>& call) const {
    using Kernel = TeamKernel<E, kThreads>;
    if (in_register_tiles()) {
      with_register_tile<E>(tile_rows_, k_, [&]<int kRows, int kGroups, int kColumns>() {
        launch->operator()<tile_registers_kernel<E, kRows, kGroups, kColumns>>(
            blocks_for(call.count * tiles_, kRegisterBlock / (8 * kGroups)), kRegisterBlock, 0, call);
      });
    } else {
      const int tile_bytes = Kernel::team_bytes(tile_rows_, k_), tile_block = team_block(kThreads, tile_bytes);
      launch->operator()<tile_kernel<E, kThreads>>(blocks_for(call.count * tiles_, tile_block / kThreads), tile_block,
                                                   tile_block / kThreads * tile_bytes, call);
    }
    const int join_bytes = Kernel::team_bytes(2 * k_, k_), join_block = team_block(kThreads, join_bytes);
    for (int d = 1; d < tiles_; d *= 2) {
      const int64_t pairs = (tiles_ - d + 2 * d - 1) / (2 * d);
      if (in_register_tiles()) {
        with_register_tile<E>(tile_rows_, k_, [&]<int kRows, int kGroups, int kColumns>() {
          launch->operator()<join_registers_kernel<E, kGroups, kColumns>>(
              blocks_for(call.count * pairs, kRegisterBlock / (8 * kGroups)), kRegisterBlock, 0, call, d);
        });
        continue;
      }
      launch->operator()<join_kernel<E, kThreads>>(blocks_for(call.count * pairs, join_block / kThreads), join_block,
                                                   join_block / kThreads * join_bytes, call, d);
    }
  }

  const Plan plan_;
  const Method method_;
  const int k_;
  const int64_t long_side_;
  const int tile_rows_, tiles_;
};

// The functions that a translation unit of one element type defines.
struct TypeLauncher {
  uint64_t (*workspace_bytes)(const Plan& plan, int64_t count);
  cudaError_t (*launch)(const Plan& plan, const DeviceBatch& batch, int device, cudaStream_t stream);
};

template <class E>
TypeLauncher type_launcher() {
  return {[](const Plan& plan, int64_t count) { return Launcher<E>(plan).workspace_bytes(count); },
          [](const Plan& plan, const DeviceBatch& batch, int device, cudaStream_t stream) {
            return Launcher<E>(plan).launch(batch, device, stream);
          }};
}

TypeLauncher f32_launcher();
TypeLauncher f64_launcher();
TypeLauncher c64_launcher();
TypeLauncher c128_launcher();

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LAUNCH_H_
