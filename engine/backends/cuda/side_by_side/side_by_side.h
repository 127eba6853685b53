// U, S, V of many matrices of 65 to 512 values at once, as is_side_by_side() in planner.h says, by the p-steps of large
// matrices.
//
//   T = A or A^T, m x k, m >= k;   [T_1 P_1, T_2 P_2, ..] W = [U_1 S_1, U_2 S_2, ..],   V_i = P_i W_i
// All matrices lie side by side in one X of m rows, so that a p-step is one launch for all of them. A pair is of one
// matrix. Columns are scaled by powers of two and sorted by norm (P), before the first sweep and between sweeps. Sweeps
// are p-steps in a round robin, until one has met no two columns of a matrix with |cos| > 2 tolerance. The matrix is then
// finished by a flag of its own, and its pairs are not looked at again. A Gram matrix is one sum. So the bits of a matrix
// do not depend on the others. A p-step does not sort, and no QR comes first (decisions/0015-batches-side-by-side.md). So
// the rows of tall matrices take part in every sweep. Pairs are rotated from half of the tolerance on. k^2 cosines up to
// all of it would leave U of k = 512 at the edge of the bound of its orthogonality. All arithmetic is double; f32 and c64
// take fewer sweeps by their tolerance.
// Cost: 9 sweeps or so of 3 m k^2 flops, and 2 k^3 for V (complex: four times). Inner sweeps of K^3 a pair of K columns
// take most of the time. Accuracy: that of large/block_jacobi_sweeps.h. V loses some u of orthogonality a sweep.
// Sources: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30; Boukaram et al., Parallel Comput. 74 (2018) 19-33: batches of
// block Jacobi on a GPU.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/algorithms/large/block_pivot_strategy.h"
#include "engine/backends/cuda/side_by_side/side_by_side_kernels.h"
#include "engine/backends/cuda/side_by_side/side_by_side_launch.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {

inline constexpr int kLeastPairColumns = 64;  // every device that has the kernels has these

// How matrices of a shape are divided: a function of the shape and of the columns that make a pair.
struct SideShape {
  SideShape(const BatchShape& shape, int columns_of_pair)
      : rows(static_cast<int>(shape.long_side)),
        k(shape.k),
        complex(is_complex(shape.plan.problem.dtype)),
        pair_columns(columns_of_pair),
        blocks((k + pair_columns / 2 - 1) / (pair_columns / 2)),
        width((k + blocks - 1) / blocks),
        columns(blocks * width) {}

  // Elements of 16 bytes together.
  int64_t aligned(int64_t n) const { return complex ? n : (n + 1) / 2 * 2; }
  int most_pairs() const { return blocks / 2; }  // of a p-step

  // The division that the planner wants.
  static SideShape wanted(const BatchShape& shape) {
    return {shape, side_by_side_pair_columns(shape.k, is_complex(shape.plan.problem.dtype))};
  }

  int rows, k;
  bool complex;
  int pair_columns, blocks, width, columns;
};

// The sweep of a matrix of so many blocks.
inline SideSweep side_sweep(int blocks) {
  SideSweep sweep{};
  int pairs = 0;
  for (const large::PivotStep& step : large::pivot_sweep(PivotStrategy::kRoundRobin, blocks)) {
    sweep.first[sweep.steps++] = pairs;
    for (const large::BlockPair& pair : step) {
      sweep.p[pairs] = static_cast<uint8_t>(std::min(pair.p, pair.q));
      sweep.q[pairs++] = static_cast<uint8_t>(std::max(pair.p, pair.q));
    }
  }
  sweep.first[sweep.steps] = pairs;
  return sweep;
}

// The workspace of `count` matrices.
template <class W>
struct SideMemory {
  SideMemory(const SideShape& shape, bool with_v, int64_t count, Carver* carver) {
    const int64_t all = count * shape.columns;
    matrices.count = count;
    matrices.rows = shape.rows;
    matrices.k = shape.k;
    matrices.columns = shape.columns;
    matrices.ld = shape.aligned(shape.rows);
    matrices.v_ld = shape.aligned(shape.k);
    for (SideOperands<W>* const operands : {&matrices.now, &matrices.next}) {
      operands->x = carver->take<W>(all * matrices.ld);
      operands->v = with_v ? carver->take<W>(all * matrices.v_ld) : nullptr;
      operands->f = carver->take<int32_t>(all);
    }
    matrices.mantissas = carver->take<double>(all);
    matrices.exponents = carver->take<int32_t>(all);
    matrices.order = carver->take<int32_t>(all);
    matrices.smallest = carver->take<int32_t>(count);
    matrices.bad = carver->take<int>(count);
    matrices.finished = carver->take<uint8_t>(count);
    matrices.counts = carver->take<GramStepCounts>(count);
    matrices.open = carver->take<int>(1);
    pairs = carver->take<GramStepPair>(count * shape.blocks * (shape.blocks - 1) / 2);
    steps = carver->take<char>(static_cast<int64_t>(
        gram_step_workspace_bytes<W>(static_cast<int>(count) * shape.most_pairs(), shape.pair_columns, 1)));
  }

  SideMatrices<W> matrices{};
  GramStepPair* pairs;
  char* steps;  // the p-steps' own
};

// The decomposition of the matrices that have memory at once.
template <class E>
class SideBySide {
 public:
  using T = typename E::Scalar;
  using W = typename SideTypes<E>::Wide;
  using In = typename SideTypes<E>::In;

  SideBySide(Launch* launch, const GramStepLimits& limits, const BatchShape& shape, const SideShape& side,
             const VectorsCall<E>& call)
      : launch_(*launch), limits_(limits), shape_(shape), side_(side), call_(call), sweep_(side_sweep(side.blocks)) {}

  void run(int64_t first, int64_t count, void* workspace) {
    Carver carver(workspace);
    SideMemory<W> memory(side_, call_.y.data != nullptr, count, &carver);
    load(&memory.matrices, first);
    sweep(&memory);
    store(memory.matrices, first);
  }

 private:
  void after(cudaError_t error) {
    if (launch_.error == cudaSuccess) launch_.error = error;
  }
  static unsigned tiles(int n) { return blocks_for(n, kSideTile); }
  static dim3 tile_threads() { return dim3(kSideTile, kSideTileRows); }

  // The norms of X's columns and their order.
  void measure(const SideMatrices<W>& all, bool begin) {
    const int64_t columns = all.count * all.columns;
    launch_.template operator()<column_norms_kernel<W>>(static_cast<unsigned>(columns), kColumnThreads, 0,
                                                        LargeView<W>{all.now.x, all.rows, columns, all.ld},
                                                        all.mantissas, all.exponents);
    launch_.template operator()<order_side_kernel<W>>(static_cast<unsigned>(all.count), 256, 0, all, begin);
  }
  // Sorts X and V by them.
  void sort(SideMatrices<W>* all, bool begin) {
    measure(*all, begin);
    launch_.template operator()<place_side_kernel<W>>(static_cast<unsigned>(all->count * all->columns), 128, 0, *all,
                                                      begin);
    std::swap(all->now, all->next);
  }

  void load(SideMatrices<W>* matrices, int64_t first) {
    const SideMatrices<W>& all = *matrices;
    const auto count = static_cast<unsigned>(all.count);
    if (launch_.error == cudaSuccess) {
      after(cudaMemsetAsync(all.bad, 0, static_cast<size_t>(all.count) * sizeof(int), launch_.stream));
    }
    const int64_t row_stride = shape_.rows_contiguous() ? side_.k : 1,
                  col_stride = shape_.rows_contiguous() ? 1 : side_.rows;
    const In* const a = reinterpret_cast<const In*>(call_.square.a) + first * side_.rows * side_.k;
    launch_.template operator()<load_side_kernel<In, W>>(dim3(tiles(all.rows), tiles(all.columns), count),
                                                         tile_threads(), 0, all, a, row_stride, col_stride);
    sort(matrices, true);
  }

  void sweep(SideMemory<W>* of) {
    const SideMemory<W>& memory = *of;
    const SideMatrices<W>& all = memory.matrices;
    const auto count = static_cast<unsigned>(all.count);
    launch_.template operator()<spread_pairs_kernel>(count, 128, 0, sweep_, side_.blocks, all.count, memory.pairs);
    for (int sweep = 1; sweep <= call_.square.max_sweeps && launch_.error == cudaSuccess; ++sweep) {
      for (int step = 0; step < sweep_.steps && launch_.error == cudaSuccess; ++step) {
        after(launch_gram_step(p_step(memory, step), limits_, nullptr, launch_.stream));
      }
      if (launch_.error == cudaSuccess) after(cudaMemsetAsync(all.open, 0, sizeof(int), launch_.stream));
      launch_.template operator()<close_sweep_kernel<W>>(blocks_for(all.count, 128), 128, 0, all,
                                                         static_cast<double>(call_.square.tolerance));
      if (sweep >= kSweepsBeforeAsking && !any_open(all)) break;
      if (sorts_after(sweep)) sort(&of->matrices, false);
    }
  }

  GramStepCall<W> p_step(const SideMemory<W>& memory, int step) const {
    const SideMatrices<W>& all = memory.matrices;
    const int64_t columns = all.count * all.columns;
    GramStepCall<W> call{};
    call.x = {all.now.x, all.rows, columns, all.ld};
    call.v = {all.now.v, all.k, columns, all.v_ld};
    call.exponents = all.now.f;
    call.positive = columns;
    call.pairs = memory.pairs + sweep_.first[step] * all.count;
    call.count = static_cast<int>((sweep_.first[step + 1] - sweep_.first[step]) * all.count);
    call.width = side_.width;
    call.columns = side_.pair_columns;
    call.tolerance = static_cast<double>(call_.square.tolerance) / 2;
    call.inner_sweeps = 1;
    call.counters = all.counts;
    call.workspace = memory.steps;
    call.stack = {side_.blocks, all.finished, all.smallest};
    call.parts.most = 1;
    return call;
  }

  // Waits for the sweep. Whether a matrix is not finished.
  bool any_open(const SideMatrices<W>& all) {
    int open = 0;
    if (launch_.error == cudaSuccess) {
      after(cudaMemcpyAsync(&open, all.open, sizeof(int), cudaMemcpyDeviceToHost, launch_.stream));
    }
    if (launch_.error == cudaSuccess) after(cudaStreamSynchronize(launch_.stream));
    return launch_.error == cudaSuccess && open > 0;
  }

  void store(const SideMatrices<W>& all, int64_t first) {
    measure(all, false);
    launch_.template operator()<values_side_kernel<E, W>>(static_cast<unsigned>(all.count), 128, 0, all, call_.square,
                                                          first);
    write(all, true, call_.x, first);
    write(all, false, call_.y, first);
  }
  void write(const SideMatrices<W>& all, bool of_x, const Columns<E>& to, int64_t first) {
    if (to.data == nullptr) return;
    const int columns = std::min(to.columns, all.k);
    const dim3 grid(tiles(of_x ? all.rows : all.k), tiles(columns), static_cast<unsigned>(all.count));
    launch_.template operator()<write_side_kernel<E, W>>(grid, tile_threads(), 0, all, of_x, to, first);
  }

  // Most of the order is found by the first sweeps. Matrices that take more than usual are those that need it later, too.
  static bool sorts_after(int sweep) { return sweep <= 2 || sweep >= 8; }
  // Until then, hardly a matrix is finished.
  static constexpr int kSweepsBeforeAsking = 5;

  Launch& launch_;
  const GramStepLimits limits_;
  const BatchShape& shape_;
  const SideShape side_;
  const VectorsCall<E>& call_;
  const SideSweep sweep_;
};

// Bytes of the workspace of so many matrices at once.
template <class E>
int64_t side_by_side_bytes(const BatchShape& shape, const SideShape& side, int64_t count) {
  Carver carver(nullptr);
  (void)SideMemory<typename SideTypes<E>::Wide>(side, shape.with_vectors(), count, &carver);
  return static_cast<int64_t>(carver.used());
}

// How many matrices are decomposed at once: those that fit kSideBySideBytes, and the grids of launches.
template <class E>
int64_t side_by_side_count(const BatchShape& shape, int64_t count) {
  constexpr int64_t kLargestGrid = 65535;
  const SideShape least(shape, kLeastPairColumns);
  const int64_t fit = std::max<int64_t>(1, kSideBySideBytes / side_by_side_bytes<E>(shape, least, 1));
  return std::min({count, fit, kLargestGrid / std::max(1, least.most_pairs())});
}

template <class E>
int64_t SideBySideLaunch<E>::workspace_bytes(const BatchShape& shape, int64_t count) {
  const int64_t at_once = side_by_side_count<E>(shape, count);
  return std::max(side_by_side_bytes<E>(shape, SideShape::wanted(shape), at_once),
                  side_by_side_bytes<E>(shape, SideShape(shape, kLeastPairColumns), at_once));
}

template <class E>
void SideBySideLaunch<E>::decompose(Launch* launch, const BatchShape& shape, const VectorsCall<E>& call,
                                    void* workspace) {
  using W = typename SideTypes<E>::Wide;
  const auto after = [&](cudaError_t error) {
    if (launch->error == cudaSuccess) launch->error = error;
  };
  GramStepLimits limits{};
  after(cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, launch->device));
  after(cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, launch->device));
  if (!gram_step_supports<W>(kLeastPairColumns, limits)) after(cudaErrorNotSupported);
  SideShape side = SideShape::wanted(shape);
  if (!gram_step_supports<W>(side.pair_columns, limits)) side = SideShape(shape, kLeastPairColumns);
  SideBySide<E> at_once(launch, limits, shape, side, call);
  const int64_t most = side_by_side_count<E>(shape, call.square.count);
  for (int64_t first = 0; first < call.square.count && launch->error == cudaSuccess; first += most) {
    at_once.run(first, std::min(most, call.square.count - first), workspace);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_H_
