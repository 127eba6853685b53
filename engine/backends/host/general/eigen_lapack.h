// The LAPACK and BLAS routines that general eigenproblems use, by overloads for double and std::complex<double>.
//
// Indices are from 0 on, and ranges end before their last number. See blas.h for where the symbols come from.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_EIGEN_LAPACK_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_EIGEN_LAPACK_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

extern "C" {
#define SVD_DECLARE_EIGEN(prefix, E)                                                                                \
  void prefix##gemv_(const char* op, const BlasInt* m, const BlasInt* n, const E* alpha, const E* a,                \
                     const BlasInt* lda, const E* x, const BlasInt* incx, const E* beta, E* y, const BlasInt* incy, \
                     size_t);                                                                                       \
  void prefix##larfg_(const BlasInt* n, E* alpha, E* x, const BlasInt* incx, E* tau);                               \
  void prefix##gebal_(const char* job, const BlasInt* n, E* a, const BlasInt* lda, BlasInt* ilo, BlasInt* ihi,      \
                      double* scale, BlasInt* info, size_t);
SVD_DECLARE_EIGEN(d, double)
SVD_DECLARE_EIGEN(z, Complex)
#undef SVD_DECLARE_EIGEN
void dlahqr_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ilo, const BlasInt* ihi,
             double* h, const BlasInt* ldh, double* wr, double* wi, const BlasInt* iloz, const BlasInt* ihiz, double* z,
             const BlasInt* ldz, BlasInt* info);
void zlahqr_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ilo, const BlasInt* ihi,
             Complex* h, const BlasInt* ldh, Complex* w, const BlasInt* iloz, const BlasInt* ihiz, Complex* z,
             const BlasInt* ldz, BlasInt* info);
void dlaqr4_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ilo, const BlasInt* ihi,
             double* h, const BlasInt* ldh, double* wr, double* wi, const BlasInt* iloz, const BlasInt* ihiz, double* z,
             const BlasInt* ldz, double* work, const BlasInt* lwork, BlasInt* info);
void zlaqr4_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ilo, const BlasInt* ihi,
             Complex* h, const BlasInt* ldh, Complex* w, const BlasInt* iloz, const BlasInt* ihiz, Complex* z,
             const BlasInt* ldz, Complex* work, const BlasInt* lwork, BlasInt* info);
void dlaqr3_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ktop, const BlasInt* kbot,
             const BlasInt* nw, double* h, const BlasInt* ldh, const BlasInt* iloz, const BlasInt* ihiz, double* z,
             const BlasInt* ldz, BlasInt* ns, BlasInt* nd, double* sr, double* si, double* v, const BlasInt* ldv,
             const BlasInt* nh, double* t, const BlasInt* ldt, const BlasInt* nv, double* wv, const BlasInt* ldwv,
             double* work, const BlasInt* lwork);
void zlaqr3_(const BlasInt* wantt, const BlasInt* wantz, const BlasInt* n, const BlasInt* ktop, const BlasInt* kbot,
             const BlasInt* nw, Complex* h, const BlasInt* ldh, const BlasInt* iloz, const BlasInt* ihiz, Complex* z,
             const BlasInt* ldz, BlasInt* ns, BlasInt* nd, Complex* sh, Complex* v, const BlasInt* ldv,
             const BlasInt* nh, Complex* t, const BlasInt* ldt, const BlasInt* nv, Complex* wv, const BlasInt* ldwv,
             Complex* work, const BlasInt* lwork);
void zgetrf_(const BlasInt* m, const BlasInt* n, Complex* a, const BlasInt* lda, BlasInt* pivots, BlasInt* info);
void dlanv2_(double* a, double* b, double* c, double* d, double* rt1r, double* rt1i, double* rt2r, double* rt2i,
             double* cs, double* sn);
void dlaln2_(const BlasInt* ltrans, const BlasInt* na, const BlasInt* nw, const double* smin, const double* ca,
             const double* a, const BlasInt* lda, const double* d1, const double* d2, const double* b,
             const BlasInt* ldb, const double* wr, const double* wi, double* x, const BlasInt* ldx, double* scale,
             double* xnorm, BlasInt* info);
}

namespace blas {

// P a = L U in the place of a, m x n, m >= n; row i changed places with row pivots[i]. False: U has a zero on its diagonal.
inline bool getrf(int64_t m, int64_t n, Complex* a, int64_t lda, int64_t* pivots) {
  const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), lda_ = BlasInt(lda);
  BlasInt info = 0;
  std::vector<BlasInt> rows(static_cast<size_t>(n));
  zgetrf_(&m_, &n_, a, &lda_, rows.data(), &info);
  std::transform(rows.begin(), rows.end(), pivots, [](BlasInt row) { return int64_t{row} - 1; });
  return info == 0;
}
// b := L^-1 b or L^-H b, m x n, L the lower triangle of l with ones on its diagonal
inline void solve_unit_lower(bool take_adjoint, int64_t m, int64_t n, const Complex* l, int64_t ldl, Complex* b,
                             int64_t ldb) {
  const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), ldl_ = BlasInt(ldl), ldb_ = BlasInt(ldb);
  const Complex one = 1;
  ztrsm_("L", "L", take_adjoint ? "C" : "N", "U", &m_, &n_, &one, l, &ldl_, b, &ldb_, 1, 1, 1, 1);
}

#define SVD_DEFINE_EIGEN(prefix, E, adjoint)                                                                     \
  /* y := alpha op(a) x + beta y, a: m x n */                                                                    \
  inline void gemv(bool take_adjoint, int64_t m, int64_t n, double alpha, const E* a, int64_t lda, const E* x,   \
                   double beta, E* y) {                                                                          \
    const BlasInt m_ = BlasInt(m), n_ = BlasInt(n), lda_ = BlasInt(lda), one = 1;                                \
    const E alpha_ = alpha, beta_ = beta;                                                                        \
    if (m > 0 && n > 0) {                                                                                        \
      prefix##gemv_(take_adjoint ? adjoint : "N", &m_, &n_, &alpha_, a, &lda_, x, &one, &beta_, y, &one, 1);     \
    }                                                                                                            \
  }                                                                                                              \
  /* (alpha; x), n numbers, := (beta; v without its leading one); returns tau */                                 \
  inline E larfg(int64_t n, E& alpha, E* x) {                                                                    \
    const BlasInt n_ = BlasInt(n), one = 1;                                                                      \
    E tau = 0;                                                                                                   \
    prefix##larfg_(&n_, &alpha, x, &one, &tau);                                                                  \
    return tau;                                                                                                  \
  }                                                                                                              \
  /* a := D^-1 P^T a P D; rows and columns low .. high - 1 are what is not triangular already. LAPACK's scale */ \
  /* Not scaled: D = I. */                                                                                       \
  inline void balance(bool scaled, int64_t n, E* a, int64_t lda, int64_t& low, int64_t& high, double* scale) {   \
    const BlasInt n_ = BlasInt(n), lda_ = BlasInt(lda);                                                          \
    BlasInt ilo = 1, ihi = n_, info = 0;                                                                         \
    prefix##gebal_(scaled ? "B" : "P", &n_, a, &lda_, &ilo, &ihi, scale, &info, 1);                              \
    low = ilo - 1;                                                                                               \
    high = ihi;                                                                                                  \
  }
SVD_DEFINE_EIGEN(d, double, "T")
SVD_DEFINE_EIGEN(z, Complex, "C")
#undef SVD_DEFINE_EIGEN

inline void join(const std::vector<double>& parts, int64_t n, Complex* w) {
  for (int64_t i = 0; i < n; ++i) w[i] = {parts[i], parts[n + i]};
}

// h, n x n Hessenberg, := its Schur form (whole), or what is left after its eigenvalues (not whole), with z := z Q
// where z is given. The number of leading values that did not converge.
inline int64_t lahqr(bool whole, int64_t n, double* h, int64_t ldh, Complex* w, double* z, int64_t ldz) {
  const BlasInt t = whole, wantz = z != nullptr, n_ = BlasInt(n), ldh_ = BlasInt(ldh), ldz_ = BlasInt(ldz), one = 1;
  BlasInt info = 0;
  std::vector<double> parts(2 * n);
  dlahqr_(&t, &wantz, &n_, &one, &n_, h, &ldh_, parts.data(), parts.data() + n, &one, &n_, z, &ldz_, &info);
  join(parts, n, w);
  return info;
}
inline int64_t lahqr(bool whole, int64_t n, Complex* h, int64_t ldh, Complex* w, Complex* z, int64_t ldz) {
  const BlasInt t = whole, wantz = z != nullptr, n_ = BlasInt(n), ldh_ = BlasInt(ldh), ldz_ = BlasInt(ldz), one = 1;
  BlasInt info = 0;
  zlahqr_(&t, &wantz, &n_, &one, &n_, h, &ldh_, w, &one, &n_, z, &ldz_, &info);
  return info;
}

// The same for larger n, values alone.
inline int64_t laqr4(int64_t n, double* h, int64_t ldh, Complex* w) {
  const BlasInt no = 0, n_ = BlasInt(n), ldh_ = BlasInt(ldh), one = 1, query = -1;
  BlasInt info = 0;
  double z = 0, size = 0;
  std::vector<double> parts(2 * n);
  double *const wr = parts.data(), *const wi = wr + n;
  dlaqr4_(&no, &no, &n_, &one, &n_, h, &ldh_, wr, wi, &one, &one, &z, &one, &size, &query, &info);
  std::vector<double> work(static_cast<size_t>(size) + kReadBeyond);
  const BlasInt lwork = BlasInt(size);
  dlaqr4_(&no, &no, &n_, &one, &n_, h, &ldh_, wr, wi, &one, &one, &z, &one, work.data(), &lwork, &info);
  join(parts, n, w);
  return info;
}
inline int64_t laqr4(int64_t n, Complex* h, int64_t ldh, Complex* w) {
  const BlasInt no = 0, n_ = BlasInt(n), ldh_ = BlasInt(ldh), one = 1, query = -1;
  BlasInt info = 0;
  Complex z = 0, size = 0;
  zlaqr4_(&no, &no, &n_, &one, &n_, h, &ldh_, w, &one, &one, &z, &one, &size, &query, &info);
  std::vector<Complex> work(static_cast<size_t>(size.real()) + kReadBeyond);
  const BlasInt lwork = BlasInt(size.real());
  zlaqr4_(&no, &no, &n_, &one, &n_, h, &ldh_, w, &one, &one, &z, &one, work.data(), &lwork, &info);
  return info;
}

// Arrays of aggressive early deflation, each of width^2 numbers.
template <class E>
struct DeflationWork {
  E *v = nullptr, *t = nullptr, *wv = nullptr;
  std::vector<E> work;
};

// Aggressive early deflation of the last `width` of n rows of h, with one row in front of them or none. The last
// `deflated` values have converged, `shifts` before these are shifts; work.v: what the window was multiplied by.
inline void laqr3(int64_t n, int64_t width, double* h, int64_t ldh, Complex* w, DeflationWork<double>& own,
                  int64_t& shifts, int64_t& deflated) {
  const BlasInt no = 0, n_ = BlasInt(n), nw = BlasInt(width), ldh_ = BlasInt(ldh), one = 1, query = -1;
  BlasInt ns = 0, nd = 0;
  double z = 0, size = 0;
  std::vector<double> parts(2 * n);
  const auto call = [&](double* work, const BlasInt* lwork) {
    dlaqr3_(&no, &no, &n_, &one, &n_, &nw, h, &ldh_, &one, &one, &z, &one, &ns, &nd, parts.data(), parts.data() + n,
            own.v, &nw, &nw, own.t, &nw, &nw, own.wv, &nw, work, lwork);
  };
  call(&size, &query);
  own.work.resize(std::max(own.work.size(), static_cast<size_t>(size) + kReadBeyond));
  const BlasInt lwork = BlasInt(size);
  call(own.work.data(), &lwork);
  join(parts, n, w);
  shifts = ns;
  deflated = nd;
}
inline void laqr3(int64_t n, int64_t width, Complex* h, int64_t ldh, Complex* w, DeflationWork<Complex>& own,
                  int64_t& shifts, int64_t& deflated) {
  const BlasInt no = 0, n_ = BlasInt(n), nw = BlasInt(width), ldh_ = BlasInt(ldh), one = 1, query = -1;
  BlasInt ns = 0, nd = 0;
  Complex z = 0, size = 0;
  const auto call = [&](Complex* work, const BlasInt* lwork) {
    zlaqr3_(&no, &no, &n_, &one, &n_, &nw, h, &ldh_, &one, &one, &z, &one, &ns, &nd, w, own.v, &nw, &nw, own.t, &nw,
            &nw, own.wv, &nw, work, lwork);
  };
  call(&size, &query);
  own.work.resize(std::max(own.work.size(), static_cast<size_t>(size.real()) + kReadBeyond));
  const BlasInt lwork = BlasInt(size.real());
  call(own.work.data(), &lwork);
  shifts = ns;
  deflated = nd;
}

}  // namespace blas
}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_EIGEN_LAPACK_H_
