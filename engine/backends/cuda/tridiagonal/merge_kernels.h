// Kernels of divide and conquer for a tridiagonal matrix (algorithms/large/tridiagonal_merge.h), and the memory that they
// and the host share. Threads of a warp compute a root, a weight or a column together
// (algorithms/lanes/secular_equation.h). For all merges of a level:
//
//   joints_kernel     z: a row of each node's eigenvectors. The host deflates
//   rotate_kernel     columns that deflation turns
//   pack_kernel       columns by their rows
//   roots_kernel      roots
//   restore_kernel    deflated columns
//   weights_kernel    z'
//   columns_kernel    S
//   product_kernel    V := packed columns times S, where cuBLAS would be launched too often
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_MERGE_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_MERGE_KERNELS_H_

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "engine/algorithms/lanes/secular_equation.h"
#include "engine/algorithms/large/implicit_ql.h"
#include "engine/algorithms/large/tridiagonal_merge.h"
#include "engine/backends/cuda/device/teams.h"

namespace svdserve::cuda::merging {

using large::PairRotation;
using large::TridiagonalMerge;

inline constexpr int kLeafRows = 32;
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;  // of a block: roots, weights or columns

// --- memory -------------------------------------------------------------------------------------------------------

constexpr int64_t even(int64_t x) { return x + (x & 1); }
constexpr int64_t pitch_of(int64_t n) { return even(n) + 2; }
constexpr int64_t leaves_of(int64_t n) {
  int64_t leaves = 1;
  for (int64_t largest = n; largest > kLeafRows; largest -= largest / 2) leaves *= 2;
  return leaves;
}

// Pieces of one block of memory, in order. Each is aligned to 256 bytes.
class Pieces {
 public:
  explicit Pieces(void* from) : from_(static_cast<char*>(from)) {}
  template <class T>
  T* take(int64_t n) {
    T* const piece = reinterpret_cast<T*>(from_ + bytes_);
    bytes_ += (static_cast<uint64_t>(n) * sizeof(T) + 255) / 256 * 256;
    return piece;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  char* from_;
  uint64_t bytes_ = 0;
};

// Exchanged between the host and the device: values and weights down; at first both and the leaves up.
struct Exchanged {
  Exchanged(Pieces& pieces, int64_t n)
      : values(pieces.take<double>(n)), z(pieces.take<double>(n)), bytes_down(pieces.bytes()) {
    starts = pieces.take<int32_t>(leaves_of(n) + 1);
    bytes_up = pieces.bytes();
  }
  double* values;  // [n] eigenvalues of each node by its columns; at first T's diagonal
  double* z;       // [n] what joins the nodes; at first T's subdiagonal
  uint64_t bytes_down;
  int32_t* starts;  // first rows of the leaves, and n
  uint64_t bytes_up;
};

// From the host's deflation to the kernels of a level; each merge has its own rows' places.
struct Deflated {
  Deflated(Pieces& pieces, int64_t n)
      : poles(pieces.take<double>(n)),
        z(pieces.take<double>(n)),
        rotations(pieces.take<PairRotation>(n)),
        column(pieces.take<int32_t>(n)),
        pole(pieces.take<int32_t>(n)),
        chain(pieces.take<int32_t>(n)),
        merges(pieces.take<TridiagonalMerge>(leaves_of(n))),
        bytes(pieces.bytes()) {}
  large::DeflationArrays of(int32_t first) const {
    return {poles + first, z + first, column + first, pole + first, rotations + first, chain + first};
  }
  double *poles, *z;
  PairRotation* rotations;
  int32_t *column, *pole, *chain;
  TridiagonalMerge* merges;
  uint64_t bytes;
};

// All that kernels see.
struct Workspace {
  Workspace(Pieces& pieces, int64_t n)
      : exchanged(pieces, n),
        deflated(pieces, n),
        origin(pieces.take<double>(n)),
        x(pieces.take<double>(n)),
        weight(pieces.take<double>(n)),
        place(pieces.take<int32_t>(n)),
        pitch(pitch_of(n)),
        packed(pieces.take<double>(n * pitch)),
        s(pieces.take<double>(n * pitch)) {}
  Exchanged exchanged;
  Deflated deflated;
  double *origin, *x;  // of roots
  double* weight;      // z'
  int32_t* place;      // of each value and column in order
  int64_t pitch;       // a merge's part of packed and of s begins at first * pitch
  double *packed, *s;  // V's columns by their rows; S
  double* v = nullptr;
  int64_t ld = 0;
};

// A merge's part of packed: columns with rows of the upper half, of the lower half, and those deflated. They need
// (upper + 1) (k + dense) elements and so on, at most size (size + 2).
struct Packed {
  double *upper, *lower, *deflated;
  int64_t upper_ld, lower_ld;
};
inline __host__ __device__ Packed packed_of(const Workspace& w, const TridiagonalMerge& m) {
  Packed p{};
  p.upper_ld = m.upper + (m.upper & 1);
  p.lower_ld = m.size - m.upper + ((m.size - m.upper) & 1);
  p.upper = w.packed + m.first * w.pitch;
  p.lower = p.upper + p.upper_ld * m.upper_columns();
  p.deflated = p.lower + p.lower_ld * m.lower_columns();
  return p;
}
// S, k x k, its rows in the order of packed columns.
inline __host__ __device__ double* s_of(const Workspace& w, const TridiagonalMerge& m) {
  return w.s + m.first * w.pitch;
}
inline __host__ __device__ int64_t s_ld(const TridiagonalMerge& m) { return m.roots + (m.roots & 1); }

// --- leaves -------------------------------------------------------------------------------------------------------

// A leaf in a warp: lane i has d_i and e_i, and row i of V in shared memory.
struct WarpLeaf {
  int n;
  double d_own, e_own;
  double* row;
  int lane = static_cast<int>(threadIdx.x);

  __device__ __forceinline__ double d(int i) const { return __shfl_sync(~0u, d_own, i); }
  __device__ __forceinline__ double e(int i) const { return __shfl_sync(~0u, e_own, i); }
  __device__ __forceinline__ void set_d(int i, double x) { d_own = lane == i ? x : d_own; }
  __device__ __forceinline__ void set_e(int i, double x) { e_own = lane == i ? x : e_own; }
  __device__ __forceinline__ int end_of_block(int l) const {
    const double next = __shfl_down_sync(~0u, d_own, 1);
    const bool ends = lane >= l && (lane + 1 >= n || large::is_negligible(e_own, d_own, next));
    return __ffs(static_cast<int>(__ballot_sync(~0u, ends))) - 1;
  }
  __device__ __forceinline__ void rotate(int i, double c, double s) {
    const double x = row[i], y = row[i + 1];
    row[i] = fma(c, x, -s * y);
    row[i + 1] = fma(s, x, c * y);
  }
};

// A leaf a block. Its eigenvalues, ascending, take the place of the diagonal; they are not numbers where it did not
// converge. V's blocks outside of the leaves are zero already.
static __global__ void __launch_bounds__(32) leaf_kernel(Workspace w) {
  __shared__ double rows[kLeafRows][kLeafRows + 1];
  const int first = w.exchanged.starts[blockIdx.x], lane = static_cast<int>(threadIdx.x);
  const int n = w.exchanged.starts[blockIdx.x + 1] - first;
  for (int j = 0; j < kLeafRows; ++j) rows[lane][j] = lane == j ? 1 : 0;
  WarpLeaf leaf{n, 0, 0, rows[lane]};
  if (lane < n) leaf.d_own = w.exchanged.values[first + lane];
  if (lane + 1 < n) leaf.e_own = w.exchanged.z[first + lane];
  const bool converged = large::implicit_ql(leaf, n);
  // The place of lane i's eigenvalue: how many are less.
  int place = 0;
  for (int j = 0; j < n; ++j) {
    const double other = leaf.d(j);
    place += other < leaf.d_own || (other == leaf.d_own && j < lane) ? 1 : 0;
  }
  if (lane < n) w.exchanged.values[first + place] = converged ? leaf.d_own : nan("");
  for (int j = 0; j < n; ++j) {
    const int column = first + __shfl_sync(~0u, place, j);
    if (lane < n) w.v[first + lane + column * w.ld] = rows[lane][j];
  }
}

// --- a level ------------------------------------------------------------------------------------------------------

// z of the nodes of `leaves` leaves each: the last row of an upper half, the first of a lower one. blockIdx.y: the node.
static __global__ void __launch_bounds__(kThreads) joints_kernel(Workspace w, int leaves) {
  const int node = static_cast<int>(blockIdx.y);
  const int32_t first = w.exchanged.starts[node * leaves], end = w.exchanged.starts[(node + 1) * leaves];
  const int32_t row = node % 2 == 0 ? end - 1 : first;
  const int32_t column = first + static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (column < end) w.exchanged.z[column] = w.v[row + column * w.ld];
}

// Turns of a chain, whose columns are ..., b_r = a_(r + 1), b_(r + 1), ...: `a` is what goes on. The elements are read
// before any is written to, so that kAhead of them come at a time.
inline constexpr int kAhead = 8;
static __device__ __forceinline__ void rotate_row(double* v, int64_t ld, const PairRotation* turns, int32_t count) {
  double a = v[turns[0].a * ld];
  for (int32_t r = 0; r < count; r += kAhead) {
    const int32_t left = min(count - r, kAhead);
    double b[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) b[i] = i < left ? v[turns[r + i].b * ld] : 0;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= left) break;
      const PairRotation turn = turns[r + i];
      v[turn.a * ld] = fma(turn.c, a, turn.s * b[i]);
      a = fma(turn.c, b[i], -turn.s * a);
    }
  }
  v[turns[count - 1].b * ld] = a;
}

// Rotations of columns of V: a thread has a row of the merge, blockIdx.z a chain.
static __global__ void __launch_bounds__(kThreads) rotate_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= m.size) return;
  const int32_t* const chain = w.deflated.chain + m.first;
  for (int32_t i = static_cast<int32_t>(blockIdx.z); i < m.chains; i += static_cast<int32_t>(gridDim.z)) {
    rotate_row(w.v + m.first + row, w.ld, w.deflated.rotations + m.first + chain[i], chain[i + 1] - chain[i]);
  }
}

using Real = scalar::ScalarLane<double>;
using Equation = scalar::SecularEquation<scalar::PlainPoles>;

using Warp = WarpPart<32>;

// The number of a warp in its merge, which is blockIdx.y.
static __device__ __forceinline__ int32_t index_of_warp() {
  return static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / 32;
}

static __device__ __forceinline__ void copy_column(const double* from, int32_t rows, double* to) {
  for (int32_t i = Warp().index(); i < rows; i += Warp::count()) to[i] = from[i];
}

// A warp packs a column.
static __global__ void __launch_bounds__(kThreads) pack_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = index_of_warp();
  if (j >= m.size) return;
  const Packed p = packed_of(w, m);
  const double* const from = w.v + m.first + w.deflated.column[m.first + j] * w.ld;
  if (j >= m.roots) {
    copy_column(from, m.size, p.deflated + static_cast<int64_t>(j - m.roots) * m.size);
    return;
  }
  if (j < m.upper_columns()) copy_column(from, m.upper, p.upper + j * p.upper_ld);
  if (j >= m.upper_only) {
    copy_column(from + m.upper, m.size - m.upper, p.lower + (j - m.upper_only) * p.lower_ld);
  }
}

// Deflated columns, behind those of the roots.
static __global__ void __launch_bounds__(kThreads) restore_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = m.roots + index_of_warp();
  if (j >= m.size) return;
  copy_column(packed_of(w, m).deflated + static_cast<int64_t>(j - m.roots) * m.size, m.size,
              w.v + m.first + (m.first + j) * w.ld);
}

static __device__ __forceinline__ Equation equation_of(const Workspace& w, const TridiagonalMerge& m) {
  return {w.deflated.poles + m.first, w.deflated.z + m.first, m.roots};
}
static __device__ __forceinline__ scalar::SecularRoots roots_of(const Workspace& w, const TridiagonalMerge& m) {
  return {w.origin + m.first, w.x + m.first};
}

// A warp finds a root, or passes on a deflated eigenvalue.
static __global__ void __launch_bounds__(kThreads, 3) roots_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = index_of_warp();
  if (j >= m.size) return;
  const scalar::SecularRoots roots = roots_of(w, m);
  if (j < m.roots) scalar::secular_roots<Real>(equation_of(w, m), j, roots, Warp());
  if (Warp().index() != 0) return;
  w.exchanged.values[m.first + j] = j < m.roots ? roots.origin[j] + roots.x[j] : w.deflated.poles[m.first + j];
}

static __global__ void __launch_bounds__(kThreads) weights_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t i = index_of_warp();
  if (i >= m.roots) return;
  scalar::secular_weights<Real>(equation_of(w, m), roots_of(w, m), i, w.weight + m.first, Warp());
}

// A warp makes a column of S.
static __global__ void __launch_bounds__(kThreads) columns_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = index_of_warp();
  if (j >= m.roots) return;
  const scalar::SecularRoots roots = roots_of(w, m);
  scalar::secular_column<Real>(equation_of(w, m), roots.origin[j], roots.x[j], w.weight + m.first,
                               w.deflated.pole + m.first, s_of(w, m) + j * s_ld(m), Warp());
}

// --- products of small merges -------------------------------------------------------------------------------------

// c = a b, rows x k by inner.
struct Product {
  const double *a, *b;
  double* c;
  int64_t a_ld, b_ld, c_ld;
  int32_t rows, inner, k;
};
inline __host__ __device__ Product product_of(const Workspace& w, const TridiagonalMerge& m, bool is_lower) {
  const Packed p = packed_of(w, m);
  double* const c = w.v + m.first + m.first * w.ld;
  if (!is_lower) return {p.upper, s_of(w, m), c, p.upper_ld, s_ld(m), w.ld, m.upper, m.upper_columns(), m.roots};
  return {p.lower, s_of(w, m) + m.upper_only, c + m.upper,       p.lower_ld, s_ld(m),
          w.ld,    m.size - m.upper,          m.lower_columns(), m.roots};
}

inline constexpr int kTile = 64, kDepth = 16, kPlaces = kTile / 16;

struct ProductTiles {
  double a[kDepth][kTile], b[kDepth][kTile + 1];

  // Rows and columns beyond the matrices are zeros.
  __device__ __forceinline__ void load(const Product& p, int32_t row, int32_t column, int32_t depth) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kDepth * kTile; i += kThreads) {
      const int32_t r = i % kTile, l = i / kTile;
      const bool inside = row + r < p.rows && depth + l < p.inner;
      a[l][r] = inside ? p.a[row + r + (depth + l) * p.a_ld] : 0;
    }
    for (int i = thread; i < kDepth * kTile; i += kThreads) {
      const int32_t l = i % kDepth, c = i / kDepth;
      const bool inside = column + c < p.k && depth + l < p.inner;
      b[l][c] = inside ? p.b[depth + l + (column + c) * p.b_ld] : 0;
    }
  }
};

// A block has 64 x 64 elements of a product, a thread 4 x 4 of them. blockIdx.y: the merge and the half, blockIdx.x and z
// the tile.
static __global__ void __launch_bounds__(kThreads) product_kernel(Workspace w) {
  __shared__ ProductTiles tiles;
  const Product p = product_of(w, w.deflated.merges[blockIdx.y / 2], blockIdx.y % 2 != 0);
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kTile, column = static_cast<int32_t>(blockIdx.z) * kTile;
  if (row >= p.rows || column >= p.k) return;
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
  double sum[kPlaces][kPlaces] = {};
  for (int32_t depth = 0; depth < p.inner; depth += kDepth) {
    tiles.load(p, row, column, depth);
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      double a[kPlaces], b[kPlaces];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        a[i] = tiles.a[l][x + 16 * i];
        b[i] = tiles.b[l][y + 16 * i];
      }
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
#pragma unroll
        for (int j = 0; j < kPlaces; ++j) sum[i][j] = fma(a[i], b[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kPlaces; ++j) {
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int32_t r = row + x + 16 * i, c = column + y + 16 * j;
      if (r < p.rows && c < p.k) p.c[r + c * p.c_ld] = sum[i][j];
    }
  }
}

// --- the end ------------------------------------------------------------------------------------------------------

// Eigenvalues in order and of T's scale, and where their columns go.
static __global__ void __launch_bounds__(kThreads)
    order_kernel(Workspace w, int32_t roots, int32_t n, int exponent, double* values) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= n) return;
  const int32_t place = large::place_in_order(w.exchanged.values, roots, n, i);
  w.place[i] = place;
  values[place] = scalbn(w.exchanged.values[i], exponent);
}

// V's columns in order, as packed ones of length pitch.
static __global__ void __launch_bounds__(kThreads) sort_kernel(Workspace w, int32_t n) {
  const int32_t j = index_of_warp();
  if (j < n) copy_column(w.v + j * w.ld, n, w.packed + w.place[j] * w.pitch);
}

}  // namespace svdserve::cuda::merging
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_TRIDIAGONAL_MERGE_KERNELS_H_
