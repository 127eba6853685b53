// Householder tridiagonalization of one Hermitian matrix of moderate order, n x n, as vector code for the processor's
// instruction set:
//
//   A = Q T Q^H, T real symmetric tridiagonal
//   step j:  H_j of column j below the diagonal;  x := tau A v;  w := x - tau / 2 (x^H v) v;  A := A - v w^H - w v^H
//
// The update of a step waits for the next one (reduction_pass.h). A pass reads and writes the lower triangle, along columns.
// Columns begin with their diagonal block, of as many rows as a vector has lanes, so both triangles of these are there.
// Source: Golub and Van Loan, 3rd ed., section 8.3.1.
//
// Cost: 4/3 n^3 flops real (4 x complex), and the blocks. Accuracy: backward stable, |A - Q T Q^H|_F <= c n u |A|_F with c of order one.
// Elements of A are at most about one. A column whose rest has a negligible square (FloatTraits) loses it.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_REDUCTION_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_REDUCTION_H_

#include "engine/backends/host/forms/bidiagonal_reduction.h"

namespace svdserve::host {

// Columns, planes and memory as BidiagonalReduction has them. T: float or double.
template <class T>
struct TridiagonalReduction {
  int n = 0;
  int planes = 1;
  int ld = 0;
  T* a =
      nullptr;  // [in,out] A from the diagonal block of kReductionAlignment bytes of each column on; then the reflectors as LAPACK's hetrd leaves them, but for the subdiagonal
  T* d = nullptr;     // [out] n, the diagonal of T
  T* e = nullptr;     // [out] n - 1, its subdiagonal
  T* tau = nullptr;   // [out] n - 1 of `planes` numbers each
  T* work = nullptr;  // reduction_work() numbers
};

void tridiagonalize(const TridiagonalReduction<float>& task);
void tridiagonalize(const TridiagonalReduction<double>& task);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_TRIDIAGONAL_REDUCTION_H_
