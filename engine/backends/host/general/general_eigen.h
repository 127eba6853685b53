// Eigenvalues and eigenvectors of one large general matrix by QR, spread over threads.
//
//   A V = V L,   W^H A = L W^H,   A n x n, L diagonal, V and W of unit columns
// Method: LAPACK's geev taken apart. A is balanced by powers of two (gebal) and reduced to Hessenberg form in panels
// (hessenberg.h). Multishift QR with aggressive early deflation gives the Schur form (hessenberg_qr.h), and back
// substitution the eigenvectors of its triangle (triangle_vectors.h). A product with the Schur vectors and the undone
// balancing make them those of A. Every loop is cut into tasks, so that all threads work and a cancel is seen.
// Sources: Golub and Van Loan, Matrix Computations (2013), sections 7.4 to 7.6; Bai and Demmel, Int. J. High Speed
// Comput. 1 (1989) 97-112; Braman, Byers and Mathias, SIAM J. Matrix Anal. Appl. 23 (2002) 929-947 and 948-973.
// Cost: about 10 n^3 multiplications and additions for the values, 25 n^3 with right vectors, 28 n^3 with both.
// Accuracy: the values and vectors are those of a matrix within a modest multiple of u |A| of the balanced one. So
// |A V - V L| <= 10 n u |A| where balancing is mild or left out. A value's own error is u |A| times its condition,
// 1 / |w^H v|.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_GENERAL_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_GENERAL_EIGEN_H_

#include <complex>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

struct GeneralResults {
  // n. Conjugate pairs of a real matrix are exact and neighbours, the one with Im > 0 first.
  std::vector<std::complex<double>>& values;
  // n x n, or without data where not wanted. Columns have 2-norm 1, in the order of the values. That of a complex value
  // has its largest component real. That of a real matrix's real value is real.
  large::LargeView<std::complex<double>> right, left;
};

struct Balancing {
  bool wanted = true;   // [in] false: rows and columns are ordered, but not scaled
  bool scaled = false;  // [out] some were scaled
};

// E: double or std::complex<double>. [in] a: n x n, finite, of norm about 1; overwritten. progress is told fractions
// from 0 to 1 that never fall, and may be empty. BlasThreads is the caller's. False: QR did not converge.
template <class E>
bool general_eigen(const LargeThreads& threads, large::LargeView<E> a, const GeneralResults& results,
                   const std::function<void(double)>& progress, Balancing* balancing);

// An upper bound of the memory that it takes beside its arguments.
uint64_t general_eigen_bytes(int64_t n, bool complex, bool right, bool left, int threads);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_GENERAL_EIGEN_H_
