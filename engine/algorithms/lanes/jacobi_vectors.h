// JACOBI with vectors: U, S and V of k x k matrices by one-sided Jacobi on A itself; one matrix a lane.
//
//   A = U S V^H;   X := A, V := I;   rotate columns of both, X := X W, V := V W, until every two columns p < q of X
//   have |x_p^H x_q| <= tol |x_p| |x_q|;   then x_j = s_j u_j
//
// Rotations are self-scaling (jacobi/rotation.h): column j of X stands for 2^f_j d_j x_j, of V for d_j v_j. At the end
// both matrices are normalized column by column, so that no error of d reaches a result: s_j = 2^f_j |x_j| / |v_j|.
//
// The order is that of the odd-even exchange (jacobi/odd_even.h). A column that has become rounding error of itself, or
// falls below a floor, is set to zero. scaled_column.h has that, and what else is done to a column.
//
// Threads run the same algorithm: those of a warp for k <= 32 (blocks/warp_jacobi.h), with the bits of this file, those
// of a block beyond (blocks/placed_jacobi.h).
//
// Sources: one-sided: Hestenes (1958); Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13 (1992) 1204-1245;
// order: odd_even.h. Cost: random 4 x 4: 5.2 sweeps; 8 x 8: 6.8. A sweep is k (k - 1) / 2 pairs of 14 k flops (complex:
// 48 k), a square root and two divisions. Accuracy: residual and orthogonality within 10 max(m, n) u; for A = B D, D
// diagonal, every singular value to a relative error of order k u kappa(B).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#endif

#include "engine/algorithms/jacobi/odd_even.h"
#include "engine/algorithms/jacobi/rotation.h"
#include "engine/algorithms/jacobi/sweeps.h"
#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/algorithms/lanes/scaled_column.h"
#include "engine/planner.h"

SVD_KERNEL_BEGIN

// Element i of two columns, rotated; they change places where `active`.
template <class E>
SVD_HD void update_and_exchange(E& p, E& q, const E& a, const E& b, typename E::Lane::Mask active) {
  const E new_p = subtract_product(p, q, a), new_q = subtract_product(q, p, b);
  p = select_element(active, new_q, new_p);
  q = select_element(active, new_p, new_q);
}

// The same for a pair that is not rotated. The bits are those of a rotation by zero, but for the signs of zeros, on
// which nothing depends.
template <class E>
SVD_HD void exchange(E& p, E& q, typename E::Lane::Mask active) {
  const E new_p = p, new_q = q;
  p = select_element(active, new_q, new_p);
  q = select_element(active, new_p, new_q);
}

template <class Lane>
SVD_HD void shrink_and_exchange(ColumnScale<Lane>& p, ColumnScale<Lane>& q, Lane shrink, typename Lane::Mask active) {
  const ColumnScale<Lane> new_p{p.exponent, p.square * shrink}, new_q{q.exponent, q.square * shrink};
  p = {select(active, new_q.exponent, new_p.exponent), select(active, new_q.square, new_p.square)};
  q = {select(active, new_p.exponent, new_q.exponent), select(active, new_p.square, new_q.square)};
}

// The floor of X at the start, column j standing for 2^exponents[j] x_j with the largest component in [1, 2) or zero.
template <class A, class Lane, class Size>
SVD_HD Lane floor_of(A x, Size k, const Lane* exponents) {
  const Lane none = exponent_unless_zero(Lane(0), Lane(0));
  Lane column = none, row = none;
  for (int j = 0; j < k; ++j) {
    Lane of_column(0), of_row(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      of_column = raise_to_magnitude(of_column, x(i, j));
      of_row = raise_to_magnitude(of_row, x(j, i));
    }
    column = smaller(exponent_unless_zero(of_column, exponents[j]), column);
    row = smaller(exponent_unless_zero(of_row, binary_exponent(of_row)), row);
  }
  return floor_above(column, row);
}

// The pair in places i, i + 1 of a lane's matrices. Returns where it was not orthogonal.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask rotate_neighbours(A x, A v, Size k, int i, ColumnScale<Lane>* scales, Lane tol_square,
                                             typename Lane::Mask active) {
  using E = typename A::Element;
  const auto x_p = [&](int l) SVD_LAMBDA { return x(l, i); };
  const auto x_q = [&](int l) SVD_LAMBDA { return x(l, i + 1); };
  const Lane alpha = sum_of_squares<E>(k, x_p), beta = sum_of_squares<E>(k, x_q);
  const E g = inner_product<E>(k, x_p, x_q);
  const PairUpdate<E> u = pair_update(alpha, beta, g, scales[i], scales[i + 1], tol_square, active);
  if (Lane::kLanes == 1 || any_of(u.wanted)) {  // threads of a warp would do both
    SVD_UNROLL for (int l = 0; l < k; ++l) update_and_exchange(x(l, i), x(l, i + 1), u.a, u.b, active);
    SVD_UNROLL for (int l = 0; l < k; ++l) update_and_exchange(v(l, i), v(l, i + 1), u.v_a, u.v_b, active);
  } else {
    SVD_UNROLL for (int l = 0; l < k; ++l) exchange(x(l, i), x(l, i + 1), active);
    SVD_UNROLL for (int l = 0; l < k; ++l) exchange(v(l, i), v(l, i + 1), active);
  }
  shrink_and_exchange(scales[i], scales[i + 1], u.shrink, active);
  return u.wanted;
}

// Column j of a lane's matrices.
template <class A, class Lane, class Size>
struct LaneColumn {
  using Element = typename A::Element;
  static constexpr bool kHasV = true, kKeepsX = true, kHasBeyond = false;
  A x, v;
  Size k;
  int j;
  ColumnScale<Lane>* scales;

  SVD_HD ColumnScale<Lane>& scale() const { return scales[j]; }
  template <class F>
  SVD_HD void each_x(F f) const {
    SVD_UNROLL for (int i = 0; i < k; ++i) f(x(i, j));
  }
  template <class F>
  SVD_HD void each_v(F f) const {
    SVD_UNROLL for (int i = 0; i < k; ++i) f(v(i, j));
  }
  SVD_HD Lane square_of_x() const {
    return sum_of_squares<Element>(k, [&](int i) SVD_LAMBDA { return x(i, j); });
  }
  SVD_HD Lane square_of_v() const {
    return sum_of_squares<Element>(k, [&](int i) SVD_LAMBDA { return v(i, j); });
  }
  SVD_HD Lane largest_of_x() const {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, x(i, j));
    return largest;
  }
};

// Sets columns to zero that the last sweep has left as rounding errors.
template <class A, class Lane, class Size>
SVD_HD void clear_dependent_columns(A x, Size k, const ColumnScale<Lane>* scales) {
  using E = typename A::Element;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestInLanes);
  Lane squares[kStorage], highest(-4 * FloatTraits<typename E::Scalar>::kBias);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    squares[j] = sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return x(i, j); });
    highest = larger(exponent_of(squares[j], scales[j]), highest);
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    const auto dependent = is_dependent(k, squares[j], scales[j], highest);
    SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = select_element(dependent, zero_element<E>(), x(i, j));
  }
}

// Sweeps until every two columns of x are orthogonal, and the scaling after the last one. Column j of x stands for
// 2^exponent d times itself, both of scales[j]; v has the rotations, too. floor: of k > kLargestWithoutFloor alone.
// Returns the lanes that have not converged.
template <class A, class Lane, class Size>
SVD_HD typename Lane::Mask orthogonalize_columns(A x, A v, Size k, Lane tol_square, int max_sweeps, Lane floor,
                                                 ColumnScale<Lane>* scales) {
  using Mask = typename Lane::Mask;
  const auto scale_columns = [&]() SVD_LAMBDA {
    SVD_UNROLL for (int j = 0; j < k; ++j) {
      scale_for_sweep(LaneColumn<A, Lane, Size>{x, v, k, j, scales}, k > kLargestWithoutFloor, floor);
    }
  };
  const Mask unfinished =
      sweep_until_orthogonal(Lane::mask(k > 1), max_sweeps, [&](int sweep, const Mask& active) SVD_LAMBDA {
        if (sweep > 0) clear_dependent_columns(x, k, scales);
        scale_columns();
        const Mask turning =
            Lane::kLanes == 1 ? Lane::mask(true) : active;  // one lane is active, or it would not be here
        return odd_even_sweep<Lane>(
            k, sweep, [&](int i) SVD_LAMBDA { return rotate_neighbours(x, v, k, i, scales, tol_square, turning); });
      });
  scale_columns();
  return unfinished;
}

// In: x = A, its column j standing for 2^given[j] x(:, j) (null: zero); v is written. Out: u_j and v_j in column j,
// s[j] the finished value of that column, rank[j] its number in descending order (equal ones in the order of their
// columns). scales: k of scratch. Returns the MatrixStatus of each lane as a number; of matrices that are not finite
// everything but the rank is NaN.
template <class A, class Lane, class Size>
SVD_HD Lane jacobi_vectors(A x, A v, Size k, const Lane* given, Lane tolerance, int max_sweeps,
                           ColumnScale<Lane>* scales, Lane* s, Lane* rank) {
  using E = typename A::Element;
  using T = typename Lane::Scalar;
  const Lane zero(0), one(1), tol_square = tolerance * tolerance;
  const auto finite = scale_matrix<true>(Alone(), x, k, given, s);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    scales[j] = {s[j], Lane(FloatTraits<T>::kScaleSquare)};
    SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j) = zero_element<E>();
    v(j, j).re = one;
  }
  const Lane floor = k > kLargestWithoutFloor ? floor_of(x, k, s) : zero;
  const auto active = orthogonalize_columns(x, v, k, tol_square, max_sweeps, floor, scales);
  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    s[j] = normalize(LaneColumn<A, Lane, Size>{x, v, k, j, scales});
    in_range = in_range & (s[j] <= Lane(FloatTraits<T>::kLargest));
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    Lane before = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      if (i < j) before = before + select(s[i] >= s[j], one, zero);
      if (i > j) before = before + select(s[i] > s[j], one, zero);
    }
    rank[j] = before;
  }
  return status_of<Lane>(finite, in_range, active);
}

SVD_KERNEL_END

#endif
