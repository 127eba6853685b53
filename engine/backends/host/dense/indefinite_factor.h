// Symmetric indefinite factorization of a Hermitian matrix by rank-revealing rook pivoting, as one factor with signs.
//
//   M = G J G^H,   M n x n,   G n x r,   J = diag(+-1) of r signs,   r the rank of M
// Method: P M P^T = L D L^H with pivots of order 1 and 2. A pivot of order 2 is diagonalized by one rotation,
//   [a conj(b); b c] = W diag(d_1, d_2) W^H,   tau = (c - a) / (2 |b|),   t = sign(tau) / (|tau| + sqrt(1 + tau^2)),
//   d_1 = a - t |b|,   d_2 = c + t |b|,
// so G = P^T L W |D|^(1/2), J = sign(D). The two numbers d_1, d_2 have different signs.
// Pivots: the search starts at the largest diagonal entry of what is left and follows the largest entries of columns. It
// ends at a diagonal entry of at least alpha = (1 + sqrt 17) / 8 of its column. Or it ends at an entry that is the
// largest of its row and its column. A definite matrix has no pivot of order 2: G is its pivoted Cholesky factor.
// Complete pivoting, which looks at all that is left for each pivot, is the reference.
// Rank: entry (i, j) of what is left is zero up to a multiple of the rounding errors of its rows: factor_error.h.
// Blocks: the pivots of a panel are found with columns that are brought up to date when the search visits them, about
// one a pivot. Then what is left is updated by matrix products.
// Sources: Bunch and Parlett, SIAM J. Numer. Anal. 8 (1971) 639-655 (complete pivoting); Ashcraft, Grimes and Lewis,
// SIAM J. Matrix Anal. Appl. 20 (1998) 513-561 (rook pivoting); Slapnicar, Linear Algebra Appl. 272 (1998) 227-275 (one
// factor with signs); Novakovic and Singer, BIT 51 (2011) 1009-1030, section 2.
// Cost: n^3 / 3 multiplications and additions, complete pivoting n^3 / 6 comparisons more and no blocks.
// Accuracy: |M - G J G^H| is a small multiple of n u |M|. The eigenvalues of G J G^H are those of M to a relative error
// of some n u where M = D K D, D diagonal and K well-conditioned.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_INDEFINITE_FACTOR_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_INDEFINITE_FACTOR_H_

#include <complex>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

enum class PivotSearch : uint8_t { kRook, kComplete };
using FactorProgress = std::function<void(double)>;

// [in] m: n x n, finite, its lower triangle alone is read, and of its diagonal the real parts; overwritten. Its largest
// magnitude should be near one: products of entries below 2^-1022 underflow. [out] g: n x n, the first r columns are G,
// the others zero. progress(part of the work that is done) is called after each panel; it may be empty. Returns the r
// signs. E: double or std::complex<double>. Throws LargeStop for a cancel, and std::bad_alloc.
template <class E>
std::vector<int8_t> indefinite_factor(const LargeThreads& threads, large::LargeView<E> m, large::LargeView<E> g,
                                      const FactorProgress& progress = {}, PivotSearch search = PivotSearch::kRook);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_INDEFINITE_FACTOR_H_
