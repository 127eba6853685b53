// Eigenvectors of a matrix from the Schur form of the balanced one, spread over threads.
//
//   B = Z T Z^H,   A = P D B D^-1 P^T:   V = P D Z X,   W = P D^-1 Z Y,   X and Y the vectors of T; unit columns
// Method: chunks of columns of X or Y by back substitution (triangle_vectors.h), then a product with Z. The way back goes
// through D, powers of two, and the permutation P (LAPACK's gebal).
// Source: Golub and Van Loan, Matrix Computations (2013), section 7.6.4.
// Cost: 2 n^3 multiplications and additions.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_SCHUR_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_SCHUR_VECTORS_H_

#include <complex>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/general/triangle_vectors.h"

namespace svdserve::host {

// Vectors of a task, each of which has two n x kVectorsOfTask matrices.
inline constexpr int64_t kVectorsOfTask = 32;

template <class E>
struct SchurForm {
  large::LargeView<E> t, z;                         // n x n; z without data where no vectors are made
  const std::vector<std::complex<double>>& values;  // the eigenvalues of t, in their order
  int64_t low, high;                                // rows and columns that were scaled
  const std::vector<double>& scale;                 // gebal's
};

// Columns have norm 1. That of a complex value, and each of a complex matrix, has its largest component real. tell hears
// fractions from 0 to 1.
template <class E>
void schur_vectors(const LargeThreads& threads, const SchurForm<E>& form, Side side,
                   large::LargeView<std::complex<double>> out, const std::function<void(double)>& tell);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_SCHUR_VECTORS_H_
