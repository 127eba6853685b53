// Kernels around the p-steps of matrices side by side: in, the order of columns, the end of a sweep, out. All are bound by
// memory. The algorithm is in side_by_side.h, the p-steps in p_steps/gram_step_kernels.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_KERNELS_H_

#include <type_traits>

#include "engine/backends/cuda/lanes/vectors_kernels.h"
#include "engine/backends/cuda/large/large_kernels.h"
#include "engine/backends/cuda/p_steps/gram_step.h"

namespace svdserve::cuda {

inline constexpr int kSideTile = 32, kSideTileRows = 8;  // threads of a block of a tile
inline constexpr int kMostSideBlocks = 16;               // of a matrix: 512 columns in blocks of 32
inline constexpr int kMostSidePairs = kMostSideBlocks * (kMostSideBlocks - 1) / 2;
inline constexpr int kMostSideSteps = 24;

// Elements of matrices in memory: operands and results (In), and as they are computed with (Wide).
template <class E>
struct SideTypes {
  using T = typename E::Scalar;
  using In = std::conditional_t<E::kComplex, Pair<T>, T>;
  using Wide = std::conditional_t<E::kComplex, svdserve::Complex, double>;
};

// X with its exponents, and V: column j of X stands for 2^f[j] x(:, j). V null: not wanted.
template <class W>
struct SideOperands {
  W *x, *v;
  int32_t* f;
};

// The matrices that are decomposed at once, T = A or its transpose each, m x k. Each has `columns` columns of X and V: k of
// its own, and then zeros. Arrays of columns have one number for each, arrays of matrices too.
template <class W>
struct SideMatrices {
  int64_t count;
  int rows, k, columns;       // m, k, and columns of a matrix in X
  int64_t ld, v_ld;           // of X, and of V
  SideOperands<W> now, next;  // `next`: memory for the same in another order
  double* mantissas;          // of the norms of columns of now.x
  int32_t* exponents;         // likewise
  int32_t* order;             // the columns of a matrix in descending order of true norms
  int32_t* smallest;          // of matrices: exponents of columns that are rounding error
  int* bad;                   // of matrices: not 0: an entry is not finite
  uint8_t* finished;          // of matrices
  GramStepCounts* counts;     // of matrices
  int* open;                  // how many matrices are not finished

  __device__ int64_t first_column(int64_t m) const { return m * columns; }
  // The column of matrix m with number r in descending order, or kNone beyond all of them.
  __device__ int64_t column_of_place(int64_t m, int r) const {
    return r < columns ? first_column(m) + order[first_column(m) + r] : kNone;
  }
  static constexpr int64_t kNone = -1;
};

// --- the way in ---------------------------------------------------------------------------------------------------

// X := T, f := 0. A block has a tile of one matrix; consecutive elements in memory are read by consecutive threads.
template <class In, class W>
__global__ void __launch_bounds__(kSideTile* kSideTileRows)
    load_side_kernel(SideMatrices<W> all, const In* a, int64_t row_stride, int64_t col_stride) {
  __shared__ In tile[kSideTile][kSideTile + 1];
  const int64_t m = blockIdx.z;
  const int row0 = static_cast<int>(blockIdx.x) * kSideTile, col0 = static_cast<int>(blockIdx.y) * kSideTile;
  const int fast = static_cast<int>(threadIdx.x), slow = static_cast<int>(threadIdx.y);
  const In* const from = a + m * all.rows * all.k;
  const bool by_rows = col_stride == 1;
  bool good = true;
  for (int s = slow; s < kSideTile; s += kSideTileRows) {
    const int i = by_rows ? s : fast, j = by_rows ? fast : s;
    In value{};
    if (row0 + i < all.rows && col0 + j < all.k) value = from[(row0 + i) * row_stride + (col0 + j) * col_stride];
    good = good && finite(widened(value));
    tile[j][i] = value;
  }
  if (!good) all.bad[m] = 1;
  __syncthreads();
  for (int s = slow; s < kSideTile; s += kSideTileRows) {
    const int i = row0 + fast, j = col0 + s;
    if (i < all.rows && j < all.columns) all.now.x[(all.first_column(m) + j) * all.ld + i] = widened(tile[s][fast]);
    if (i == 0 && j < all.columns) all.now.f[all.first_column(m) + j] = 0;
  }
}

// Puts the columns of a matrix in order by their norms, largest first, equal ones as they are. A block a matrix. The first
// time (`begin`) also what else is known of a matrix. A column whose exponent falls below `smallest` is rounding error: X
// with unit columns has no singular value below u that it has not lost.
template <class W>
__global__ void __launch_bounds__(256) order_side_kernel(SideMatrices<W> all, bool begin) {
  const int64_t m = blockIdx.x, first = all.first_column(m);
  // Bits of numbers that are not negative are in their order, and those of a NaN are in it, too. So the places are always a
  // permutation, also of a matrix that is not finite.
  const auto mantissa = [&](int j) { return __double_as_longlong(all.mantissas[first + j]); };
  // Those of columns of zeros are below all others.
  const auto exponent = [&](int j) { return all.exponents[first + j] + all.now.f[first + j]; };
  const int columns = all.columns;
  __shared__ int32_t least;
  if (threadIdx.x == 0) least = -kZeroColumn;
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < columns; j += 256) {
    const int32_t e = exponent(j);
    const auto x = mantissa(j);
    int place = 0;
    for (int r = 0; r < columns; ++r) {
      const int32_t other = exponent(r);
      const auto y = mantissa(r);
      const bool larger = other != e ? other > e : y != x ? y > x : r < j;
      place += larger ? 1 : 0;
    }
    all.order[first + place] = j;
    if (x > 0) atomicMin(&least, e);
  }
  if (!begin) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  constexpr int kRoundoffExponent = -53;
  all.smallest[m] = least == -kZeroColumn ? kZeroColumn : least + kRoundoffExponent;
  all.finished[m] = all.bad[m] != 0 ? 1 : 0;
  all.counts[m] = {};
}

// Puts the columns of X and V in order, norms of X in [1/2, 1), and rounding errors at zero. A block a column of `next`.
// The first time (`begin`) V is the identity.
template <class W>
__global__ void __launch_bounds__(128) place_side_kernel(SideMatrices<W> all, bool begin) {
  const int64_t to = blockIdx.x, m = to / all.columns;
  const int j = all.order[to];
  const int64_t from = all.first_column(m) + j;
  const int32_t e = all.exponents[from], f = all.now.f[from] + e;
  // A matrix with an entry that is not finite has columns of zeros: no p-step sees a NaN.
  const bool zero = e == kZeroColumn || f < all.smallest[m] || all.bad[m] != 0;
  for (int i = static_cast<int>(threadIdx.x); i < all.ld; i += 128) {
    const bool inside = !zero && i < all.rows;
    all.next.x[to * all.ld + i] = inside ? shifted(all.now.x[from * all.ld + i], -e) : from_real<W>(0);
  }
  if (threadIdx.x == 0) all.next.f[to] = zero ? kZeroColumn : f;
  if (all.next.v == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < all.v_ld; i += 128) {
    const W of_identity = from_real<W>(i == j && j < all.k ? 1 : 0);
    all.next.v[to * all.v_ld + i] = begin ? of_identity : all.now.v[from * all.v_ld + i];
  }
}

// --- sweeps -------------------------------------------------------------------------------------------------------

// The pairs of the p-steps of a sweep over one matrix. Step s has the pairs first[s] .. first[s + 1] - 1.
struct SideSweep {
  int steps;
  int first[kMostSideSteps + 1];
  uint8_t p[kMostSidePairs], q[kMostSidePairs];
};

// The same of all matrices: those of step s from first[s] * count on, one matrix after the other.
static __global__ void __launch_bounds__(128)
    spread_pairs_kernel(SideSweep sweep, int blocks, int64_t count, GramStepPair* to) {
  const int64_t m = blockIdx.x;
  for (int s = 0; s < sweep.steps; ++s) {
    const int first = sweep.first[s], pairs = sweep.first[s + 1] - first;
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += 128) {
      const auto base = static_cast<int32_t>(m * blocks);
      to[first * count + m * pairs + i] = {base + sweep.p[first + i], base + sweep.q[first + i]};
    }
  }
}

// After a sweep: a matrix of which it has met no two columns with |cos| > 2 tolerance is finished (large/block_jacobi_sweeps.h
// says why then). A thread a matrix; *open was zero.
template <class W>
__global__ void __launch_bounds__(128) close_sweep_kernel(SideMatrices<W> all, double tolerance) {
  const int64_t m = int64_t{blockIdx.x} * 128 + threadIdx.x;
  if (m >= all.count || all.finished[m] != 0) return;
  const double cosine2 = __longlong_as_double(static_cast<long long>(all.counts[m].cosine2_bits));
  all.counts[m] = {};
  if (cosine2 <= 4 * tolerance * tolerance) {
    all.finished[m] = 1;
  } else {
    atomicAdd(all.open, 1);
  }
}

// --- the way out --------------------------------------------------------------------------------------------------

// Values in their order, and the status. A block a matrix.
template <class E, class W>
__global__ void __launch_bounds__(128)
    values_side_kernel(SideMatrices<W> all, SquareCall<typename E::Scalar> call, int64_t first_matrix) {
  using T = typename E::Scalar;
  const int64_t m = blockIdx.x, to = first_matrix + m;
  const bool is_finite = all.bad[m] == 0;
  bool in_range = true;
  for (int r = static_cast<int>(threadIdx.x); r < all.k; r += 128) {
    const int64_t column = all.column_of_place(m, r);
    const int32_t e = all.exponents[column];
    const double s = e == kZeroColumn ? 0 : shifted(all.mantissas[column], e + all.now.f[column]);
    const T value = is_finite ? static_cast<T>(s) : FloatTraits<T>::nan();
    in_range = in_range && !isinf(value);
    call.values[to * all.k + r] = value;
  }
  const bool all_in_range = __syncthreads_and(in_range) != 0;
  if (threadIdx.x != 0) return;
  const MatrixStatus status = !is_finite             ? MatrixStatus::kNonFinite
                              : all.finished[m] == 0 ? MatrixStatus::kNotConverged
                              : !all_in_range        ? MatrixStatus::kOutOfRange
                                                     : MatrixStatus::kOk;
  record_status(call, to, static_cast<int>(status));
}

// x / r for a real r > 0
__device__ __forceinline__ double over_real(double x, double r) { return x / r; }
__device__ __forceinline__ svdserve::Complex over_real(svdserve::Complex x, double r) { return {x.re / r, x.im / r}; }

// Columns of X over their norms, or of V, to where `to` wants them, in descending order. A block has a tile of one matrix,
// which consecutive threads read by columns and write as the results lie in memory.
template <class E, class W>
__global__ void __launch_bounds__(kSideTile* kSideTileRows)
    write_side_kernel(SideMatrices<W> all, bool of_x, Columns<E> to, int64_t first_matrix) {
  using T = typename E::Scalar;
  using Out = typename SideTypes<E>::In;
  __shared__ W tile[kSideTile][kSideTile + 1];
  const int64_t m = blockIdx.z;
  const int rows = of_x ? all.rows : all.k;
  const int64_t ld = of_x ? all.ld : all.v_ld;
  const int row0 = static_cast<int>(blockIdx.x) * kSideTile, col0 = static_cast<int>(blockIdx.y) * kSideTile;
  const int fast = static_cast<int>(threadIdx.x), slow = static_cast<int>(threadIdx.y);
  for (int s = slow; s < kSideTile; s += kSideTileRows) {
    const int64_t column = all.column_of_place(m, col0 + s);
    W value = from_real<W>(0);
    if (column >= 0 && row0 + fast < rows) {
      value = (of_x ? all.now.x : all.now.v)[column * ld + row0 + fast];
      if (of_x && all.exponents[column] != kZeroColumn) {
        value = over_real(value, ldexp(all.mantissas[column], all.exponents[column]));
      }
    }
    tile[s][fast] = value;
  }
  __syncthreads();
  const bool by_rows = to.col_stride == 1, is_finite = all.bad[m] == 0;
  for (int s = slow; s < kSideTile; s += kSideTileRows) {
    const int i = by_rows ? s : fast, j = by_rows ? fast : s, place = col0 + j;
    if (row0 + i >= rows || place >= all.k || place >= to.columns) continue;
    Out narrowed;
    narrow(tile[j][i], narrowed);
    E element;
    memcpy(&element, &narrowed, sizeof(E));
    store_element(canonical(element, to.conjugate, is_finite),
                  to.data + (first_matrix + m) * to.matrix_stride + (row0 + i) * to.row_stride + place * to.col_stride);
  }
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_SIDE_BY_SIDE_SIDE_BY_SIDE_KERNELS_H_
