// JACOBI for the columns of a positive definite matrix B with a condition number of at most 9 or so, without V; one
// matrix a lane. The rotations and the order are those of jacobi_vectors.h:
//
//   X := B;   rotate columns, X := X W, until every two columns p < q have |x_p^H x_q| <= tol |x_p| |x_q|
//
// Column j stands for d_j x_j. It needs no exponent: the norms of true columns stay between the eigenvalues of B. No
// column becomes dependent, and no square of a column over- or underflows. All that exponents would change are powers of
// two. So the bits of x_j / |x_j| are those of jacobi_vectors.h, as long as no component is denormal.
//
// Range: components of B are at most 2^8, its norm at least one (hermitian_eigen.h). d_j is in [1/2, 2) at the start of a
// sweep and shrinks at most by 2^((1 - k) / 2) within it. So for k <= 32 squares of x_j stay below 2^50 in a float.
//
// Packs leave columns in place, and keep the numbers of the columns that odd-even exchange would have moved. All lanes
// share these. Lanes that have converged go on with rotations by zero, which change nothing. After an odd number of
// sweeps the exchange would have left a lane's columns in reverse order; *reversed has these lanes.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_DEFINITE_JACOBI_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_DEFINITE_JACOBI_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_DEFINITE_JACOBI_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_DEFINITE_JACOBI_H_
#endif

#include "engine/algorithms/lanes/jacobi_vectors.h"

SVD_KERNEL_BEGIN

// alpha, beta: |x_p|^2, |x_q|^2; g = x_p^H x_q; p, q: d_p^2, d_q^2 times kScaleSquare. Where the pair is not rotated: the
// identity.
template <class E, class Lane>
SVD_HD ColumnUpdate<E> definite_update(Lane alpha, Lane beta, const E& g, Lane p, Lane q, Lane tol_square,
                                       typename Lane::Mask active) {
  ColumnUpdate<E> u;
  const Lane g_square = add_square(Lane(0), g);
  u.wanted = exceeds_cosine(g_square, alpha, beta, tol_square) & active;
  const Lane r = self_scaled_tangent(alpha, beta, g_square, p, q, u.wanted);
  const Lane r_p = r * p, r_q = r * q;
  u.a = scaled(conj(g), r_q);
  u.b = scaled(g, -r_p);
  u.shrink = self_scaled_shrink(g_square, r_p, r_q);
  return u;
}

// Columns that are rotated in place. column[i] is the number of the one in place i.
template <class A>
struct DefiniteColumns {
  A x;
  int* column;  // of packs; a lane that is one matrix moves its columns
};

// Before a sweep: the power of two that multiplies a column, so that d^2 is in [1/2, 4) again.
template <class Lane>
SVD_HD Lane fold_scale(ColumnScale<Lane>& scale) {
  return sweep_scale(Lane(1), scale).v;
}

// The pair in places i, i + 1. Returns where it was not orthogonal.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask rotate_definite(const DefiniteColumns<A>& columns, Size k, int i, ColumnScale<Lane>* scales,
                                           Lane tol_square, typename Lane::Mask active) {
  using E = typename A::Element;
  constexpr bool kMoves = Lane::kLanes == 1;
  A x = columns.x;
  const int p = kMoves ? i : columns.column[i], q = kMoves ? i + 1 : columns.column[i + 1];
  if constexpr (!kMoves) {
    columns.column[i] = q;
    columns.column[i + 1] = p;
  }
  const auto x_p = [&](int l) SVD_LAMBDA { return x(l, p); };
  const auto x_q = [&](int l) SVD_LAMBDA { return x(l, q); };
  const Lane alpha = sum_of_squares<E>(k, x_p), beta = sum_of_squares<E>(k, x_q);
  const E g = inner_product<E>(k, x_p, x_q);
  const ColumnUpdate<E> u = definite_update(alpha, beta, g, scales[p].square, scales[q].square, tol_square, active);
  if (!kMoves && !any_of(u.wanted)) return u.wanted;
  SVD_UNROLL for (int l = 0; l < k; ++l) {
    const E old_p = x(l, p), old_q = x(l, q);
    x(l, kMoves ? q : p) = subtract_product(old_p, old_q, u.a);
    x(l, kMoves ? p : q) = subtract_product(old_q, old_p, u.b);
  }
  const Lane square_p = scales[p].square * u.shrink, square_q = scales[q].square * u.shrink;
  scales[kMoves ? q : p].square = square_p;
  scales[kMoves ? p : q].square = square_q;
  return u.wanted;
}

// Sweeps until every two columns of x are orthogonal. scales: k of scratch. Returns the lanes that have not converged.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask orthogonalize_definite(A x, Size k, Lane tol_square, int max_sweeps,
                                                  ColumnScale<Lane>* scales, typename Lane::Mask* reversed) {
  using E = typename A::Element;
  using Mask = typename Lane::Mask;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestInLanes);
  int column[kStorage];
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    column[j] = j;
    scales[j] = {Lane(0), Lane(FloatTraits<typename Lane::Scalar>::kScaleSquare)};
  }
  const DefiniteColumns<A> columns{x, column};
  *reversed = Lane::mask(false);
  return sweep_until_orthogonal(Lane::mask(k > 1), max_sweeps, [&](int sweep, const Mask& active) SVD_LAMBDA {
    SVD_UNROLL for (int j = 0; j < k && sweep > 0; ++j) {
      const Lane by = fold_scale(scales[j]);
      SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = scaled(E(x(i, j)), by);
    }
    if constexpr (Lane::kLanes != 1) *reversed = (*reversed & !active) | (active & !*reversed);
    return odd_even_sweep<Lane>(
        k, sweep, [&](int i) SVD_LAMBDA { return rotate_definite(columns, k, i, scales, tol_square, active); });
  });
}

SVD_KERNEL_END

#endif
