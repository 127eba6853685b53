#include "engine/backends/cuda/tridiagonal/tridiagonal_eigen.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/algorithms/large/implicit_ql.h"
#include "engine/algorithms/large/tridiagonal_merge.h"
#include "engine/backends/cuda/large/library_work.h"

namespace svdserve::cuda {
namespace {

using large::Deflation;
using large::PairRotation;
using large::SecularProblem;
using large::SecularRoot;
using large::TridiagonalHalf;
using large::TridiagonalMerge;

constexpr int kLeafRows = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;     // of a block: roots, weights or columns
constexpr int32_t kOwnProductRows = 512;  // merges of at most so many rows are multiplied by product_kernel
constexpr int32_t kSpinRows = 1024;       // below, a level takes less than waking up would

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
        deflated_at(pieces.bytes()),
        deflated(pieces, n),
        tau(pieces.take<double>(n)),
        weight(pieces.take<double>(n)),
        origin(pieces.take<int32_t>(n)),
        pitch(pitch_of(n)),
        packed(pieces.take<double>(n * pitch)),
        s(pieces.take<double>(n * pitch)) {}
  Exchanged exchanged;
  uint64_t deflated_at;
  Deflated deflated;
  double *tau, *weight;
  int32_t* origin;
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
__host__ __device__ Packed packed_of(const Workspace& w, const TridiagonalMerge& m) {
  Packed p{};
  p.upper_ld = m.upper + (m.upper & 1);
  p.lower_ld = m.size - m.upper + ((m.size - m.upper) & 1);
  p.upper = w.packed + m.first * w.pitch;
  p.lower = p.upper + p.upper_ld * m.upper_columns();
  p.deflated = p.lower + p.lower_ld * m.lower_columns();
  return p;
}
// S, k x k, its rows in the order of packed columns.
__host__ __device__ double* s_of(const Workspace& w, const TridiagonalMerge& m) { return w.s + m.first * w.pitch; }
__host__ __device__ int64_t s_ld(const TridiagonalMerge& m) { return m.roots + (m.roots & 1); }

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
__global__ void __launch_bounds__(32) leaf_kernel(Workspace w) {
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
__global__ void __launch_bounds__(kThreads) joints_kernel(Workspace w, int leaves) {
  const int node = static_cast<int>(blockIdx.y);
  const int32_t first = w.exchanged.starts[node * leaves], end = w.exchanged.starts[(node + 1) * leaves];
  const int32_t row = node % 2 == 0 ? end - 1 : first;
  const int32_t column = first + static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (column < end) w.exchanged.z[column] = w.v[row + column * w.ld];
}

// Turns of a chain, whose columns are ..., b_r = a_(r + 1), b_(r + 1), ...: `a` is what goes on. The elements are read
// before any is written to, so that kAhead of them come at a time.
constexpr int kAhead = 8;
__device__ __forceinline__ void rotate_row(double* v, int64_t ld, const PairRotation* turns, int32_t count) {
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
__global__ void __launch_bounds__(kThreads) rotate_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t row = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= m.size) return;
  const int32_t* const chain = w.deflated.chain + m.first;
  for (int32_t i = static_cast<int32_t>(blockIdx.z); i < m.chains; i += static_cast<int32_t>(gridDim.z)) {
    rotate_row(w.v + m.first + row, w.ld, w.deflated.rotations + m.first + chain[i], chain[i + 1] - chain[i]);
  }
}

// A warp's share: blockIdx.y is its merge.
struct WarpLanes {
  static constexpr int kLanes = 32;
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  // Lanes that are partners add the same two numbers, so that all lanes get the same bits.
  __device__ __forceinline__ double sum(double x) const {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
  }
  __device__ __forceinline__ double product(double x) const {
    for (int distance = 16; distance > 0; distance /= 2) x *= __shfl_xor_sync(~0u, x, distance);
    return x;
  }
};
__device__ __forceinline__ int32_t index_of_warp() {
  return static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / 32;
}

__device__ __forceinline__ void copy_column(const double* from, int32_t rows, double* to) {
  for (int32_t i = WarpLanes().lane(); i < rows; i += 32) to[i] = from[i];
}

// A warp packs a column.
__global__ void __launch_bounds__(kThreads) pack_kernel(Workspace w) {
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
__global__ void __launch_bounds__(kThreads) restore_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = m.roots + index_of_warp();
  if (j >= m.size) return;
  copy_column(packed_of(w, m).deflated + static_cast<int64_t>(j - m.roots) * m.size, m.size,
              w.v + m.first + (m.first + j) * w.ld);
}

__device__ __forceinline__ SecularProblem problem_of(const Workspace& w, const TridiagonalMerge& m) {
  return {w.deflated.poles + m.first, w.deflated.z + m.first, m.roots, m.rho};
}

// A warp finds a root, or passes on a deflated eigenvalue.
__global__ void __launch_bounds__(kThreads) roots_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = index_of_warp();
  if (j >= m.size) return;
  const SecularProblem p = problem_of(w, m);
  double value = p.pole[j];
  if (j < m.roots) {
    const SecularRoot root = large::secular_root(WarpLanes(), p, j);
    value = p.pole[root.origin] + root.tau;
    if (WarpLanes().lane() == 0) {
      w.tau[m.first + j] = root.tau;
      w.origin[m.first + j] = root.origin;
    }
  }
  if (WarpLanes().lane() == 0) w.exchanged.values[m.first + j] = value;
}

__global__ void __launch_bounds__(kThreads) weights_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t i = index_of_warp();
  if (i >= m.roots) return;
  const large::SecularRoots roots{w.tau + m.first, w.origin + m.first};
  const double weight = large::secular_weight(WarpLanes(), problem_of(w, m), roots, i);
  if (WarpLanes().lane() == 0) w.weight[m.first + i] = weight;
}

// A warp makes a column of S.
__global__ void __launch_bounds__(kThreads) columns_kernel(Workspace w) {
  const TridiagonalMerge m = w.deflated.merges[blockIdx.y];
  const int32_t j = index_of_warp();
  if (j >= m.roots) return;
  large::secular_column(WarpLanes(), problem_of(w, m), w.weight + m.first, {w.tau[m.first + j], w.origin[m.first + j]},
                        w.deflated.pole + m.first, s_of(w, m) + j * s_ld(m));
}

// --- products of small merges -------------------------------------------------------------------------------------

// c = a b, rows x k by inner.
struct Product {
  const double *a, *b;
  double* c;
  int64_t a_ld, b_ld, c_ld;
  int32_t rows, inner, k;
};
__host__ __device__ Product product_of(const Workspace& w, const TridiagonalMerge& m, bool is_lower) {
  const Packed p = packed_of(w, m);
  double* const c = w.v + m.first + m.first * w.ld;
  if (!is_lower) return {p.upper, s_of(w, m), c, p.upper_ld, s_ld(m), w.ld, m.upper, m.upper_columns(), m.roots};
  return {p.lower, s_of(w, m) + m.upper_only, c + m.upper,       p.lower_ld, s_ld(m),
          w.ld,    m.size - m.upper,          m.lower_columns(), m.roots};
}

constexpr int kTile = 64, kDepth = 16, kPlaces = kTile / 16;

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
__global__ void __launch_bounds__(kThreads) product_kernel(Workspace w) {
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
__global__ void __launch_bounds__(kThreads)
    order_kernel(Workspace w, int32_t roots, int32_t n, int exponent, double* values) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= n) return;
  const int32_t place = large::place_in_order(w.exchanged.values, roots, n, i);
  w.origin[i] = place;
  values[place] = scalbn(w.exchanged.values[i], exponent);
}

// V's columns in order, as packed ones of length pitch.
__global__ void __launch_bounds__(kThreads) sort_kernel(Workspace w, int32_t n) {
  const int32_t j = index_of_warp();
  if (j < n) copy_column(w.v + j * w.ld, n, w.packed + w.origin[j] * w.pitch);
}

void launched() { require(cudaGetLastError(), "launching a kernel"); }
unsigned blocks_of(int64_t n, int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

// The largest of a level's merges.
struct LevelSizes {
  int32_t size = 0, half = 0, roots = 0, deflated = 0, rotations = 0, chains = 0;

  void add(const TridiagonalMerge& m) {
    size = std::max(size, m.size);
    half = std::max(half, std::max(m.upper, m.size - m.upper));
    roots = std::max(roots, m.roots);
    deflated = std::max(deflated, m.size - m.roots);
    rotations = std::max(rotations, m.rotations);
    chains = std::max(chains, m.chains);
  }
};

Workspace workspace_of(const TridiagonalCall& call) {
  Pieces pieces(call.work);
  Workspace w(pieces, call.n);
  w.v = call.v;
  w.ld = call.ld;
  return w;
}
template <class T>
T in_pinned(char* memory, int64_t n) {
  Pieces pieces(memory);
  return T(pieces, n);
}

class TridiagonalEigen {
 public:
  TridiagonalEigen(LargeLane& lane, const large::LargeWatch& watch, const TridiagonalCall& call)
      : lane_(lane),
        watch_(watch),
        call_(call),
        n_(static_cast<int32_t>(call.n)),
        w_(workspace_of(call)),
        down_(in_pinned<Exchanged>(lane.pinned[0], call.n)),
        up_(in_pinned<Deflated>(lane.pinned[1], call.n)),
        starts_(large::tridiagonal_leaves(n_, kLeafRows)) {}

  bool run() {
    if (!leaves()) return false;
    while (nodes_.size() > 1) {
      if (!level()) return false;
    }
    if (starts_.size() == 2 && !download(n_)) return false;  // no level has looked at the leaf
    order();
    // Nobody writes to the pinned buffers before they have been read.
    if (starts_.size() > 2) require(cudaEventSynchronize(lane_.transferred[1]), "waiting for a transfer");
    return true;
  }

 private:
  // Values and weights of nodes of at most `rows` rows. False: a leaf did not converge. It waits for all that was
  // enqueued.
  bool download(int32_t rows) {
    require(cudaMemcpyAsync(down_.values, w_.exchanged.values, w_.exchanged.bytes_down, cudaMemcpyDeviceToHost,
                            lane_.stream),
            "downloading");
    if (rows <= kSpinRows) {
      require(cudaStreamSynchronize(lane_.stream), "computing eigenvectors");
    } else {
      wait_for(lane_);
    }
    watch_.check();
    return std::all_of(down_.values, down_.values + n_, [](double x) { return std::isfinite(x); });
  }

  // Scales and tears T, and solves its leaves. False: T is not finite.
  bool leaves() {
    const auto bytes = static_cast<size_t>(n_) * sizeof(double);
    require(cudaMemcpyAsync(down_.values, call_.d, bytes, cudaMemcpyDeviceToHost, lane_.stream), "downloading");
    if (n_ > 1) {
      require(cudaMemcpyAsync(down_.z, call_.e, bytes - sizeof(double), cudaMemcpyDeviceToHost, lane_.stream),
              "downloading");
    }
    wait_for(lane_);
    down_.z[n_ - 1] = 0;
    const large::TornTridiagonal torn = large::tear_tridiagonal(starts_, down_.values, down_.z);
    if (!torn.finite) return false;
    exponent_ = torn.exponent;
    e_.assign(down_.z, down_.z + n_);
    std::copy(starts_.begin(), starts_.end(), down_.starts);
    require(
        cudaMemcpyAsync(w_.exchanged.values, down_.values, w_.exchanged.bytes_up, cudaMemcpyHostToDevice, lane_.stream),
        "uploading");
    require(cudaMemset2DAsync(w_.v, static_cast<size_t>(w_.ld) * sizeof(double), 0, bytes, call_.n, lane_.stream),
            "clearing memory");
    const size_t count = starts_.size() - 1;
    leaf_kernel<<<static_cast<unsigned>(count), 32, 0, lane_.stream>>>(w_);
    launched();
    nodes_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const int32_t size = starts_[i + 1] - starts_[i];
      nodes_[i] = {size, size};
    }
    return true;
  }

  // Merges the nodes by twos. False: a leaf did not converge.
  bool level() {
    const auto nodes = static_cast<unsigned>(nodes_.size());
    const int leaves = static_cast<int>((starts_.size() - 1) / nodes);
    const int32_t most = nodes_.back().size;  // the largest
    joints_kernel<<<dim3(blocks_of(most, kThreads), nodes), kThreads, 0, lane_.stream>>>(w_, leaves);
    launched();
    if (!download(most)) return false;
    const LevelSizes sizes = deflate();
    require(cudaMemcpyAsync(w_.deflated.poles, up_.poles, up_.bytes, cudaMemcpyHostToDevice, lane_.stream),
            "uploading");
    require(cudaEventRecord(lane_.transferred[1], lane_.stream), "uploading");
    enqueue(sizes);
    return true;
  }

  // The host's part: halves the nodes, and leaves in up_ what kernels need.
  LevelSizes deflate() {
    LevelSizes sizes;
    int32_t first = 0;
    for (size_t i = 0; i + 1 < nodes_.size(); i += 2) {
      const TridiagonalHalf upper = nodes_[i], lower = nodes_[i + 1];
      TridiagonalMerge& merge = up_.merges[i / 2];
      merge.first = first;
      deflation_.run(e_[static_cast<size_t>(first + upper.size - 1)], upper, lower, down_.values + first,
                     down_.z + first, up_.of(first), merge);
      sizes.add(merge);
      nodes_[i / 2] = {merge.size, merge.roots};
      first += merge.size;
    }
    nodes_.resize(nodes_.size() / 2);
    return sizes;
  }

  void enqueue(const LevelSizes& sizes) {
    const auto merges = static_cast<unsigned>(nodes_.size());
    const cudaStream_t stream = lane_.stream;
    if (sizes.rotations > 0) {
      const auto chains = static_cast<unsigned>(std::min(sizes.chains, 64));
      rotate_kernel<<<dim3(blocks_of(sizes.size, kThreads), merges, chains), kThreads, 0, stream>>>(w_);
      launched();
    }
    pack_kernel<<<dim3(blocks_of(sizes.size, kWarps), merges), kThreads, 0, stream>>>(w_);
    launched();
    roots_kernel<<<dim3(blocks_of(sizes.size, kWarps), merges), kThreads, 0, stream>>>(w_);
    launched();
    if (sizes.deflated > 0) {
      restore_kernel<<<dim3(blocks_of(sizes.deflated, kWarps), merges), kThreads, 0, stream>>>(w_);
      launched();
    }
    if (sizes.roots == 0) return;
    const dim3 warps(blocks_of(sizes.roots, kWarps), merges);
    weights_kernel<<<warps, kThreads, 0, stream>>>(w_);
    launched();
    columns_kernel<<<warps, kThreads, 0, stream>>>(w_);
    launched();
    multiply(sizes);
  }

  void multiply(const LevelSizes& sizes) {
    const auto merges = static_cast<unsigned>(nodes_.size());
    if (sizes.size <= kOwnProductRows) {
      const dim3 grid(blocks_of(sizes.half, kTile), 2 * merges, blocks_of(sizes.roots, kTile));
      product_kernel<<<grid, kThreads, 0, lane_.stream>>>(w_);
      launched();
      return;
    }
    for (unsigned i = 0; i < 2 * merges; ++i) multiply(product_of(w_, up_.merges[i / 2], i % 2 != 0));
  }

  void multiply(const Product& p) {
    if (p.rows == 0 || p.k == 0) return;
    if (p.inner == 0) {
      require(cudaMemset2DAsync(p.c, static_cast<size_t>(p.c_ld) * sizeof(double), 0,
                                static_cast<size_t>(p.rows) * sizeof(double), static_cast<size_t>(p.k), lane_.stream),
              "clearing memory");
      return;
    }
    const double one = 1, zero = 0;
    require(libraries().cublasDgemm_v2(lane_.cublas, CUBLAS_OP_N, CUBLAS_OP_N, p.rows, p.k, p.inner, &one, p.a,
                                       static_cast<int>(p.a_ld), p.b, static_cast<int>(p.b_ld), &zero, p.c,
                                       static_cast<int>(p.c_ld)),
            "multiplying eigenvectors");
  }

  // The last merge left its roots before what it deflated.
  void order() {
    const int32_t roots = nodes_.front().roots;
    order_kernel<<<blocks_of(n_, kThreads), kThreads, 0, lane_.stream>>>(w_, roots, n_, exponent_, call_.d);
    launched();
    if (roots == n_ || roots == 0) return;
    sort_kernel<<<blocks_of(n_, kWarps), kThreads, 0, lane_.stream>>>(w_, n_);
    launched();
    const size_t row = sizeof(double);
    require(cudaMemcpy2DAsync(w_.v, static_cast<size_t>(w_.ld) * row, w_.packed, static_cast<size_t>(w_.pitch) * row,
                              static_cast<size_t>(n_) * row, static_cast<size_t>(n_), cudaMemcpyDeviceToDevice,
                              lane_.stream),
            "copying eigenvectors");
  }

  LargeLane& lane_;
  const large::LargeWatch& watch_;
  const TridiagonalCall& call_;
  const int32_t n_;
  Workspace w_;
  const Exchanged down_;
  const Deflated up_;
  const std::vector<int32_t> starts_;
  int exponent_ = 0;
  std::vector<double> e_;  // of the scaled T
  std::vector<TridiagonalHalf> nodes_;
  Deflation deflation_;
};

}  // namespace

uint64_t tridiagonal_work_bytes(int64_t n) {
  Pieces pieces(nullptr);
  const Workspace all(pieces, n);
  return pieces.bytes();
}

bool tridiagonal_eigen(LargeLane& lane, const large::LargeWatch& watch, const TridiagonalCall& call) {
  return TridiagonalEigen(lane, watch, call).run();
}

}  // namespace svdserve::cuda
