// Launches of the kernels that give the singular values of k x k matrices without vectors: k <= kLargestReproducible, and
// BIDIAGONAL's as far as it is AUTO.
//
//   BISECTION   interlace, bidiagonal, bisection, finish
//   small       lane_kernel              k <= kLargestFixedSize; BIDIAGONAL only while a matrix fits the registers
//   otherwise   BIDIAGONAL: grid_bidiagonalize, JACOBI: jacobi kernel; finish
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VALUES_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VALUES_LAUNCH_H_

#include "engine/backends/cuda/device/batch_shape.h"
#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/bisection_kernels.h"
#include "engine/backends/cuda/lanes/finish_kernel.h"
#include "engine/backends/cuda/lanes/grid_kernels.h"
#include "engine/backends/cuda/lanes/lane_kernel.h"
#include "engine/backends/cuda/lanes/team_kernels.h"

namespace svdserve::cuda {

template <class E>
class ValuesLaunch {
 public:
  using T = typename E::Scalar;

  // Takes the memory of `count` matrices from `carver`. A shape that thread blocks decompose has none.
  ValuesLaunch(const BatchShape& shape, int64_t count, Carver* carver) : method_(shape.plan.method), k_(shape.k) {
    if (shape.by_blocks() || shape.by_rows()) return;
    if (method_ == Method::kBisection || !in_lanes() || (method_ == Method::kBidiagonal && is_split(k_))) {
      between_ = {carver->take<T>(count * k_), carver->take<T>(count * k_), carver->take<T>(count),
                  carver->take<T>(count)};
    }
    if (method_ == Method::kBisection) {
      s_ = carver->take<T>(count * k_);
      interlaced_ = carver->take<E>(count * k_ * k_);
    }
  }

  void enqueue(Launch* launch, const SquareCall<T>& call) const {
    if (method_ == Method::kBisection) {
      by_bisection(launch, call);
    } else if (in_lanes()) {
      method_ == Method::kJacobi ? by_lanes<Method::kJacobi, 1>(launch, call)
                                 : by_lanes<Method::kBidiagonal, 1>(launch, call);
    } else if (method_ == Method::kJacobi) {
      k_ <= kSmallTeamColumns ? by_teams<kSmallTeam>(launch, call) : by_teams<kLargeTeam>(launch, call);
    } else {
      by_grid<grid_sizes(0)>(launch, call);
    }
  }

 private:
  static constexpr bool fits_registers(int k) { return k <= kLargestFixedSize && scalar::fits_one_thread<E>(k); }
  static constexpr bool is_split(int k) {
    return fits_registers(k) && k * k * static_cast<int>(sizeof(E)) > kLargestFusedMatrixBytes;
  }
  bool in_lanes() const { return method_ == Method::kJacobi ? k_ <= kLargestFixedSize : fits_registers(k_); }

  // --- a thread a matrix ---------------------------------------------------------------------------------------------

  template <Method kMethod, int K>
  void by_lanes(Launch* launch, const SquareCall<T>& call) const {
    if constexpr (K <= kLargestFixedSize && (kMethod == Method::kJacobi || fits_registers(K))) {
      if (k_ != K) return by_lanes<kMethod, K + 1>(launch, call);
      using Shape = LaneShape<E, K, kMethod>;
      const unsigned blocks = blocks_for(call.count, Shape::kBlock);
      if constexpr (kMethod == Method::kBidiagonal && is_split(K)) {
        launch->operator()<lane_bidiagonalize_kernel<E, K>>(blocks, Shape::kBlock, Shape::kSharedBytes, call, between_);
        finish<kMethod, K>(launch, call, between_);
      } else {
        launch->operator()<lane_kernel<E, K, kMethod>>(blocks, Shape::kBlock, Shape::kSharedBytes, call);
      }
    }
  }

  // --- a team a matrix, then a thread --------------------------------------------------------------------------------

  template <int kThreads>
  void by_teams(Launch* launch, const SquareCall<T>& call) const {
    const int team_bytes = TeamKernel<E, kThreads>::team_bytes(k_, k_), block = team_block(kThreads, team_bytes);
    const int teams = block / kThreads;
    launch->operator()<jacobi_kernel<E, kThreads>>(blocks_for(call.count, teams), block, teams * team_bytes, call,
                                                   between_);
    finish<Method::kJacobi, 0>(launch, call, between_);
  }

  template <int K>
  void by_grid(Launch* launch, const SquareCall<T>& call) const {
    constexpr int kNext = K + grid_sizes(K);
    if constexpr (K <= kLargestInLanes) {
      using Grid = GridOfThreads<E, K>;
      if constexpr (Grid::kFits && Grid::kElsewhere == 0 && !fits_registers(K)) {
        if (k_ > K) return by_grid<kNext>(launch, call);
        launch->operator()<grid_bidiagonalize_kernel<E, K>>(blocks_for(call.count, Grid::kTeams), Grid::kBlock,
                                                            Grid::kSharedBytes, call, between_);
        finish_grid<K>(launch, call);
      } else {
        by_grid<kNext>(launch, call);
      }
    }
  }
  // Matrices of up to 8 columns have kernels for their size, large ones no room for a backup in registers.
  template <int K>
  void finish_grid(Launch* launch, const SquareCall<T>& call) const {
    if constexpr (K == kLargestFixedSize && !fits_registers(K - 1)) {
      if (k_ == K - 1) return finish<Method::kBidiagonal, K - 1>(launch, call, between_);
    }
    finish<Method::kBidiagonal, (K <= kLargestReproducible ? K : 0)>(launch, call, between_);
  }

  template <Method kMethod, int K>
  void finish(Launch* launch, const SquareCall<T>& call, const Between<T>& between) const {
    const int slot = finish_slot<T, kMethod, K>(k_) * static_cast<int>(sizeof(T)), block = finish_block(slot);
    launch->operator()<finish_kernel<T, kMethod, K>>(blocks_for(call.count, block), block, block * slot, call, between);
  }

  // --- BISECTION -----------------------------------------------------------------------------------------------------

  void by_bisection(Launch* launch, const SquareCall<T>& call) const {
    const dim3 tiles(blocks_for(call.count, kInterlaceTile), blocks_for(k_ * k_, kInterlaceTile));
    launch->operator()<interlace_kernel<E>>(tiles, dim3(kInterlaceTile, 8), 0, call, interlaced_);
    bisection_kernels<1>(launch, call);
    Between<T> finished = between_;
    finished.q = s_;
    finish<Method::kBisection, 0>(launch, call, finished);
  }

  template <int K>
  void bisection_kernels(Launch* launch, const SquareCall<T>& call) const {
    if constexpr (K != 0) {
      if (k_ != K) return bisection_kernels<(fits_registers(K + 1) ? K + 1 : 0)>(launch, call);
    }
    constexpr int kBlock = 128;
    const unsigned blocks = blocks_for(call.count, kBlock);
    launch->operator()<bidiagonal_kernel<E, K>>(blocks, kBlock, 0, call, interlaced_, between_);
    launch->operator()<bisection_kernel<T, K>>(dim3(blocks, k_), kBlock, 0, call, between_, s_);
  }

  const Method method_;
  const int k_;
  // Null where they are not needed.
  Between<T> between_{};
  T* s_ = nullptr;
  E* interlaced_ = nullptr;
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LANES_VALUES_LAUNCH_H_
