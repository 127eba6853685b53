// QR of a triangle on top of a block of rows, and multiplication by its Q. It makes a tall matrix a triangle, block by
// block.
//
//   factor   [R; B] = Q [R'; 0]          n + b rows, n columns; R an upper triangle
//   expand   [C'; O] = Q [C; 0]
//
// Q = H_1 .. H_n, H_j = I - tau_j [e_j; v_j] [e_j; v_j]^H, as LAPACK's tpqrt (L = 0) has it: a reflector touches one
// row of the triangle and all of the block. Products of reflectors are I - V T V^H, of which not T but its inverse is
// formed. It is the strict upper triangle of V^H V with 1 / tau on the diagonal. This is the UT transform of Joffrain,
// Low, Quintana-Orti, van de Geijn and Van Zee (ACM Trans. Math. Softw. 32 (2006) 169-179). T^-1 + T^-H = V^H V makes
// the product unitary, so the real part of 1 / tau is taken from V^H V: then it is for rounded v_j, too.
// The QR is backward stable. Columns sorted by norm and larger rows first make it so row by row (Cox and Higham,
// Numerical Analysis 1997, Pitman Research Notes 380, 57-73).
// Cost: 2 b n^2 and 3 b n^2 operations.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_STACKED_QR_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_STACKED_QR_H_

#include <cstddef>
#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// Scratch for n columns. Thread safety: none; `threads`, which it refers to, compute its products.
template <class E>
class StackedQr {
 public:
  using View = large::LargeView<E>;

  StackedQr(const LargeThreads& threads, int64_t n);
  static uint64_t scratch_bytes(int64_t n);

  // [in,out] r n x n: R, then R'; below its diagonal it is neither read nor written. b: B, then the v_j as columns.
  // tau: n numbers.
  void factor(View r, View b, E* tau);
  // v, tau: what factor() left. c n x n: [in,out] C, then C'. o: [out] of v's shape.
  void expand(View v, const E* tau, View c, View o);

 private:
  void factor_panel(View r, View b, E* tau, int64_t first, int64_t last);
  void update(View r, View b, int64_t first, int64_t last, int64_t from, int64_t to, const E* inverse, E* work) const;
  void invert_t(View v, const E* tau, E* inverse) const;

  const LargeThreads& threads_;
  const int64_t n_;
  AlignedArray<E> inverse_, work_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_STACKED_QR_H_
