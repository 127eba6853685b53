// The last steps of singular vectors for one larger matrix in host memory: full bases, certificates and gradients. BLAS
// and LAPACK compute them on the calling thread. They are what algorithms/finish/ defines, with other bits. There each element is a sum by
// itself; that would take ten times as long as the decomposition of 512 x 512.
//
//   complete   X = Q R by Householder reflectors (geqrf); x_j := Q e_j, j >= k
//   certify    T - (X S) Y^H, X^H X - I and Y^H Y - I in double precision for every type, each as eight products
//   multiply   G = X diag(w) Y^H, the gradients of mimo/gradients.h, in double precision for every type
//
// Cost: 4 rows k^2 + 4 rows k (columns - k) flops; 3 rows k^2 + k^3; 2 rows k^2. Complex: four times. The certificate of f64 and c128
// has rounding errors of its own, about sqrt(k) u, as certificate.h says.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLOCKED_FINISH_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLOCKED_FINISH_H_

#include <complex>
#include <cstdint>
#include <type_traits>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/vector_layout.h"

namespace svdserve::host {

// A matrix in memory of any alignment; element (i, j), j < layout.columns, lies where its layout says.
struct PlacedMatrix {
  void* data;
  VectorLayout layout;
};

// The workspace of one thread: kept from matrix to matrix, it allocates nothing for the second one of a shape. The
// caller holds a BlasThreads (blas.h) and an FpEnvironment. Thread safety: none, one object a thread. E: float, double
// or std::complex of them.
template <class E>
class BlockedFinish {
 public:
  using T = RealNumber<E>;

  // Columns k .. of x := an orthonormal complement of the first k. Throws std::bad_alloc.
  void complete(const PlacedMatrix& x, int64_t k);

  // certificate: kCertificateNumbers of T, at any alignment. t: rows x k, A or its transpose where it is wide; x and y
  // have k columns at least, and s as many values. Throws std::bad_alloc.
  void certify(const void* t, const VectorLayout& of_t, const PlacedMatrix& x, const PlacedMatrix& y, const T* s,
               bool wide, void* certificate);

  // g := X diag(w) Y^H, g of rows x k, every zero as +0. x and y have k columns at least, and w as many numbers. Throws
  // std::bad_alloc.
  void multiply(const PlacedMatrix& x, const T* w, const PlacedMatrix& y, const PlacedMatrix& g);

 private:
  using Wide = std::conditional_t<std::is_same_v<E, T>, double, Complex>;

  double orthogonality(const Wide* x, int64_t rows, int64_t k);

  AlignedArray<E> factor_, tau_, more_, work_;  // of complete(); factor_ of multiply(), too
  AlignedArray<Wide> t_, x_, y_, gram_;         // of certify(), and of multiply() but gram_
};

extern template class BlockedFinish<float>;
extern template class BlockedFinish<double>;
extern template class BlockedFinish<std::complex<float>>;
extern template class BlockedFinish<std::complex<double>>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLOCKED_FINISH_H_
