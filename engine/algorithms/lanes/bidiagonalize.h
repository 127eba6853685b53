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
// Where a thread of a GPU cannot hold A, threads share it (blocks/bidiagonalize_in_registers.h). Sums are trees there,
// whatever their number of terms, so that their order does not depend on which thread has which term. kPartials: of the
// trees.
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

// Whether a thread of a GPU holds a k x k matrix alone: no more than fit its registers beside what the kernel needs.
template <class E>
SVD_HD constexpr bool fits_one_thread(int k) {
  constexpr int kLargestBytes = 6 * 6 * 16;
  return k <= 8 && k * k * E::kComponents * static_cast<int>(sizeof(typename E::Scalar)) <= kLargestBytes;
}

// The sums of the reflectors of a k x k matrix.
template <class E, class Size, int kPartials>
struct BidiagonalSums {
  using Lane = typename E::Lane;
  Size k;

  template <class Sum, class Add>
  SVD_HD Sum sum(int n, const Sum& zero, Add add) const {
    if (fits_one_thread<E>(k)) return sum_of(n, zero, add);
    return tree_sum_of<kPartials>(n, zero, add);
  }
  // x(0) .. x(n - 1), y(0) .. y(n - 1): elements.
  template <class Get>
  SVD_HD Reflector<E> reflector(int n, Get x) const {
    return reflector_of<E>(sum(n, Lane(0), [&](Lane s, int i) SVD_LAMBDA { return add_square(s, E(x(i))); }), x(0));
  }
  template <class GetX, class GetY>
  SVD_HD E product(int n, GetX x, GetY y) const {
    return sum(n, zero_element<E>(), [&](const E& s, int i) SVD_LAMBDA { return add_product(s, E(x(i)), E(y(i))); });
  }
};

template <int kPartials = 8, class Team, class A, class Size>
SVD_HD void bidiagonalize(const Team& team, A a, Size k, typename A::Element::Lane* q, typename A::Element::Lane* e) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  const BidiagonalSums<E, Size, kPartials> sums{k};
  SVD_UNROLL for (int j = 0; j < k - 1; ++j) {
    // From the left, u = A(j:, j): A(j:, c) -= u (g u^H A(j:, c)).
    const auto u = [&](int i) SVD_LAMBDA { return a(j + i, j); };
    const Reflector<E> left = sums.reflector(k - j, u);
    q[j] = left.norm2;
    team.once([&]() SVD_LAMBDA { a(j, j) = left.u0; });
    team.for_each(j + 1, k, [&](int c) SVD_LAMBDA {
      const auto y = [&](int i) SVD_LAMBDA { return a(j + i, c); };
      const E w = scaled(sums.product(k - j, u, y), left.g);
      SVD_UNROLL for (int i = j; i < k; ++i) a(i, c) = subtract_product(a(i, c), a(i, j), w);
    });
    if (j + 2 < k) {
      // From the right, u = A(j, j+1:)^T: A(r, j+1:) -= (g A(r, j+1:) conj(u)) u^T.
      const auto u = [&](int i) SVD_LAMBDA { return a(j, j + 1 + i); };
      const Reflector<E> right = sums.reflector(k - 1 - j, u);
      e[j] = right.norm2;
      team.once([&]() SVD_LAMBDA { a(j, j + 1) = right.u0; });
      team.for_each(j + 1, k, [&](int r) SVD_LAMBDA {
        const auto y = [&](int i) SVD_LAMBDA { return a(r, j + 1 + i); };
        const E w = scaled(sums.product(k - 1 - j, u, y), right.g);
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
