// The LAPACK routines of forms/ and blocked_finish.h, by overloads for all four element types. Matrices are
// column-major; `work` has work_size(n) elements. How the library is called: blas.h.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_LAPACK_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_LAPACK_H_

#include <complex>
#include <cstddef>
#include <cstdint>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

// transform: "or" of real routines, "un" of complex ones.
#define SVD_DECLARE_LAPACK(prefix, transform, E)                                                                       \
  void prefix##transform##mqr_(const char* side, const char* op, const BlasInt* m, const BlasInt* n, const BlasInt* k, \
                               const E* a, const BlasInt* lda, const E* tau, E* c, const BlasInt* ldc, E* work,        \
                               const BlasInt* lwork, BlasInt* info, size_t, size_t);
extern "C" {
SVD_DECLARE_LAPACK(s, or, float)
SVD_DECLARE_LAPACK(d, or, double)
SVD_DECLARE_LAPACK(c, un, std::complex<float>)
SVD_DECLARE_LAPACK(z, un, Complex)
void sgeqrf_(const BlasInt* m, const BlasInt* n, float* a, const BlasInt* lda, float* tau, float* work,
             const BlasInt* lwork, BlasInt* info);
void cgeqrf_(const BlasInt* m, const BlasInt* n, std::complex<float>* a, const BlasInt* lda, std::complex<float>* tau,
             std::complex<float>* work, const BlasInt* lwork, BlasInt* info);
}
#undef SVD_DECLARE_LAPACK

namespace lapack {

// Elements: 64 columns, and the triangles of ormqr.
constexpr size_t work_size(int64_t n) { return static_cast<size_t>(64 * n + 65 * 64); }

#define SVD_DEFINE_LAPACK(prefix, transform, E)                                                                \
  /* a, m x n, m >= n: R, and below it the reflectors of Q */                                                  \
  inline void geqrf(int64_t m, int64_t n, E* a, E* tau, E* work) {                                             \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), size = BlasInt(work_size(n));                              \
    BlasInt info = 0;                                                                                          \
    prefix##geqrf_(&m_, &n_, a, &m_, tau, work, &size, &info);                                                 \
  }                                                                                                            \
  /* c := Q c, m x n, Q of k reflectors by geqrf() */                                                          \
  inline void multiply_by_tall_q(int64_t m, int64_t n, int64_t k, const E* a, int64_t lda, const E* tau, E* c, \
                                 int64_t ldc, E* work) {                                                       \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), k_ = BlasInt(k), lda_ = BlasInt(lda), ldc_ = BlasInt(ldc), \
                  size = BlasInt(work_size(n));                                                                \
    BlasInt info = 0;                                                                                          \
    prefix##transform##mqr_("L", "N", &m_, &n_, &k_, a, &lda_, tau, c, &ldc_, work, &size, &info, 1, 1);       \
  }
SVD_DEFINE_LAPACK(s, or, float)
SVD_DEFINE_LAPACK(d, or, double)
SVD_DEFINE_LAPACK(c, un, std::complex<float>)
SVD_DEFINE_LAPACK(z, un, Complex)
#undef SVD_DEFINE_LAPACK

}  // namespace lapack
}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_LAPACK_H_
