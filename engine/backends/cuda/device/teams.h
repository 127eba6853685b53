// Threads of a GPU by the two contracts of core/team.h: threads, and teams that work in phases.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TEAMS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TEAMS_H_

#include "engine/core/lane.h"
#include "engine/core/team.h"

namespace svdserve::cuda {

// --- threads -----------------------------------------------------------------------------------------------------------

// kThreads neighbouring threads of one warp.
template <int kThreads>
class WarpThreads {
 public:
  static_assert(kThreads > 1 && 32 % kThreads == 0);
  __device__ WarpThreads()
      : index_(static_cast<int>(threadIdx.x) % kThreads), mask_(kAll << (threadIdx.x % 32 / kThreads * kThreads)) {}

  __device__ __forceinline__ int index() const { return index_; }
  static constexpr int count() { return kThreads; }
  __device__ __forceinline__ void sync() const { __syncwarp(mask_); }
  __device__ __forceinline__ bool any(bool b) const { return __any_sync(mask_, b) != 0; }
  __device__ __forceinline__ bool any_of_warp(bool b) const { return any(b); }
  template <class T>
  __device__ __forceinline__ T from_lane(T x, int lane) const {
    return __shfl_sync(mask_, x, lane, kThreads);
  }
  template <class T>
  __device__ __forceinline__ T exchanged(T x, int distance) const {
    return __shfl_xor_sync(mask_, x, distance, kThreads);
  }
  // Bit i: b of thread i.
  __device__ __forceinline__ unsigned ballot(bool b) const {
    return __ballot_sync(mask_, b) >> (threadIdx.x % 32 / kThreads * kThreads) & kAll;
  }

 private:
  static constexpr unsigned kAll = kThreads == 32 ? ~0u : (1u << (kThreads % 32)) - 1;
  int index_;
  unsigned mask_;
};

// The same where all threads of the warp make every call together: an exchange needs no mask that the compiler does not
// know.
template <int kThreads>
class WarpPart {
 public:
  static_assert(kThreads > 1 && 32 % kThreads == 0);
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x) % kThreads; }
  static constexpr int count() { return kThreads; }
  template <class T>
  __device__ __forceinline__ T from_lane(T x, int lane) const {
    return __shfl_sync(~0u, x, lane, kThreads);
  }
  template <class T>
  __device__ __forceinline__ T exchanged(T x, int distance) const {
    return __shfl_xor_sync(~0u, x, distance, kThreads);
  }
  template <class T, int n>
  __device__ __forceinline__ void exchange_all(T (&x)[n], int distance) const {
    SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = exchanged(x[i], distance);
  }
  // x := the sum of those of all threads whose numbers differ by multiples of kStride: a tree.
  template <int kStride, class T, int n>
  __device__ __forceinline__ void add_all(T (&x)[n]) const {
    SVD_UNROLL for (int d = kThreads / 2; d >= kStride; d /= 2) {
      SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = x[i] + exchanged(x[i], d);
    }
  }
  template <class T, int n>
  __device__ __forceinline__ void take_all(T (&x)[n], int thread) const {
    SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = from_lane(x[i], thread);
  }
};

// A thread block of several warps. Arrays go from one to another through `mail`, 2 kMail numbers for each thread in shared
// memory. kMail: the longest array.
template <class T, int kThreads, int kMail>
class SeveralWarps {
 public:
  __device__ explicit SeveralWarps(T* mail) : mail_(mail) {}
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x); }
  static constexpr int count() { return kThreads; }
  __device__ __forceinline__ T from_lane(T x, int lane) const { return __shfl_sync(~0u, x, lane % 32); }
  __device__ __forceinline__ T exchanged(T x, int distance) const { return __shfl_xor_sync(~0u, x, distance); }
  template <int n>
  __device__ __forceinline__ void exchange_all(T (&x)[n], int distance) {
    if (distance < 32) {
      SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = exchanged(x[i], distance);
    } else {
      post(x);
      read(x, index() ^ distance);
    }
  }
  template <int n>
  __device__ __forceinline__ void take_all(T (&x)[n], int thread) {
    post(x);
    read(x, thread);
  }
  // x := the sum of those of all threads whose numbers differ by multiples of kStride: a tree. Each warp adds some of the
  // numbers for all. So there are two barriers, and not one for each level of the tree.
  template <int kStride, int n>
  __device__ __forceinline__ void add_all(T (&x)[n]) {
    static_assert(kStride <= 32);
    if constexpr (kWarps == 2) {
      T other[n];
      SVD_UNROLL for (int i = 0; i < n; ++i) other[i] = x[i];
      exchange_all(other, 32);
      SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = within_warp<kStride>(x[i] + other[i]);
      return;
    }
    post(x);
    __syncthreads();
    if constexpr (n == 1) {
      x[0] = within_warp<kStride>(over_warps(mail_ + turn_));
      turn_ = kHalf - turn_;
    } else {
      const int warp = index() / 32, lane = index() % 32;
      T* const sums = mail_ + kHalf - turn_;
      SVD_UNROLL for (int first = 0; first < n; first += kWarps) {
        const int i = first + warp;
        if (i >= n) continue;
        const T sum = within_warp<kStride>(over_warps(mail_ + turn_ + i * kThreads));
        if (lane < kStride) sums[i * kStride + lane] = sum;
      }
      __syncthreads();
      SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = sums[i * kStride + lane % kStride];
    }
  }

 private:
  static constexpr int kWarps = kThreads / 32;
  // The sum of what these threads of all warps posted: a tree.
  __device__ __forceinline__ T over_warps(const T* posted) const {
    T s[kWarps];
    SVD_UNROLL for (int w = 0; w < kWarps; ++w) s[w] = posted[32 * w + index() % 32];
    SVD_UNROLL for (int half = kWarps / 2; half > 0; half /= 2) {
      SVD_UNROLL for (int w = 0; w < half; ++w) s[w] = s[w] + s[w + half];
    }
    return s[0];
  }
  template <int kStride>
  __device__ __forceinline__ T within_warp(T x) const {
    SVD_UNROLL for (int d = 16; d >= kStride; d /= 2) x = x + exchanged(x, d);
    return x;
  }
  template <int n>
  __device__ __forceinline__ void post(const T (&x)[n]) {
    static_assert(n <= kMail);
    SVD_UNROLL for (int i = 0; i < n; ++i) mail_[turn_ + i * kThreads + index()] = x[i];
  }
  // The next post goes to the other half: this one is read until all have posted the next.
  template <int n>
  __device__ __forceinline__ void read(T (&x)[n], int thread) {
    __syncthreads();
    SVD_UNROLL for (int i = 0; i < n; ++i) x[i] = mail_[turn_ + i * kThreads + thread];
    turn_ = kHalf - turn_;
  }

  static constexpr int kHalf = kThreads * kMail;
  T* mail_;
  int turn_ = 0;
};

// A thread block of one dimension, whole warps.
struct BlockThreads {
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int count() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ bool any(bool b) const { return __syncthreads_or(b) != 0; }
  __device__ __forceinline__ bool any_of_warp(bool b) const { return __any_sync(~0u, b) != 0; }
  template <class T>
  __device__ __forceinline__ T from_lane(T x, int lane) const {
    return __shfl_sync(~0u, x, lane);
  }
  template <class T>
  __device__ __forceinline__ T exchanged(T x, int distance) const {
    return from_lane(x, (index() % 32) ^ distance);
  }
};

// The thread blocks of a cluster, whole warps each. GPUs have them from compute capability 9 on.
class ClusterThreads {
 public:
  __device__ ClusterThreads() : index_(static_cast<int>(rank() * blockDim.x + threadIdx.x)) {}
  __device__ __forceinline__ int index() const { return index_; }
  // Writes of before are seen afterwards, those to the device's memory as well.
  __device__ __forceinline__ void sync() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
  }
  template <class T>
  __device__ __forceinline__ T from_lane(T x, int lane) const {
    return __shfl_sync(~0u, x, lane);
  }
  template <class T>
  __device__ __forceinline__ T exchanged(T x, int distance) const {
    return __shfl_xor_sync(~0u, x, distance);
  }

 private:
  static __device__ __forceinline__ unsigned rank() {
    unsigned r = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
#endif
    return r;
  }
  int index_;
};

// --- phases ------------------------------------------------------------------------------------------------------------

// kThreads neighbouring threads of one warp.
template <int kThreads>
class WarpTeam {
 public:
  __device__ __forceinline__ int rank() const { return threads_.index(); }
  __device__ __forceinline__ void sync() const { threads_.sync(); }
  template <class F>
  __device__ __forceinline__ void for_each(int first, int last, F f) const {
    for (int i = first + rank(); i < last; i += kThreads) f(i);
    sync();
  }
  template <class F>
  __device__ __forceinline__ void for_each_line(int first, int last, F f) const {
    for_each(first, last, f);
  }
  template <class F>
  __device__ __forceinline__ void once(F f) const {
    sync();
    if (rank() == 0) f();
    sync();
  }
  // Bit i: m of the member with rank i.
  __device__ __forceinline__ unsigned ballot(bool m) const { return threads_.ballot(m); }
  __device__ __forceinline__ scalar::ScalarMask any(scalar::ScalarMask m) const { return {threads_.any(m.m)}; }

 private:
  WarpThreads<kThreads> threads_;
};

// A thread block of one dimension, of kThreads threads, or of a number known at run time where that is zero. A loop
// whose step is known is unrolled without a division.
template <int kThreads = 0>
class BlockTeam {
 public:
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  template <class F>
  __device__ __forceinline__ void for_each(int first, int last, F f) const {
    for (int i = first + static_cast<int>(threadIdx.x); i < last; i += threads()) f(i);
    sync();
  }
  template <class F>
  __device__ __forceinline__ void for_each_team(int n, F f) const {
    const WarpTeam<32> warp;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / 32; i < n; i += threads() / 32) f(warp, i);
    sync();
  }
  template <class F, class G>
  __device__ __forceinline__ void for_each_team(int n, F f, int m, G g) const {
    const WarpTeam<32> warp;
    const int warps = threads() / 32, own = static_cast<int>(threadIdx.x) / 32, busy = warps > n ? n : 0;
#pragma unroll 1
    for (int i = own; i < n; i += warps) f(warp, i);
#pragma unroll 1
    for (int i = own < busy ? m : own - busy; i < m; i += warps - busy) g(warp, i);
    sync();
  }
  template <class F>
  __device__ __forceinline__ void once(F f) const {
    sync();
    if (threadIdx.x == 0) f();
    sync();
  }
  __device__ __forceinline__ scalar::ScalarMask any(scalar::ScalarMask m) const {
    return {__syncthreads_or(static_cast<int>(m.m)) != 0};
  }

 private:
  static __device__ __forceinline__ int threads() { return kThreads != 0 ? kThreads : static_cast<int>(blockDim.x); }
};

// The phase of algorithms/general/shear_step.h: a thread has tiles of one column, if the team is large enough.
template <int kThreads, class F>
__device__ __forceinline__ void deal_tiles(const WarpTeam<kThreads>& team, int columns, F f) {
  const int parts = columns < kThreads ? kThreads / columns : 1;
  for (int x = team.rank(); x < parts * columns; x += kThreads) f(x % columns, x / columns, parts);
  team.sync();
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_DEVICE_TEAMS_H_
