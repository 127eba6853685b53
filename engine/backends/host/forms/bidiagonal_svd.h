// One matrix of moderate order by bidiagonalization, on the calling thread: BIDIAGONAL of batches that are no packs.
//
//   T = X S Y^H, m x n, m >= n:   T = Q_0 R (m > n);   R = Q B P^H (bidiagonal_reduction.h)
//   B = U S V^T (bidiagonal_vectors.h)
//   X := Q_0 Q U,   Y := P V;   values alone: LAPACK's lasq1, which is dqds
//
// Cost, real, n x n: 8/3 n^3 flops and about 30 n^2 for values alone; about 12 n^3 with vectors. Accuracy: backward
// stable, |s - exact| <= c n u s_max. T is scaled by a power of two first, so that nothing over- or underflows on the way.
// Sources: Golub and Van Loan, 3rd ed., section 5.4.3; Fernando and Parlett, Numer. Math. 67 (1994) 191-229 (lasq1).
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_

#include <complex>
#include <cstdint>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/forms/bidiagonal_vectors.h"
#include "engine/backends/host/forms/element_planes.h"
#include "engine/result.h"

namespace svdserve::host {

// The workspace of one thread: kept from matrix to matrix, it allocates nothing for the second one of a shape. The
// caller holds a BlasThreads (blas.h) and an FpEnvironment. Same matrix, same bits, whatever was computed before.
// Thread safety: none, one object a thread. E: float, double or std::complex of them.
template <class E>
class BidiagonalSvd {
 public:
  using T = RealNumber<E>;

  // s: cols values, descending. x, rows x cols, and y, cols x cols, column-major; both null: values alone. No result is
  // -0. kOk; kOutOfRange: a value is +inf; kNonFinite, and kNotConverged of values alone, where LAPACK has given up:
  // nothing is written that counts. Throws std::bad_alloc.
  MatrixStatus decompose(const StridedMatrix<E>& t, T* s, E* x, E* y);

 private:
  static constexpr int kPlanes = kPlanesOf<E>;

  void reserve(int64_t m, int n, bool vectors);
  bool load(const StridedMatrix<E>& t, int* exponent);
  void split(const E* from, int64_t ld, bool upper, int n);
  bool find_values(int n, T* s);
  void find_vectors(int64_t m, int n, T* s, E* x, E* y);
  void multiply_back(int64_t m, int n, E* x, E* y);

  AlignedArray<E> tall_, tau_, factor_, work_;  // tall_: T, or of tall ones its reflectors; factor_: those of complex R
  AlignedArray<T> planes_, reduction_work_, d_, e_;  // of the reduction
  AlignedArray<E> tau_q_, tau_p_;
  AlignedArray<T> real_work_;
  BidiagonalVectors<T> of_b_;
};

extern template class BidiagonalSvd<float>;
extern template class BidiagonalSvd<double>;
extern template class BidiagonalSvd<std::complex<float>>;
extern template class BidiagonalSvd<std::complex<double>>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_BIDIAGONAL_SVD_H_
