// LAPACK, as the peer whose errors stand beside ours.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_LAPACK_PEER_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_LAPACK_PEER_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// Singular values by ?gesvd without vectors, in the matrix's own dtype, on one thread. Empty if LAPACK reports failure,
// and for complex matrices under AddressSanitizer. OpenBLAS 0.3.21 reads outside its operands for some of them. That
// would end the program, and it is not the peer that is tested.
std::vector<double> gesvd(const Matrix& a);

// The same by ?gesdd.
std::vector<double> gesdd(const Matrix& a);

// The same of a real matrix in double by LAPACK's one-sided Jacobi methods. dgejsv is preceded by pivoted QR and has
// full accuracy for graded columns; dgesvj stands by itself. m >= n.
std::vector<double> gejsv(const Matrix& a);
std::vector<double> gesvj(const Matrix& a);

// Eigenvalues of a real symmetric matrix in double by dsyev, ascending. Empty if LAPACK reports failure.
std::vector<double> syev(const Matrix& a);

// Eigenvalues of a Hermitian matrix by its lower triangle, in double by dsyevd or zheevd, ascending. Empty as gesvd's.
std::vector<double> syevd(const Matrix& a);

// Eigenvalues and eigenvectors by dsyevd or zheevd, on as many threads as OpenBLAS has. [in,out] a: n x n, its lower
// triangle is read, and the eigenvectors take its place. Returns the eigenvalues, ascending. Empty if LAPACK reports
// failure, and for complex matrices under a sanitizer.
std::vector<double> syevd_vectors(int64_t n, double* a);
std::vector<double> syevd_vectors(int64_t n, std::complex<double>* a);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_LAPACK_PEER_H_
