// QR factorizations that reduce a matrix to the k x k upper triangular R with the same singular values; one matrix (or
// one tile) a team.
//
//   tall_qr      A (rows x k) = Q R
//   join_qr      [R_1; R_2] (2k x k, both upper triangular) = Q R: a node of the tall-skinny QR tree
//   keep_..      the same, keeping Q; apply_.. multiplies by it
//   pivoted_qr   A P = Q R (k x k) with the largest remaining column first
//
// R is left in the upper triangle of the first argument; what is below it is not cleared. Columns may
// be scaled by powers of two, each by its own: column j stands for 2^exponents[j] a(:, j). A reflector is made from
// one column, so the scales of the others do not matter, and R's column j carries the scale of A's. pivoted_qr takes
// the rest of a column for zero once it is rounding error of the column itself, |a(j:, c)| <= 4 sqrt(k) u times the
// column's size at the start. Dependent columns then give rows of zeros instead of noise, which Jacobi would
// orthogonalize for ever.
// Sources: Golub and Van Loan, 3rd ed., algorithms 5.2.1 and 5.4.1; tree: Demmel, Grigori, Hoemmen, Langou, SIAM J.
// Sci. Comput. 34 (2012) A206-A239; pivoting before Jacobi: Drmac and Veselic, SIAM J. Matrix Anal. Appl. 29 (2008)
// 1322-1342.
//
// Cost: 2 rows k^2, 2/3 k^3 and 4/3 k^3 flops (real).
//
// Accuracy: column-wise backward stable, |delta a_j| <= c u |a_j|, whatever the columns' scales.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_TALL_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_TALL_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_TALL_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_TALL_QR_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/scaling.h"
#include "engine/core/team.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// done(j, h): what becomes of the diagonal, which holds u_0 of reflector j when it is called, for one of the team.
template <class Team, class A, class Size, class Done>
SVD_HD void tall_qr(const Team& team, A a, int rows, Size k, Done done) {
  using E = typename A::Element;
  for (int j = 0; j < k && j < rows - 1; ++j) {
    const Reflector<E> h = column_reflector(a, rows, j);
    reflect_columns(team, a, rows, k, j, h);
    team.once([&]() SVD_LAMBDA { done(j, h); });
  }
}
template <class Team, class A, class Size>
SVD_HD void tall_qr(const Team& team, A a, int rows, Size k) {
  using E = typename A::Element;
  tall_qr(team, a, rows, k, [&](int j, const Reflector<E>& h) SVD_LAMBDA { a(j, j) = h.beta; });
}

// The factor that tall_qr leaves when `done` keeps what it is told: u_0 stays on the diagonal of a (rows > k).
//   g: k lanes; diagonal: k elements, that of R. The team shares both.
template <class Team, class A, class Size>
SVD_HD void keep_tall_qr(const Team& team, A a, int rows, Size k, typename A::Element::Lane* g,
                         typename A::Element* diagonal) {
  using E = typename A::Element;
  tall_qr(team, a, rows, k, [&](int j, const Reflector<E>& h) SVD_LAMBDA {
    g[j] = h.g;
    diagonal[j] = h.beta;
  });
}

// y := Q y for the factor of keep_tall_qr; y is rows x columns. Every column by itself.
template <class Team, class A, class Y>
SVD_HD void apply_tall_q(const Team& team, A a, int rows, int k, const typename A::Element::Lane* g, Y y, int columns) {
  using E = typename A::Element;
  team.for_each(0, columns, [&](int c) SVD_LAMBDA {
    for (int j = k - 1; j >= 0; --j) {
      const auto u = [&](int i) SVD_LAMBDA { return a(j + i, j); };
      const auto x = [&](int i) SVD_LAMBDA { return y(j + i, c); };
      const E w = scaled(inner_product<E>(rows - j, u, x), g[j]);
      for (int i = j; i < rows; ++i) y(i, c) = subtract_product(y(i, c), a(i, j), w);
    }
  });
}

// Column j of the stack is zero below row j of either half, so its reflector has j + 2 elements: top(j, j) and
// bottom(0 .. j, j).
template <class Team, class A, class Size, class Done>
SVD_HD void join_qr(const Team& team, A top, A bottom, Size k, Done done) {
  using E = typename A::Element;
  for (int j = 0; j < k; ++j) {
    const auto x = [&](int i) SVD_LAMBDA { return i == 0 ? top(j, j) : bottom(i - 1, j); };
    const Reflector<E> h = make_reflector<E>(j + 2, x);
    team.once([&]() SVD_LAMBDA { top(j, j) = h.u0; });
    team.for_each(j + 1, k, [&](int c) SVD_LAMBDA {
      const auto y = [&](int i) SVD_LAMBDA { return i == 0 ? top(j, c) : bottom(i - 1, c); };
      const E w = scaled(inner_product<E>(j + 2, x, y), h.g);
      top(j, c) = subtract_product(top(j, c), top(j, j), w);
      for (int i = 0; i <= j; ++i) bottom(i, c) = subtract_product(bottom(i, c), bottom(i, j), w);
    });
    team.once([&]() SVD_LAMBDA { done(j, h); });
  }
}
template <class Team, class A, class Size>
SVD_HD void join_qr(const Team& team, A top, A bottom, Size k) {
  using E = typename A::Element;
  join_qr(team, top, bottom, k, [&](int j, const Reflector<E>& h) SVD_LAMBDA { top(j, j) = h.beta; });
}

// R in top; the reflectors stay in the upper triangle of bottom, their u_0 and g in heads and g, which the team shares.
template <class Team, class A, class Size>
SVD_HD void keep_join_qr(const Team& team, A top, A bottom, Size k, typename A::Element::Lane* g,
                         typename A::Element* heads) {
  using E = typename A::Element;
  join_qr(team, top, bottom, k, [&](int j, const Reflector<E>& h) SVD_LAMBDA {
    g[j] = h.g;
    heads[j] = h.u0;
    top(j, j) = h.beta;
  });
}

// [top; bottom] := Q [top; 0] for the factor of keep_join_qr, whose reflectors lie in `factor`; both k x columns.
template <class Team, class A, class Y>
SVD_HD void apply_join_q(const Team& team, A factor, int k, const typename A::Element::Lane* g,
                         const typename A::Element* heads, Y top, Y bottom, int columns) {
  using E = typename A::Element;
  team.for_each(0, columns, [&](int c) SVD_LAMBDA {
    for (int i = 0; i < k; ++i) bottom(i, c) = zero_element<E>();
    for (int j = k - 1; j >= 0; --j) {
      const auto u = [&](int i) SVD_LAMBDA { return i == 0 ? heads[j] : factor(i - 1, j); };
      const auto x = [&](int i) SVD_LAMBDA { return i == 0 ? top(j, c) : bottom(i - 1, c); };
      const E w = scaled(inner_product<E>(j + 2, u, x), g[j]);
      top(j, c) = subtract_product(top(j, c), heads[j], w);
      for (int i = 0; i <= j; ++i) bottom(i, c) = subtract_product(bottom(i, c), factor(i, j), w);
    }
  });
}

// (4 sqrt(k) u)^2: what a column, or what is left of it, may lose without passing the backward error of its
// factorization.
template <class T>
SVD_HD constexpr T dependent_square(int k) {
  return 16 * T(k) * (FloatTraits<T>::kUnitRoundoff * FloatTraits<T>::kUnitRoundoff);
}

// exponents[j]: the power of two of column j, permuted with it; the largest component of a column is in [1, 2) or zero.
// squares: k lanes of scratch. The team shares both.
template <class Team, class A, class Size>
SVD_HD void pivoted_qr(const Team& team, A a, Size k, typename A::Element::Lane* exponents,
                       typename A::Element::Lane* squares) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  using T = typename E::Scalar;
  const Lane gap(FloatTraits<T>::kLargestGap);
  for (int j = 0; j < k - 1; ++j) {
    // The squared norm of each column from row j on, |a(j:, c)|^2, or zero for a dependent column.
    team.for_each(j, k, [&](int c) SVD_LAMBDA {
      const Lane s = sum_of_squares<E>(k - j, [&](int i) SVD_LAMBDA { return a(j + i, c); });
      const auto dependent = s <= Lane(dependent_square<T>(k));
      SVD_UNROLL for (int i = j; i < k; ++i) a(i, c) = select_element(dependent, zero_element<E>(), a(i, c));
      squares[c] = select(dependent, Lane(0), s);
    });
    // The column with the largest |2^exponent a(j:, c)|; squares are compared, the exponents' difference clamped.
    Lane best = squares[j], best_exponent = exponents[j], pivot = Lane(T(j));
    for (int c = j + 1; c < k; ++c) {
      const Lane s = squares[c];
      const Lane difference = larger(smaller(exponents[c] - best_exponent, gap), -gap);
      const auto better = s * pow2(difference) > best * pow2(-difference);
      best = select(better, s, best);
      best_exponent = select(better, exponents[c], best_exponent);
      pivot = select(better, Lane(T(c)), pivot);
    }
    for (int c = j + 1; c < k; ++c) {
      const auto swap = pivot == Lane(T(c));
      if (!any_of(swap)) continue;
      team.for_each(0, k, [&](int i) SVD_LAMBDA {
        const E x = a(i, j), y = a(i, c);
        a(i, j) = select_element(swap, y, x);
        a(i, c) = select_element(swap, x, y);
      });
      team.once([&]() SVD_LAMBDA {
        const Lane x = exponents[j], y = exponents[c];
        exponents[j] = select(swap, y, x);
        exponents[c] = select(swap, x, y);
      });
    }
    const Reflector<E> h = column_reflector(a, k, j);
    reflect_columns(team, a, k, k, j, h);
    team.once([&]() SVD_LAMBDA { a(j, j) = h.beta; });
  }
}

SVD_KERNEL_END

#endif
