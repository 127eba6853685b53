// One p-step of block Jacobi on the device, which sweeps Gram matrices (gram_step_kernels.h): what it is called with. A
// CPU has triangle_step.h instead (decisions/0014-two-p-steps.md). E: double or Complex.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/core/complex.h"

namespace svdserve::cuda {

struct GramStepPair {
  int32_t p, q;  // block-columns
};

// Column-major; data and ld elements are multiples of 16 bytes.
template <class E>
struct GramStepMatrix {
  E* data;
  int64_t rows, cols, ld;
};

// Which pairs need not be looked at. A block's version grows when it changes. A pair that was found orthogonal keeps the
// sum of its blocks' versions, which is the same for as long as neither changes. In device memory; without
// blocks, every pair is looked at. A caller that changes X otherwise, or the tolerance, begins anew.
struct GramStepVersions {
  int* blocks;  // [in,out] of each block
  int* sums;    // [in,out] of pair (p, q), p < q, at q (q - 1) / 2 + p; -1: never

  static int64_t ints(int64_t count) { return count + count * (count - 1) / 2; }
#ifdef __CUDACC__
  __device__ int64_t at(GramStepPair pair) const { return int64_t{pair.q} * (pair.q - 1) / 2 + pair.p; }
  __device__ bool unchanged(GramStepPair pair) const {
    return blocks != nullptr && sums[at(pair)] == blocks[pair.p] + blocks[pair.q];
  }
  // By one thread.
  __device__ void note(GramStepPair pair, bool changed) const {
    if (blocks == nullptr) return;
    if (changed) {
      ++blocks[pair.p];
      ++blocks[pair.q];
    } else {
      sums[at(pair)] = blocks[pair.p] + blocks[pair.q];
    }
  }
#endif
};

// Matrices side by side in X, each of so many blocks. A pair is of one matrix. Arrays are in device memory, a number for
// each matrix.
struct GramStepStack {
  int blocks = 0;                               // 0: X is one matrix, and there are no arrays
  const uint8_t* finished = nullptr;            // not 0: its pairs are not looked at
  const int32_t* smallest_exponents = nullptr;  // in place of GramStepCall::smallest_exponent

#ifdef __CUDACC__
  __device__ int matrix_of(GramStepPair pair) const { return blocks == 0 ? 0 : pair.p / blocks; }
  __device__ bool is_finished(GramStepPair pair) const { return blocks != 0 && finished[matrix_of(pair)] != 0; }
#endif
};

// In device memory; grows until somebody clears it.
struct GramStepCounts {
  unsigned long long rotations, proper_rotations, active_pairs;
  unsigned long long cosine2_bits;  // of a double: the square of the largest cosine
  unsigned long long lost;          // not 0: a column came out as zero, or rounding errors of itself
};

template <class E>
struct InnerCall {
  const GramStepPair* pairs;
  const E* partial;  // [count][splits] packed lower triangles, as PackedGram
  int splits;
  E* w;                   // [out] [count][K + 1][K], of active pairs: W - I by columns, then GramWork::diagonal
  int32_t* exponents;     // [in,out] of the columns of X
  int* exponent_changes;  // [out] [count][2][K]: before and after; of active pairs
  int* active;            // [out] [count]: the active pairs, in any order
  int* active_count;      // [in,out] how many; 0 before
  GramStepCounts* counters;
  GramStepVersions versions;
  int width;               // columns of a block
  int64_t cols, positive;  // columns from `positive` on have sign -1
  double tolerance;
  int32_t smallest_exponent;  // a column that falls below it becomes zero
  int sweeps;
  bool w_in_shared_memory;  // while it grows; else it grows in place
  GramStepStack stack = {};
};

template <class E>
struct PostCall {
  GramStepMatrix<E> x, v;  // v without data: none
  const GramStepPair* pairs;
  const E* w;
  const int32_t* exponents;  // of the columns of X, after: kZeroColumn makes a column zero
  const int* exponent_changes;
  const int *active, *active_count;  // of InnerCall
  int width;                         // columns of a block
  int x_slabs, v_slabs;              // of a pair
};

// Into how many parts the rows of a Gram matrix are cut, each a thread block's. The bits depend on it, so on all of this.
struct GramStepParts {
  int most = 8;             // 1: a Gram matrix is one sum
  int pairs = 0;            // the parts suit so many pairs; 0: those of the call
  int multiprocessors = 0;  // and so many of these; 0: all
};

template <class E>
struct GramStepCall {
  GramStepMatrix<E> x, v;     // [in,out]; v.data null: none
  int32_t* exponents;         // [in,out] device, x.cols
  int64_t positive;           // x.cols: trigonometric
  const GramStepPair* pairs;  // [in] device, count
  int count;
  int width;    // columns of a block, the last one of X may have fewer
  int columns;  // K: 64 or 128, at least 2 width
  double tolerance;
  int32_t smallest_exponent;  // a column that falls below it becomes zero
  int inner_sweeps;
  GramStepCounts* counters;  // [in,out] device; of each matrix
  GramStepVersions versions;
  void* workspace;  // device, gram_step_workspace_bytes(), aligned to 256
  GramStepStack stack = {};
  GramStepParts parts = {};
};

// The limits of the device.
struct GramStepLimits {
  int multiprocessors;
  int shared_bytes;  // of a block, opted in
};

// Whether K columns can make a pair on this device: 64, and for double 128.
template <class E>
bool gram_step_supports(int columns, const GramStepLimits& limits);
template <class E>
uint64_t gram_step_workspace_bytes(int count, int columns, int most_parts);
// Enqueues. `marks`: events to record before the first kernel and after each of the three, or null.
template <class E>
cudaError_t launch_gram_step(const GramStepCall<E>& call, const GramStepLimits& limits, cudaEvent_t* marks,
                             cudaStream_t stream);
// Each kernel by itself, in this order, with the same call. Limits of the first two: the same, for which alone the bits
// are. The last may have fewer multiprocessors than there are, where other kernels want some.
template <class E>
cudaError_t launch_gram_matrices(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream);
template <class E>
cudaError_t launch_rotations(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream);
template <class E>
cudaError_t launch_postmultiplication(const GramStepCall<E>& call, const GramStepLimits& limits, cudaStream_t stream);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_P_STEPS_GRAM_STEP_H_
