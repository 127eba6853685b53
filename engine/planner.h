// The planner: which method and which path for which problem, and every threshold of shape, in one place. A plan is a
// function of the request alone, never of the machine, the batch or the load: that is what lets results be reproduced.
#ifndef SVDSERVE_ENGINE_PLANNER_H_
#define SVDSERVE_ENGINE_PLANNER_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/options.h"
#include "engine/outputs.h"
#include "engine/problem.h"

namespace svdserve {

// Limits of shape of a batch; larger ones are large matrices (engine/large_engine.h).
struct ShapeLimits {
  int64_t max_values;     // largest min(m, n)
  int64_t max_dimension;  // largest max(m, n)
};
inline constexpr ShapeLimits kShapeLimits{512, 16384};
// Largest min(m, n) of BIDIAGONAL and BISECTION by name, and of the kernels whose bits are the same on CPU and GPU.
inline constexpr int64_t kLargestReproducible = 32;
// On a GPU AUTO is BIDIAGONAL up to the first k, where m = n up to the second, with vectors from k = 33 on. Hermitian matrices
// beyond the first k are TRIDIAGONAL, whatever was asked for: no kernel has JACOBI of larger ones. The registers of
// eight warps hold a matrix of kLargestInGrid columns, c128 with some of them in memory beyond the third. Beyond what they
// hold, values alone go the way of vectors.
inline constexpr int64_t kLargestInGrid = 128, kLargestInMemory = 512;
constexpr int64_t largest_in_registers(DType dtype) { return dtype == DType::kC128 ? 96 : kLargestInGrid; }

// The largest k of kernels that keep arrays of k numbers: of a method's that have a matrix in each lane, and of a GPU's
// thread blocks.
inline constexpr int64_t kLargestInLanes = 128;
constexpr int64_t largest_in_lanes(Method method) {
  return method == Method::kBisection ? kLargestReproducible : kLargestInLanes;
}

// k up to here is compiled for its size; larger k share one kernel of run-time size.
inline constexpr int kLargestFixedSize = 8;
// Rows of one tile of the tall-skinny QR: part of the arithmetic, so of the bits. A tile has at least k rows.
inline constexpr int kTileRows = 64, kTallTileRows = 256;
constexpr int tile_rows_for(int64_t k) { return k <= kLargestReproducible ? kTileRows : kTallTileRows; }
// JACOBI with vectors: columns of larger k have a floor, and a sweep goes on where the one before ended.
inline constexpr int kLargestWithoutFloor = 16;
// AUTO of Hermitian matrices is TRIDIAGONAL up to this order, and JACOBI up to kLargestReproducible. A thread of a GPU has
// no more of them in registers.
inline constexpr int kLargestTridiagonal = 4;
// The largest order of Hermitian matrices of a batch.
inline constexpr int64_t kLargestHermitian = kLargestInMemory;
// The largest order of general matrices of a batch.
inline constexpr int64_t kLargestGeneral = kLargestReproducible;
// QR of general matrices: a residual of more than this, in units of k u |A|_F, was lost by balancing, and the matrix is
// decomposed once more without.
inline constexpr int kLargestBalancedResidual = 5;
// JACOBI of general matrices: one with a residual of more than this, in the same units, is decomposed by QR.
inline constexpr int kLargestJacobiResidual = 10;
// Sweeps after which JACOBI gives a matrix up; the largest that can be asked for.
inline constexpr int32_t kDefaultMaxSweeps = 30;
inline constexpr int32_t kLargestMaxSweeps = 1000;

// A checked problem with everything decided. Only make_plan() makes one.
struct Plan {
  Problem problem;
  Decomposition decomposition;
  Triangle triangle;   // of kHermitian
  Method method;       // never kAuto; on a GPU, and on a CPU up to kLargestReproducible
  Method host_method;  // on a CPU: another one only beyond that, where AUTO takes the fastest of each
  double tolerance;    // resolved: the method's default, or the caller's, clamped to what the dtype can resolve
  int32_t max_sweeps;  // resolved
  Outputs outputs;
  bool starting_vectors = false;
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Whether vectors are computed, given or not: those of Hermitian matrices come with their eigenvalues, and conditions are
// products of them.
inline bool makes_vectors(const Plan& plan) {
  return plan.outputs.vectors() || plan.outputs.condition || plan.decomposition == Decomposition::kHermitian;
}
// General matrices: W likewise.
inline bool makes_left_vectors(const Plan& plan) { return plan.outputs.right_columns > 0 || plan.outputs.condition; }

// The least k whose matrices the host reduces one by one, by BLAS and LAPACK. Below, matrices are lanes of packs. With
// vectors all are beyond the k of equal bits: decisions/0008-beyond-32-values.md. Values alone of square matrices have their
// own limit, since a pack takes as long for one matrix as for all. k of packs are below kPackLimit.
inline constexpr int64_t kLeastBlockedWithVectors = kLargestReproducible + 1, kPackLimit = 96;
constexpr int64_t least_blocked_of_values(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kC128 ? 48 : 64;
}
inline bool is_blocked_batch(const Plan& plan) {
  const Problem& p = plan.problem;
  const int64_t k = values_per_matrix(p);
  if (makes_vectors(plan)) return k >= kLeastBlockedWithVectors;
  const bool gathers_values = plan.host_method == Method::kBidiagonal && p.rows == p.cols;
  return k >= (gathers_values ? least_blocked_of_values(p.dtype) : kPackLimit);
}
// JACOBI on a GPU: the largest k of vectors that a thread block computes in registers and shared memory. Complex numbers of two
// doubles have no room there beyond 64. Larger matrices are decomposed side by side (backends/cuda/side_by_side/), by
// pairs of blocks of side_by_side_pair_columns() columns together.
constexpr int64_t largest_in_thread_block(DType dtype) { return dtype == DType::kC128 ? 64 : kLargestInLanes; }
// Vectors of f64 are so from a smaller k on where that is faster: by whole blocks of 32 columns (decisions/0015).
constexpr bool is_faster_side_by_side(DType dtype, int64_t k) {
  return dtype == DType::kF64 && ((k > 80 && k <= 96) || k > 112);
}
inline bool is_side_by_side(const Plan& plan) {
  const Problem& p = plan.problem;
  const int64_t k = values_per_matrix(p);
  if (plan.decomposition != Decomposition::kSvd || plan.method == Method::kBidiagonal) return false;
  if (k > largest_in_thread_block(p.dtype)) return true;
  return makes_vectors(plan) && is_faster_side_by_side(p.dtype, k);
}
// On a GPU: vectors by bidiagonalization, and Hermitian matrices by tridiagonalization (backends/cuda/by_rows/).
inline bool is_by_rows(const Plan& plan) {
  const int64_t k = values_per_matrix(plan.problem);
  if (k <= kLargestReproducible) return false;
  const bool by_vectors = makes_vectors(plan) || k > largest_in_registers(plan.problem.dtype);
  return plan.method == Method::kTridiagonal || (plan.method == Method::kBidiagonal && by_vectors);
}
constexpr int side_by_side_pair_columns(int64_t k, bool complex) { return k <= 256 || complex ? 64 : 128; }

// The error of a request, for the caller's eyes. `field` is rows, cols, or of Options; "mimo.snr_db".
struct PlanError {
  std::string field;
  std::string message;
};

// Checks `problem` and `options` and resolves AUTO and the defaults. Exactly one of the two is set.
struct PlanOrError {
  std::optional<Plan> plan;
  PlanError error;
};
PlanOrError make_plan(const Problem& problem, const Options& options);

// Bytes of the starting vectors of one matrix, and of all its operands, as they are stored.
constexpr size_t starting_bytes(const Plan& plan) {
  const Problem& p = plan.problem;
  return plan.starting_vectors ? matrix_bytes(p) * (is_complex(p.dtype) ? 1 : 2) : 0;
}
constexpr size_t operand_bytes(const Plan& plan) { return stored_bytes(plan.problem) + starting_bytes(plan); }

// Bytes of a plane of `count` matrices, a multiple of the plan's group.
inline size_t plane_bytes(const Plan& plan, Plane plane, int64_t count) {
  return plane_bytes(plan.problem, plan.outputs, plane) * static_cast<size_t>(count / plan.outputs.group);
}
// Bytes of a plane that has a part for each matrix, of one matrix.
inline size_t matrix_plane_bytes(const Plan& plan, Plane plane) {
  return plane_bytes(plan.problem, plan.outputs, plane) / static_cast<size_t>(plan.outputs.group);
}
// Bytes of all planes together.
inline size_t result_bytes(const Plan& plan, int64_t count) {
  size_t bytes = 0;
  for (int i = 0; i < kPlanes; ++i) bytes += plane_bytes(plan, static_cast<Plane>(i), count);
  return bytes;
}
// The planes of `count` matrices one after the other, from `first` on.
inline PlanePointers planes_in(const Plan& plan, void* first, int64_t count) {
  PlanePointers planes;
  char* at = static_cast<char*>(first);
  for (int i = 0; i < kPlanes; ++i) {
    const size_t bytes = plane_bytes(plan, static_cast<Plane>(i), count);
    if (bytes > 0) planes[static_cast<Plane>(i)] = at;
    at += bytes;
  }
  return planes;
}
// The same planes from matrix `first` on, a multiple of the plan's group.
inline PlanePointers planes_from(const Plan& plan, const PlanePointers& planes, int64_t first) {
  PlanePointers from = planes;
  for (int i = 0; i < kPlanes; ++i) {
    const Plane plane = static_cast<Plane>(i);
    if (from[plane] != nullptr) from[plane] = static_cast<char*>(from[plane]) + plane_bytes(plan, plane, first);
  }
  return from;
}

// --- large matrices: the bits are promised from run to run on one machine -----------------------------------------

// Columns of a block on the host; a block pair has twice as many. Its triangle and transformation, 2 (2 w)^2 doubles,
// should stay in a core's own cache, and the products of its columns should be large enough for GEMM.
constexpr int64_t host_large_block_width(int64_t n) { return n <= 256 ? 16 : n <= 1024 ? 32 : 64; }

// Whether the host leaves a tall operand, m x n, m >= n, where it lies and reduces it block of rows by block of rows.
// Below, there are too few rows for two chains.
constexpr bool is_host_large_tall(int64_t m, int64_t n) { return m / 16 >= n; }
// Rows of such a block: a mebibyte of doubles, which stays in a core's own cache, and enough of them for GEMM.
constexpr int64_t host_large_block_rows(int64_t n) { return std::clamp<int64_t>((1 << 17) / n, 256, 4096); }
// Chains of blocks, each reduced by a thread of its own. Each has a few n x n matrices.
constexpr int64_t host_large_chains(int64_t m, int64_t n, int threads) {
  return std::clamp<int64_t>(m / (8 * n), 1, threads);
}

// The leading top_k triplets of a large matrix (algorithms/large/leading_triplets.h): columns of a block, and the most
// that the subspace may have of n. More than a quarter of n costs more than the full decomposition may save. Fewer than
// three blocks show no convergence: 0, and no subspace is tried.
constexpr int64_t subspace_block(int64_t top_k) { return (top_k + std::max<int64_t>(8, top_k / 4) + 7) / 8 * 8; }
constexpr int64_t subspace_columns(int64_t n, int64_t top_k) {
  constexpr int64_t kLeastBlocks = 3, kMostBlocks = 16;
  const int64_t blocks = n / 4 / subspace_block(top_k);
  return blocks < kLeastBlocks ? 0 : std::min(blocks, kMostBlocks) * subspace_block(top_k);
}

// On a GPU: columns of a block pair of a matrix of n columns, 64 or 128. Wider pairs are multiplied at a higher rate
// and orthogonalized more slowly (decisions/0014). Complex pairs of 128 do not fit a multiprocessor.
constexpr int cuda_large_pair_columns(int64_t n, bool complex) { return n < 3584 || complex ? 64 : 128; }

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_PLANNER_H_
