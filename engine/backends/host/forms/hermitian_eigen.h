// One Hermitian matrix of moderate order by its tridiagonal form, on the calling thread: TRIDIAGONAL of batches that are
// no packs.
//
//   A = U diag(lambda) U^H, n x n
//   A = Q T Q^H (tridiagonal_reduction.h),   T = V diag(lambda) V^T (tridiagonal_vectors.h),
//   U := Q V (reflector_product.h)
//
// Eigenvalues alone have the same bits: V is made and thrown away.
// Cost, real: 14/3 n^3 multiplications and additions at most. Accuracy: backward stable, |lambda - exact| <= c n u |A|_2.
// A is scaled by a power of two first, so that nothing over- or underflows on the way.
// Source: Golub and Van Loan, 3rd ed., sections 8.3.1 and 8.5.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGEN_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGEN_H_

#include <cstdint>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/forms/element_planes.h"
#include "engine/backends/host/forms/reflector_product.h"
#include "engine/backends/host/merges/tridiagonal_vectors.h"
#include "engine/result.h"

namespace svdserve::host {

// As BidiagonalSvd: the workspace of one thread, kept from matrix to matrix. The caller holds a BlasThreads and an
// FpEnvironment. Thread safety: none. E: float, double or std::complex of them.
template <class E>
class HermitianEigen {
 public:
  using T = RealNumber<E>;

  // Reads the upper or the lower triangle of a, n x n, and no imaginary part of the diagonal. lambda: n, ascending. u: n x
  // n, column-major; null: eigenvalues alone. No result is -0. kOk; kOutOfRange: an eigenvalue is infinite; kNonFinite:
  // nothing is written that counts. Throws std::bad_alloc.
  MatrixStatus decompose(const StridedMatrix<E>& a, bool upper, T* lambda, E* u);

 private:
  static constexpr int kPlanes = kPlanesOf<E>;

  void reserve(int n);
  bool load(const StridedMatrix<E>& a, bool upper, int* exponent);
  void find_vectors(int n, E* u);

  AlignedArray<T> planes_, reduction_work_, d_, e_;
  AlignedArray<E> tau_;
  ReflectorProduct<E> product_;
  TridiagonalVectors<T> of_t_;
};

extern template class HermitianEigen<float>;
extern template class HermitianEigen<double>;
extern template class HermitianEigen<std::complex<float>>;
extern template class HermitianEigen<std::complex<double>>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGEN_H_
