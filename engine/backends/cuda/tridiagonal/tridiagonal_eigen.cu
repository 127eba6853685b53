#include "engine/backends/cuda/tridiagonal/tridiagonal_eigen.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/tridiagonal/merge_kernels.h"

namespace svdserve::cuda {
namespace merging {
namespace {

using large::Deflation;
using large::TridiagonalHalf;

constexpr int32_t kOwnProductRows = 512;  // merges of at most so many rows are multiplied by product_kernel
constexpr int32_t kSpinRows = 1024;       // below, a level takes less than waking up would

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
}  // namespace merging

uint64_t tridiagonal_work_bytes(int64_t n) {
  merging::Pieces pieces(nullptr);
  const merging::Workspace all(pieces, n);
  return pieces.bytes();
}

bool tridiagonal_eigen(LargeLane& lane, const large::LargeWatch& watch, const TridiagonalCall& call) {
  return merging::TridiagonalEigen(lane, watch, call).run();
}

}  // namespace svdserve::cuda
