// Matrices of any order whose eigenvalues or singular values are known better than double can hold the matrix.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_KNOWN_SPECTRUM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_KNOWN_SPECTRUM_H_

#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// M = Q diag(values) Q^H, rounded once from long double: f64 or c128. An eigenvalue of M is off by no more than the
// rounding of its entries, |dM|_2 <= u |M|_F, mostly by a small fraction of u |M|_2.
// Q is a product of random plane rotations in log2 n + 4 layers, each of which pairs all indices anew, so Q is dense.
// In complex matrices each rotation also turns a phase. Cost: some 12 n^2 (log2 n + 4) operations in long double.
Matrix with_known_spectrum(DType dtype, const std::vector<double>& values, Random& random);

// A = Q diag(values) P^H, rows x cols with min(rows, cols) values, Q and P as above, rounded once from long double to the
// dtype. A singular value of A is off by no more than u |A|_F.
Matrix with_known_values(DType dtype, int64_t rows, int64_t cols, const std::vector<double>& values, Random& random);

// Every eigenvalue of a regular Hermitian matrix as stored, ascending, from its lower triangle. The factor G of M = G J
// G^T and the hyperbolic Jacobi method give them in long double. Complex matrices become real ones of twice the order,
// which have each eigenvalue twice. Relative accuracy where M = D K D, K well-conditioned. Cost: some 40 n^3 operations.
std::vector<long double> accurate_eigenvalues(const Matrix& m);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_KNOWN_SPECTRUM_H_
