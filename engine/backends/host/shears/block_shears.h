// Jacobi's method for one large general matrix by blocks: A = E T E^-1, T upper triangular but for rounding errors.
//
//   for the p-steps of a sweep, for all block pairs of a p-step at once, idx the K lines of a pair:
//     P = A(idx, idx), R = A(idx, out) A(idx, out)^H, C = A(out, idx)^H A(out, idx), out: the other lines
//     W, W' = W^-1 by inner sweeps on P, R, C                                      shear_block.h
//     A(idx, :) := W' A(idx, :),   A(:, idx) := A(:, idx) W,   E(:, idx) := E(:, idx) W
//   then A := D^-1 A D, E := E D as in shear_jacobi.h: d_j = 2 or 1/2 where that shrinks row and column j together by
//   5 %, both above 8 n u |A|_F; even lines together, then odd ones
//   until |strict lower triangle of A|_F <= n u |A|_F
//
// kRotations: unitary W, without R, C and D, until 2 n u |A|_F. BlockVariant: one inner sweep (block-oriented), or as
// many as make P triangular (full-block).
// Source: Eberlein, J. SIAM 10 (1962) 74-88; Shroff, Numer. Math. 58 (1991) 779-805; the blocks: shear_block.h.
// Block pairs and p-steps: Novakovic and Singer, BIT 51 (2011) 1009-1030.
// Cost: a sweep takes 48 n^3 flops for A and E and 8 n^3 for R and C, all of them products of matrices, and 240 n^2 w
// for inner sweeps, w columns a block. A pair without transformations costs no product.
// Accuracy: that of shear_jacobi.h. The caller takes eigenvectors from a unitary basis of E.
// Ends without convergence after max_sweeps, or when A is not finite any more.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_BLOCK_SHEARS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_BLOCK_SHEARS_H_

#include <complex>
#include <cstdint>
#include <functional>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/shears/shear_pairs.h"
#include "engine/large_engine.h"

namespace svdserve::host {

// Columns of a block. A pair has ten matrices of (2 w)^2 complex numbers, which should stay in a core's own cache.
constexpr int64_t host_general_block_width(int64_t n) { return n <= 256 ? 16 : 32; }

struct BlockShearOptions {
  ShearKind kind = ShearKind::kShearsAndRotations;
  PivotStrategy strategy = PivotStrategy::kRoundRobin;
  BlockVariant variant = BlockVariant::kBlockOriented;
  int max_sweeps = 0;
};

struct BlockShearReport {
  bool converged = false;
  int sweeps = 0;                 // begun
  int64_t transforms = 0;         // of pairs of lines
  int64_t proper_transforms = 0;  // of these, those with a diagonal that is not 1 when rounded
  double lower = 1;               // |strict lower triangle|_F / |A|_F at the start of the last sweep, or at the end
  double part_of_sweep = 0;       // while it runs
};

// a, e: n x n, [in,out] A and E. A's largest component is about one. tell hears of every p-step. A cancel is seen between
// tasks. BlasThreads is the caller's.
BlockShearReport block_shears(const LargeThreads& threads, large::LargeView<std::complex<double>> a,
                              large::LargeView<std::complex<double>> e, const BlockShearOptions& options,
                              const std::function<void(const BlockShearReport&)>& tell);

// An upper bound of the memory that it takes beside its arguments.
uint64_t block_shears_bytes(int64_t n, int threads);

// |strict lower triangle of a|_F and |a|_F.
struct TriangleNorms {
  double lower = 0, all = 0;
};
TriangleNorms triangle_norms(const LargeThreads& threads, large::LargeView<std::complex<double>> a);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_BLOCK_SHEARS_H_
