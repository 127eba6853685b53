// Householder bidiagonalization of a square matrix, values only: B = U^H A V, B upper bidiagonal, one matrix a team.
//
//   in:   A (k x k), overwritten
//   out:  q_i = |b_ii|^2, i = 0 .. k - 1;   e_i = |b_{i,i+1}|^2, i = 0 .. k - 2; every member of the team has them
//
// dqds and the tridiagonal matrix B^T B are made of the squares, and they are the squared norms that the reflectors
// need anyway. No square root is taken for them, and the phases of a complex B do not matter. Step j: a reflector from
// the left zeroes A(j+1 :, j); one from the right zeroes A(j, j+2 :).
// Source: Golub and Van Loan, 3rd ed., algorithm 5.4.2; Capozzoli et al., Electronics 2025, 14(16), 3217, section 2.3,
// eq. (1), (4) - (6). Their algorithm 1 joins both updates of a step into one rank-two update to save memory traffic.
// Here a step's matrix stays in registers or in the first-level cache, and the two updates are made one after the
// other.
//
// Cost: 8/3 k^3 flops real (4 x complex), 2k - 3 reflectors.
//
// Accuracy: backward stable; |s(B) - s(A)| <= c k u s_max with c of order one in practice.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_BIDIAGONALIZE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_BIDIAGONALIZE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_BIDIAGONALIZE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_BIDIAGONALIZE_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/team.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

template <class Team, class A, class Size>
SVD_HD void bidiagonalize(const Team& team, A a, Size k, typename A::Element::Lane* q, typename A::Element::Lane* e) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  SVD_UNROLL for (int j = 0; j < k - 1; ++j) {
    // From the left, x = A(j:, j): A(j:, c) -= u (g u^H A(j:, c)).
    const Reflector<E> left = column_reflector(a, k, j);
    q[j] = left.norm2;
    reflect_columns(team, a, k, k, j, left);
    if (j + 2 < k) {
      // From the right, x = A(j, j+1:)^H: A(r, j+1:) -= (g A(r, j+1:) u) u^H.
      const auto x = [&](int i) SVD_LAMBDA { return a(j, j + 1 + i); };
      const Reflector<E> h = make_reflector<E>(k - 1 - j, x);
      e[j] = h.norm2;
      team.once([&]() SVD_LAMBDA { a(j, j + 1) = h.u0; });
      team.for_each(j + 1, k, [&](int r) SVD_LAMBDA {
        // With u = x^T (not conjugated): row r loses g (u^H row_r) u, which is the same reflection.
        const auto y = [&](int i) SVD_LAMBDA { return a(r, j + 1 + i); };
        const E w = scaled(inner_product<E>(k - 1 - j, x, y), h.g);
        SVD_UNROLL for (int c = j + 1; c < k; ++c) a(r, c) = subtract_product(a(r, c), a(j, c), w);
      });
    } else {
      e[j] = add_square(Lane(0), a(j, j + 1));
    }
  }
  q[k - 1] = add_square(Lane(0), a(k - 1, k - 1));
}

SVD_KERNEL_END

#endif
