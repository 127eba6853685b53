// The Hessenberg form of a general matrix in panels, spread over threads.
//
//   A = Q H Q^H,   H zero below its first subdiagonal
// Method: of each panel of columns, A := (I - V T V^H)^H A (I - V T V^H). The panel needs A v of each of its reflectors
// (level 2, by ranges of rows), all other columns two products (level 3, by ranges of columns).
// Sources: Golub and Van Loan, Matrix Computations (2013), section 7.4; Quintana-Orti and van de Geijn, ACM Trans.
// Math. Softw. 32 (2006) 180-194.
// Cost: 5/3 n^3 multiplications and additions, a fifth of them level 2; 2/3 n^3 for Q.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_H_

#include <complex>
#include <functional>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// a := H, with the reflectors below its subdiagonal and in tau (n numbers). Rows and columns low .. high - 1 are
// reduced; outside of them a is triangular.
template <class E>
void reduce_to_hessenberg(const LargeThreads& threads, large::LargeView<E> a, int64_t low, int64_t high, E* tau,
                          const std::function<void(double)>& progress);

// q := Q, n x n, from the reflectors in a.
template <class E>
void hessenberg_basis(const LargeThreads& threads, large::LargeView<E> a, int64_t low, int64_t high, const E* tau,
                      large::LargeView<E> q);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_HESSENBERG_H_
