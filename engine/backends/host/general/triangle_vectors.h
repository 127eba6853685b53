// Eigenvectors of a triangular matrix, or of a real one with 2 x 2 blocks, by back substitution for many at a time.
//
//   (T - lambda I) x = 0 or (T - lambda I)^H y = 0 by rows, for a chunk of columns of T
// Method: LAPACK's trevc, but blocks of rows are solved for a whole chunk and leave a product for the other rows.
// Pivots below u |lambda| are replaced by that. Columns are scaled by powers of two where their entries grow large.
// Source: Golub and Van Loan, Matrix Computations (2013), section 7.6.4.
// Cost: j^2 / 2 multiplications and additions for the right vector of column j, twice that of a pair.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_TRIANGLE_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_TRIANGLE_VECTORS_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

enum class Side : uint8_t { kRight, kLeft };

// 0, then ends of chunks of about `width` columns of t, n x n. Pairs are not split.
template <class E>
std::vector<int64_t> chunks_of(large::LargeView<E> t, int64_t width);

// x, n x the chunk's columns, := their eigenvectors. A real pair has two
// columns: the real and the imaginary part for the value with Im > 0. Entries are below 2^300, the largest is not much
// below 1. bounds: chunks_of(); `chunk` is of columns bounds[chunk] .. bounds[chunk + 1] - 1. Tasks may run at once.
template <class E>
void triangle_vectors(const LargeThreads& threads, large::LargeView<E> t, Side side, const std::vector<int64_t>& bounds,
                      int64_t chunk, large::LargeView<E> x);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_TRIANGLE_VECTORS_H_
