// LAPACK's ?geev, the peer of general eigenproblems, as Fortran has it.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_GEEV_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_GEEV_H_

#include <complex>
#include <cstddef>

extern "C" {
void dgeev_(const char*, const char*, const int* n, double* a, const int* lda, double* wr, double* wi, double* vl,
            const int* ldvl, double* vr, const int* ldvr, double* work, const int* lwork, int* info, size_t, size_t);
void zgeev_(const char*, const char*, const int* n, std::complex<double>* a, const int* lda, std::complex<double>* w,
            std::complex<double>* vl, const int* ldvl, std::complex<double>* vr, const int* ldvr,
            std::complex<double>* work, const int* lwork, double* rwork, int* info, size_t, size_t);
}

#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_GEEV_H_
