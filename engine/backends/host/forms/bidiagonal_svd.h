// One matrix of moderate order by bidiagonalization, on the calling thread: BIDIAGONAL of batches that are no packs.
//
//   T = X S Y^H, m x n, m >= n:   T = Q_0 R (m > n);   R = Q B P^H (bidiagonal_reduction.h)
//   B = U S V^T (bidiagonal_vectors.h);   X := Q_0 Q U,   Y := P V (reflector_product.h)
// Values alone are those of B, which callers gather from several matrices (bidiagonal_values.h).
//
// Cost, real, n x n: 8/3 n^3 flops for B; about 12 n^3 with vectors. Accuracy: backward stable, |s - exact| <=
// c n u s_max. T is scaled by a power of two first, so that nothing over- or underflows on the way.
// Source: Golub and Van Loan, 3rd ed., section 5.4.3.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_

#include <complex>
#include <cstdint>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/forms/element_planes.h"
#include "engine/backends/host/forms/reflector_product.h"
#include "engine/backends/host/merges/bidiagonal_vectors.h"
#include "engine/result.h"

namespace svdserve::host {

// The workspace of one thread: kept from matrix to matrix, it allocates nothing for the second one of a shape. The
// caller holds a BlasThreads (blas.h) and an FpEnvironment. Same matrix, same bits, whatever was computed before.
// Thread safety: none, one object a thread. E: float, double or std::complex of them.
template <class E>
class BidiagonalSvd {
 public:
  using T = RealNumber<E>;

  // s: cols values, descending. x, rows x cols, and y, cols x cols, column-major. No result is -0. kOk; kOutOfRange: a
  // value is +inf; kNonFinite: nothing is written that counts. Throws std::bad_alloc.
  MatrixStatus decompose(const StridedMatrix<E>& t, T* s, E* x, E* y);

  // The bidiagonal form of 2^-*exponent T, whose largest component is in [1, 2): d, n numbers, and e, n - 1. false: T is not
  // finite, and B is zero. Throws std::bad_alloc.
  bool reduce(const StridedMatrix<E>& t, T* d, T* e, int* exponent);

 private:
  static constexpr int kPlanes = kPlanesOf<E>;

  void reserve(int64_t m, int n);
  bool load(const StridedMatrix<E>& t, int* exponent);
  void split(const E* from, int64_t ld, bool upper, int n);
  void find_vectors(int64_t m, int n, T* s, E* x, E* y);
  void multiply_back(int64_t m, int n, E* x, E* y);

  AlignedArray<E> tall_, tau_, work_;                // tall_: T, or of tall ones its reflectors
  AlignedArray<T> planes_, reduction_work_, d_, e_;  // of the reduction
  AlignedArray<E> tau_q_, tau_p_;
  BidiagonalVectors<T> of_b_;
  ReflectorProduct<E> product_;
};

// s := 2^exponent s, n values, the largest first, with zeros as +0. kOk or kOutOfRange.
template <class T>
MatrixStatus scale_values(int n, int exponent, T* s);

extern template class BidiagonalSvd<float>;
extern template class BidiagonalSvd<double>;
extern template class BidiagonalSvd<std::complex<float>>;
extern template class BidiagonalSvd<std::complex<double>>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_
