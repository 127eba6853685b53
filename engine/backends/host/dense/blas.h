// The BLAS and LAPACK routines that large factors use, by overloads for double and std::complex<double>. Where results
// need single precision alone, eigenproblems use those for float and std::complex<float>.
//
// The library is OpenBLAS, called from our own threads, each call on one: BlasThreads sees to that. So the partition of
// the work is ours, and the same from run to run.
// Declared here rather than by <cblas.h> and <lapacke.h>, which would be two more libraries: the Fortran symbols are in
// OpenBLAS itself. Lengths of character arguments are passed as gfortran expects them.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLAS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLAS_H_

#include <complex>
#include <cstddef>
#include <cstdint>

namespace svdserve::host {

using BlasInt = int;  // 32 bits: Debian's and Ubuntu's default build
using Complex = std::complex<double>;
using ComplexFloat = std::complex<float>;
template <class E>
using RealNumber = decltype(std::real(E()));  // float or double

extern "C" {
void openblas_set_num_threads(int threads);
int openblas_get_num_threads(void);
char* openblas_get_corename(void);
#define SVD_DECLARE_BLAS(prefix, E)                                                                                 \
  void prefix##gemm_(const char* op_a, const char* op_b, const BlasInt* m, const BlasInt* n, const BlasInt* k,      \
                     const E* alpha, const E* a, const BlasInt* lda, const E* b, const BlasInt* ldb, const E* beta, \
                     E* c, const BlasInt* ldc, size_t, size_t);                                                     \
  void prefix##trsm_(const char* side, const char* uplo, const char* op, const char* diag, const BlasInt* m,        \
                     const BlasInt* n, const E* alpha, const E* a, const BlasInt* lda, E* b, const BlasInt* ldb,    \
                     size_t, size_t, size_t, size_t);                                                               \
  void prefix##tpqrt2_(const BlasInt* m, const BlasInt* n, const BlasInt* l, E* a, const BlasInt* lda, E* b,        \
                       const BlasInt* ldb, E* t, const BlasInt* ldt, BlasInt* info);                                \
  void prefix##geqrf_(const BlasInt* m, const BlasInt* n, E* a, const BlasInt* lda, E* tau, E* work,                \
                      const BlasInt* lwork, BlasInt* info);                                                         \
  void prefix##larft_(const char* direct, const char* storev, const BlasInt* n, const BlasInt* k, const E* v,       \
                      const BlasInt* ldv, const E* tau, E* t, const BlasInt* ldt, size_t, size_t);                  \
  void prefix##larfb_(const char* side, const char* op, const char* direct, const char* storev, const BlasInt* m,   \
                      const BlasInt* n, const BlasInt* k, const E* v, const BlasInt* ldv, const E* t,               \
                      const BlasInt* ldt, E* c, const BlasInt* ldc, E* work, const BlasInt* ldwork, size_t, size_t, \
                      size_t, size_t);                                                                              \
  void prefix##potrf_(const char* uplo, const BlasInt* n, E* a, const BlasInt* lda, BlasInt* info, size_t);
SVD_DECLARE_BLAS(s, float)
SVD_DECLARE_BLAS(d, double)
SVD_DECLARE_BLAS(c, ComplexFloat)
SVD_DECLARE_BLAS(z, Complex)
#undef SVD_DECLARE_BLAS
void dsyrk_(const char* uplo, const char* op, const BlasInt* n, const BlasInt* k, const double* alpha, const double* a,
            const BlasInt* lda, const double* beta, double* c, const BlasInt* ldc, size_t, size_t);
void zherk_(const char* uplo, const char* op, const BlasInt* n, const BlasInt* k, const double* alpha, const Complex* a,
            const BlasInt* lda, const double* beta, Complex* c, const BlasInt* ldc, size_t, size_t);
// symmetric: "sy" of real routines, "he" of complex ones.
#define SVD_DECLARE_TRIDIAGONAL(prefix, symmetric, E)                                                          \
  void prefix##latrd_(const char* uplo, const BlasInt* n, const BlasInt* nb, E* a, const BlasInt* lda,         \
                      RealNumber<E>* e, E* tau, E* w, const BlasInt* ldw, size_t);                             \
  void prefix##symmetric##td2_(const char* uplo, const BlasInt* n, E* a, const BlasInt* lda, RealNumber<E>* d, \
                               RealNumber<E>* e, E* tau, BlasInt* info, size_t);
SVD_DECLARE_TRIDIAGONAL(s, sy, float)
SVD_DECLARE_TRIDIAGONAL(d, sy, double)
SVD_DECLARE_TRIDIAGONAL(c, he, ComplexFloat)
SVD_DECLARE_TRIDIAGONAL(z, he, Complex)
#undef SVD_DECLARE_TRIDIAGONAL
}

// One thread a call for as long as an object of it lives in the process; then the number that was set before the first.
class BlasThreads {
 public:
  BlasThreads();
  ~BlasThreads();
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;
};

namespace blas {

#define SVD_DEFINE_BLAS(prefix, E, adjoint)                                                                         \
  inline void gemm(bool adjoint_a, bool adjoint_b, int64_t m, int64_t n, int64_t k, double alpha, const E* a,       \
                   int64_t lda, const E* b, int64_t ldb, double beta, E* c, int64_t ldc) {                          \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), k_ = BlasInt(k), lda_ = BlasInt(lda), ldb_ = BlasInt(ldb),      \
                  ldc_ = BlasInt(ldc);                                                                              \
    const E alpha_ = RealNumber<E>(alpha), beta_ = RealNumber<E>(beta);                                             \
    prefix##gemm_(adjoint_a ? adjoint : "N", adjoint_b ? adjoint : "N", &m_, &n_, &k_, &alpha_, a, &lda_, b, &ldb_, \
                  &beta_, c, &ldc_, 1, 1);                                                                          \
  }                                                                                                                 \
  /* b := L^-1 b, m x n */                                                                                          \
  inline void solve_lower(int64_t m, int64_t n, const E* l, int64_t ldl, E* b, int64_t ldb) {                       \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), ldl_ = BlasInt(ldl), ldb_ = BlasInt(ldb);                       \
    const E one = 1;                                                                                                \
    prefix##trsm_("L", "L", "N", "N", &m_, &n_, &one, l, &ldl_, b, &ldb_, 1, 1, 1, 1);                              \
  }                                                                                                                 \
  /* b := U^-1 b or U^-H b, m x n, U the upper triangle of u */                                                     \
  inline void solve_upper(bool take_adjoint, int64_t m, int64_t n, const E* u, int64_t ldu, E* b, int64_t ldb) {    \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), ldu_ = BlasInt(ldu), ldb_ = BlasInt(ldb);                       \
    const E one = 1;                                                                                                \
    prefix##trsm_("L", "U", take_adjoint ? adjoint : "N", "N", &m_, &n_, &one, u, &ldu_, b, &ldb_, 1, 1, 1, 1);     \
  }                                                                                                                 \
  /* QR of an n x n triangle on top of b, m x n; t: n x n, tau on its diagonal. See stacked_qr.h */                 \
  inline void tpqrt2(int64_t m, int64_t n, E* r, int64_t ldr, E* b, int64_t ldb, E* t, int64_t ldt) {               \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), l = 0, ldr_ = BlasInt(ldr), ldb_ = BlasInt(ldb),                \
                  ldt_ = BlasInt(ldt);                                                                              \
    BlasInt info = 0;                                                                                               \
    prefix##tpqrt2_(&m_, &n_, &l, r, &ldr_, b, &ldb_, t, &ldt_, &info);                                             \
  }                                                                                                                 \
  inline void geqrf(int64_t m, int64_t n, E* a, int64_t lda, E* tau, E* work, int64_t work_size) {                  \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), lda_ = BlasInt(lda), size = BlasInt(work_size);                 \
    BlasInt info = 0;                                                                                               \
    prefix##geqrf_(&m_, &n_, a, &lda_, tau, work, &size, &info);                                                    \
  }                                                                                                                 \
  /* t: k x k, of the block reflector of the columns of v, n x k */                                                 \
  inline void larft(int64_t n, int64_t k, const E* v, int64_t ldv, const E* tau, E* t, int64_t ldt) {               \
    const BlasInt n_ = BlasInt(n), k_ = BlasInt(k), ldv_ = BlasInt(ldv), ldt_ = BlasInt(ldt);                       \
    prefix##larft_("F", "C", &n_, &k_, v, &ldv_, tau, t, &ldt_, 1, 1);                                              \
  }                                                                                                                 \
  /* c, m x n, multiplied from the left by it or its adjoint; work: n x k */                                        \
  inline void larfb(bool take_adjoint, int64_t m, int64_t n, int64_t k, const E* v, int64_t ldv, const E* t,        \
                    int64_t ldt, E* c, int64_t ldc, E* work) {                                                      \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), k_ = BlasInt(k), ldv_ = BlasInt(ldv), ldt_ = BlasInt(ldt),      \
                  ldc_ = BlasInt(ldc);                                                                              \
    prefix##larfb_("L", take_adjoint ? adjoint : "N", "F", "C", &m_, &n_, &k_, v, &ldv_, t, &ldt_, c, &ldc_, work,  \
                   &n_, 1, 1, 1, 1);                                                                                \
  }                                                                                                                 \
  /* upper := R, a = R^H R by its upper triangle; false: not definite */                                            \
  inline bool cholesky(int64_t n, E* a, int64_t lda) {                                                              \
    const BlasInt n_ = BlasInt(n), lda_ = BlasInt(lda);                                                             \
    BlasInt info = 0;                                                                                               \
    prefix##potrf_("U", &n_, a, &lda_, &info, 1);                                                                   \
    return info == 0;                                                                                               \
  }
SVD_DEFINE_BLAS(s, float, "T")
SVD_DEFINE_BLAS(d, double, "T")
SVD_DEFINE_BLAS(c, ComplexFloat, "C")
SVD_DEFINE_BLAS(z, Complex, "C")
#undef SVD_DEFINE_BLAS

// The upper triangle of c, n x n, := a^H a + beta c, a: k x n.
inline void gram(int64_t n, int64_t k, const double* a, int64_t lda, double* c, int64_t ldc, double beta = 0) {
  const BlasInt n_ = BlasInt(n), k_ = BlasInt(k), lda_ = BlasInt(lda), ldc_ = BlasInt(ldc);
  const double one = 1;
  dsyrk_("U", "T", &n_, &k_, &one, a, &lda_, &beta, c, &ldc_, 1, 1);
}
inline void gram(int64_t n, int64_t k, const Complex* a, int64_t lda, Complex* c, int64_t ldc, double beta = 0) {
  const BlasInt n_ = BlasInt(n), k_ = BlasInt(k), lda_ = BlasInt(lda), ldc_ = BlasInt(ldc);
  const double one = 1;
  zherk_("U", "C", &n_, &k_, &one, a, &lda_, &beta, c, &ldc_, 1, 1);
}

// OpenBLAS 0.3.21 reads up to four elements beyond the result of its symmetric product on processors unknown to it
// (kernels for Prescott, one thread). W of latrd() and tau of tridiagonalize() are such results: their arrays have this
// many elements more than LAPACK asks for.
inline constexpr int64_t kReadBeyond = 8;
#define SVD_DEFINE_TRIDIAGONAL(prefix, symmetric, E)                                                            \
  /* A panel of nb columns of the reduction of a's lower triangle, n x n, to a tridiagonal matrix; w: n x nb */ \
  inline void latrd(int64_t n, int64_t nb, E* a, int64_t lda, RealNumber<E>* e, E* tau, E* w, int64_t ldw) {    \
    const BlasInt n_ = BlasInt(n), nb_ = BlasInt(nb), lda_ = BlasInt(lda), ldw_ = BlasInt(ldw);                 \
    prefix##latrd_("L", &n_, &nb_, a, &lda_, e, tau, w, &ldw_, 1);                                              \
  }                                                                                                             \
  /* all of it, without blocking */                                                                             \
  inline void tridiagonalize(int64_t n, E* a, int64_t lda, RealNumber<E>* d, RealNumber<E>* e, E* tau) {        \
    const BlasInt n_ = BlasInt(n), lda_ = BlasInt(lda);                                                         \
    BlasInt info = 0;                                                                                           \
    prefix##symmetric##td2_("L", &n_, a, &lda_, d, e, tau, &info, 1);                                           \
  }
SVD_DEFINE_TRIDIAGONAL(s, sy, float)
SVD_DEFINE_TRIDIAGONAL(d, sy, double)
SVD_DEFINE_TRIDIAGONAL(c, he, ComplexFloat)
SVD_DEFINE_TRIDIAGONAL(z, he, Complex)
#undef SVD_DEFINE_TRIDIAGONAL

}  // namespace blas
}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_BLAS_H_
