// Hessenberg form: A = Z H Z^H, H zero below its first subdiagonal, Z unitary. A team has a matrix in each
// lane.
//
//   for j = 0 .. k - 3:   R = I - g u u^H takes A(j+1 :, j) to (beta, 0, .., 0)^T;   A := R A R,   Z := Z R
//
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., algorithm 7.4.2; reflectors: tall/householder.h.
// Cost: 10/3 k^3 flops (complex: four times), Z 4/3 k^3 more, k - 2 reflectors.
// Accuracy: backward stable.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_HESSENBERG_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_HESSENBERG_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_HESSENBERG_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_HESSENBERG_H_
#endif

#include "engine/algorithms/general/complex_lane.h"
#include "engine/algorithms/tall/householder.h"
#include "engine/core/team.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// row(c) -= (row u) g u^H for the row r of `a`; u lies in column j of h, from row j + 1 on.
template <class A, class B, class Size>
SVD_HD void reflect_row(A a, Size k, int r, B h, int j, typename A::Element::Lane g) {
  using E = typename A::Element;
  const int n = k - 1 - j;
  // Conjugated, so that w = g conj(row u): row -= conj(w) u^H.
  const E w = scaled(inner_product<E>(
                         n, [&](int i) SVD_LAMBDA { return a(r, j + 1 + i); },
                         [&](int i) SVD_LAMBDA { return conj(h(j + 1 + i, j)); }),
                     g);
  SVD_UNROLL for (int c = j + 1; c < k; ++c) a(r, c) = subtract_product(a(r, c), conj(h(c, j)), conj(w));
}

template <class Team, class Z, class Size>
SVD_HD void set_identity(const Team& team, Z z, Size k) {
  using E = typename Z::Element;
  team.for_each_line(0, k, [&](int j) SVD_LAMBDA {
    SVD_UNROLL for (int i = 0; i < k; ++i) z(i, j) = zero_element<E>();
    z(j, j).re = typename E::Lane(1);
  });
}

// z: k x k, written; or NoMatrix.
template <class Team, class A, class Z, class Size>
SVD_HD void reduce_to_hessenberg(const Team& team, A h, Z z, Size k) {
  using E = typename A::Element;
  if constexpr (kIsWanted<Z>) set_identity(team, z, k);
  SVD_UNROLL for (int j = 0; j < k - 2; ++j) {
    const auto x = [&](int i) SVD_LAMBDA { return h(j + 1 + i, j); };
    const Reflector<E> r = make_reflector<E>(k - 1 - j, x);
    team.once([&]() SVD_LAMBDA { h(j + 1, j) = r.u0; });
    // As reflect_rows(), by which 8 x 8 c64 matrices take 11 % longer on a GPU.
    team.for_each_line(j + 1, k, [&](int c) SVD_LAMBDA {
      const auto y = [&](int i) SVD_LAMBDA { return h(j + 1 + i, c); };
      const E w = scaled(inner_product<E>(k - 1 - j, x, y), r.g);
      SVD_UNROLL for (int i = j + 1; i < k; ++i) h(i, c) = subtract_product(h(i, c), h(i, j), w);
    });
    // Rows of h, then those of z.
    team.for_each_line(0, kIsWanted<Z> ? 2 * k : static_cast<int>(k), [&](int i) SVD_LAMBDA {
      if (i < k) {
        reflect_row(h, k, i, h, j, r.g);
      } else if constexpr (kIsWanted<Z>) {
        reflect_row(z, k, i - k, h, j, r.g);
      }
    });
    team.for_each(j + 1, k, [&](int i) SVD_LAMBDA { h(i, j) = i == j + 1 ? r.beta : zero_element<E>(); });
  }
}

SVD_KERNEL_END

#endif
