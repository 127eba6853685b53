// JACOBI with vectors: U, S and V of k x k matrices by one-sided Jacobi on A itself; one matrix a lane.
//
//   A = U S V^H;   X := A, V := I;   rotate columns of both, X := X W, V := V W, until every two columns p < q of X
//   have |x_p^H x_q| <= tol |x_p| |x_q|;   then x_j = s_j u_j
//
// Rotations are self-scaling (jacobi/rotation.h): column j of X stands for 2^f_j d_j x_j, of V for d_j v_j. At the end
// both matrices are normalized column by column, so that no error of d reaches a result: s_j = 2^f_j |x_j| / |v_j|.
//
// Order: odd-even exchange of places 0 .. k-1. Step t of a sweep rotates the pairs (i, i + 1) with i of t's parity,
// and their columns change places. After k steps every two columns have met once, and their order is reversed. It suits
// threads that own two columns each: only one of them moves, to a neighbour. An odd k ends a sweep with an even step,
// so beyond k = 16 the next one begins with an odd step. It would repeat the pairs (31 x 31: 11.5 sweeps for 9).
//
// On a GPU the places are threads. Pair c of threads holds the places 2 c and 2 c + 1 in an even step, in an odd one
// 2 c + 1 and 2 c + 2. The last pair holds place 0 meanwhile, which has no partner. Two codes do this:
// cuda/lanes/vectors_kernels.h in a warp, for k <= 32, and blocks/placed_jacobi.h in a block beyond. They share the
// functions of a column and of a pair below, and stay two. The former has this file's bits, so its sums are those of
// core/reduce.h, and its odd k have this order. The latter adds over more threads in an order of its own, gives an odd k
// a column of zeros, and has columns in memory, too.
//
// A column that shrinks within a sweep to rounding error of itself is set to zero: see one_sided_jacobi.h. Its u is
// zero until basis_completion.h finds one. Beyond k = 16 a column is set to zero, too, when it falls below the floor.
//
// The floor. Rows of A that are zero or repeat others leave columns of X that are noise: what rotations rounded. They
// are in the space of the other columns, so that the rest of one is noise again. They shrink by few bits a sweep (half
// the rows of 128 x 128 zero: 143 sweeps, with the floor 11) or not at all. Let 2^c be the least exponent of a column
// of A that is not zero, 2^r that of a row of X at the start. r <= 0, since its columns are scaled. p are the bits of
// the mantissa, u = 2^-(p + 1). A column with an exponent below c + r - (p + 4) is cleared. Its components are less
// than 2^(c + r) u / 4, and it meets no rotation any more, so that clearing is a change E of A, A V = X:
//   |E|_F <= k u 2^(c + r) / 2
// Whether what was cleared was noise or true values, the contract is kept:
//   values      Weyl: each moves by |E| at most, which is less than k u s_max / 2
//   residual    |E|_F <= k u |A|_F / 2; V keeps its bits, and U is completed to an orthonormal basis
//   A = B D     columns of B of unit length: s_min >= 2^c / kappa(B), so that each moves by k u kappa(B) / 2 of itself
//   rows graded A = R B D with powers of two R >= 2^r, D >= 2^c and, lines of zeros left out, B of full rank: s_min >=
//               2^(c + r) s_min(B), so that each moves by k u / (2 s_min(B)) of itself: what rotations leave of the
//               small values of such a matrix is not lost to the floor
// Values below u of a matrix that is ill-conditioned without being graded (Hilbert's) are noise by the first line, and
// become zeros. A floor for each row's components and one of c + r - p are as safe, and saved no sweep.
//
// Sources: one-sided: Hestenes (1958); Demmel and Veselic, SIAM J. Matrix Anal. Appl. 13 (1992) 1204-1245;
// order: Luk and Park, SIAM J. Sci. Stat. Comput. 8 (1987) 1-14. Cost: random 4 x 4: 5.2 sweeps; 8 x 8: 6.8. A sweep is k (k - 1) / 2 pairs of 14
// k flops (complex: 48 k), a square root and two divisions. Accuracy: residual and orthogonality within 10 max(m, n) u;
// for A = B D, D diagonal, every singular value to a relative error of order k u kappa(B).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_JACOBI_VECTORS_H_
#endif

#include "engine/algorithms/jacobi/rotation.h"
#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/planner.h"

SVD_KERNEL_BEGIN

// Steps of a sweep that pass over the columns together where these do not fit registers. Speed alone. Against one step
// at a time it is 1.14 times as fast for f64 and c128, 1.11 times for c64. That is U, S and V of 32 x 32 on one core
// with AVX-512, by engine/bench/against_numpy.py.
inline constexpr int kWave = 4;

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

// Powers of two for a column of X and V before a sweep, both exact: its largest component comes into [1, 2), d^2 into
// [1/2, 4). `largest`: of its components' magnitudes, zero for a column of zeros; the scale is updated.
template <class Lane>
struct SweepScale {
  Pow2<Lane> x;
  Lane v;
};
template <class Lane>
SVD_HD SweepScale<Lane> sweep_scale(Lane largest, ColumnScale<Lane>& column) {
  using F = FloatTraits<typename Lane::Scalar>;
  const Lane e = binary_exponent(largest);
  // Half of an integer, rounded to an integer by passing through numbers that have no fraction.
  const Lane whole(static_cast<typename Lane::Scalar>(3 * (typename F::Bits{1} << (F::kMantissaBits - 1))));
  const Lane d_square = column.square * Lane(1 / F::kScaleSquare);
  const Lane half = (exponent(d_square) * Lane(0.5f) + whole) - whole;
  column.square = column.square * pow2(-(half + half));
  column.exponent = column.exponent + (e + half);
  return {make_pow2(-e), pow2(half)};
}

// The same, where a column below `floor` becomes zero: its exponent says so for good.
template <class Lane>
SVD_HD SweepScale<Lane> sweep_scale(Lane largest, ColumnScale<Lane>& column, Lane floor) {
  SweepScale<Lane> scale = sweep_scale(largest, column);
  scale.x.first = select(column.exponent < floor, Lane(0), scale.x.first);
  return scale;
}

// The exponent of a column or row whose largest magnitude is given, for the least of them; those of zeros have none.
template <class Lane>
SVD_HD Lane exponent_unless_zero(Lane largest, Lane exponent) {
  return select(largest > Lane(0), exponent, Lane(4 * FloatTraits<typename Lane::Scalar>::kBias));
}

// The floor, from the least exponents of the columns and of the rows.
template <class Lane>
SVD_HD Lane floor_above(Lane least_column, Lane least_row) {
  return (least_column + least_row) - Lane(FloatTraits<typename Lane::Scalar>::kMantissaBits + 4);
}

// The same of X at the start, column j standing for 2^exponents[j] x_j with the largest component in [1, 2) or zero.
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

// The first step of a sweep: 0, an even one, or -1. With -1 the even one is left out, and the k steps begin with an odd
// one.
SVD_HD constexpr int first_step(int k, int sweep) {
  return k > kLargestWithoutFloor && k % 2 == 1 && sweep % 2 == 1 ? -1 : 0;
}

// True where a sweep that began with a largest component in [1, 2) has left rounding errors alone. They are 4 sqrt(k) u
// of the column, or 8 k u of one that is much smaller than the largest, of exponent `largest`. A dependent column keeps
// its part of the tolerated cosines of the others. This part is more than the former bound, but does no harm in a small
// column.
template <class Lane>
SVD_HD typename Lane::Mask is_dependent(int k, Lane square, const ColumnScale<Lane>& column, Lane largest) {
  using F = FloatTraits<typename Lane::Scalar>;
  const auto small = column.exponent <= largest - Lane(5);
  const auto bound = dependent_square<typename Lane::Scalar>(k) / 2 * F::kScaleSquare;
  return square * column.square <= select(small, Lane(bound * 4 * static_cast<float>(k)), Lane(bound));
}

// The exponent of a column, for the largest of them; zero columns have none.
template <class Lane>
SVD_HD Lane exponent_of(Lane square, const ColumnScale<Lane>& column) {
  return select(square > Lane(0), column.exponent, Lane(-4 * FloatTraits<typename Lane::Scalar>::kBias));
}

// The pair in places i, i + 1 of a lane's matrices. Returns where it was not orthogonal. Here and below V is the type
// of X, or NoMatrix.
template <class A, class V, class Lane, class Size>
SVD_HD typename Lane::Mask rotate_neighbours(A x, V v, Size k, int i, ColumnScale<Lane>* scales, Lane tol_square,
                                             typename Lane::Mask active) {
  using E = typename A::Element;
  const auto x_p = [&](int l) SVD_LAMBDA { return x(l, i); };
  const auto x_q = [&](int l) SVD_LAMBDA { return x(l, i + 1); };
  const Lane alpha = sum_of_squares<E>(k, x_p), beta = sum_of_squares<E>(k, x_q);
  const E g = inner_product<E>(k, x_p, x_q);
  const PairUpdate<E> u = pair_update(alpha, beta, g, scales[i], scales[i + 1], tol_square, active);
  if (Lane::kLanes == 1 || any_of(u.wanted)) {  // threads of a warp would do both
    SVD_UNROLL for (int l = 0; l < k; ++l) update_and_exchange(x(l, i), x(l, i + 1), u.x_a, u.x_b, active);
    if constexpr (kIsWanted<V>) {
      SVD_UNROLL for (int l = 0; l < k; ++l) update_and_exchange(v(l, i), v(l, i + 1), u.v_a, u.v_b, active);
    }
  } else {
    SVD_UNROLL for (int l = 0; l < k; ++l) exchange(x(l, i), x(l, i + 1), active);
    if constexpr (kIsWanted<V>) {
      SVD_UNROLL for (int l = 0; l < k; ++l) exchange(v(l, i), v(l, i + 1), active);
    }
  }
  shrink_and_exchange(scales[i], scales[i + 1], u.shrink, active);
  return u.wanted;
}

// floor: of k > kLargestWithoutFloor alone.
template <class A, class V, class Lane, class Size>
SVD_HD void begin_sweep(A x, V v, Size k, ColumnScale<Lane>* scales, Lane floor, bool first) {
  using E = typename A::Element;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : static_cast<int>(kLargestInLanes);
  if (!first) {
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
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    Lane largest(0);
    SVD_UNROLL for (int i = 0; i < k; ++i) largest = raise_to_magnitude(largest, x(i, j));
    const SweepScale<Lane> scale =
        k > kLargestWithoutFloor ? sweep_scale(largest, scales[j], floor) : sweep_scale(largest, scales[j]);
    SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = scaled(x(i, j), scale.x);
    if constexpr (kIsWanted<V>) {
      SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j) = scaled(v(i, j), scale.v);
    }
  }
}

// Column j becomes u_j (or zero) and v_j; returns s_j without its exponent.
template <class A, class Lane, class Size>
SVD_HD Lane normalize_vectors(A x, A v, Size k, int j) {
  using E = typename A::Element;
  const Lane zero(0), one(1);
  const Lane x_norm = sqrt(sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return x(i, j); }));
  const Lane v_norm = sqrt(sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return v(i, j); }));
  const Lane x_inverse = one / select(x_norm > zero, x_norm, one), v_inverse = one / v_norm;
  SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = scaled(x(i, j), x_inverse);
  SVD_UNROLL for (int i = 0; i < k; ++i) v(i, j) = scaled(v(i, j), v_inverse);
  return x_norm * v_inverse;
}

// s 2^exponent, or zero where that is below every number: a dependent column's exponent may have fallen out of the
// range of make_pow2().
template <class Lane>
SVD_HD Lane finished_value(Lane s, Lane exponent) {
  const Lane lowest(-2 * FloatTraits<typename Lane::Scalar>::kBias + 14);
  const Lane value = s * make_pow2(larger(exponent, lowest));
  return select(value > Lane(0), value, Lane(0));
}

// The k steps of a sweep, one after the other.
template <class A, class V, class Lane, class Size>
SVD_HD typename Lane::Mask sweep_by_steps(A x, V v, Size k, ColumnScale<Lane>* scales, Lane tol_square,
                                          typename Lane::Mask turning) {
  auto rotated = Lane::mask(false);
  for (int step = 0; step < k; step += 2) {
    SVD_UNROLL for (int i = 0; i + 1 < k; i += 2) {
      rotated = rotated | rotate_neighbours(x, v, k, i, scales, tol_square, turning);
    }
    if (step + 1 == k) break;
    SVD_UNROLL for (int i = 1; i + 1 < k; i += 2) {
      rotated = rotated | rotate_neighbours(x, v, k, i, scales, tol_square, turning);
    }
  }
  return rotated;
}

// The same for columns that fill more than the first-level cache. kWave steps pass over the columns together, each two
// places behind the one before. So a pair waits only for the pairs that it has columns from.
template <class A, class V, class Lane, class Size>
SVD_HD typename Lane::Mask sweep_by_waves(A x, V v, Size k, ColumnScale<Lane>* scales, Lane tol_square,
                                          typename Lane::Mask turning, bool begins_odd) {
  auto rotated = Lane::mask(false);
  for (int first = 0; first < k; first += kWave) {
    const int steps = k - first < kWave ? k - first : kWave;
    for (int front = (first + begins_odd) % 2; front < k + steps - 2; front += 2) {
      for (int step = 0; step < steps; ++step) {
        const int i = front - step;
        if (i < 0 || i + 1 >= k) continue;
        rotated = rotated | rotate_neighbours(x, v, k, i, scales, tol_square, turning);
      }
    }
  }
  return rotated;
}

// Sweeps until every two columns of x are orthogonal, and the scaling after the last one. Column j of x stands for
// 2^exponent d times itself, both of scales[j]; v has the rotations, too. Returns the lanes that have not converged.
template <class A, class V, class Lane, class Size>
SVD_HD typename Lane::Mask orthogonalize_columns(A x, V v, Size k, Lane tol_square, int max_sweeps, Lane floor,
                                                 ColumnScale<Lane>* scales) {
  auto active = Lane::mask(k > 1);
  for (int sweep = 0; sweep < max_sweeps && any_of(active); ++sweep) {
    begin_sweep(x, v, k, scales, floor, sweep == 0);
    const auto turning = Lane::kLanes == 1 ? Lane::mask(true) : active;  // one lane is active, or it would not be here
    const auto rotated = Size::kValue != 0
                             ? sweep_by_steps(x, v, k, scales, tol_square, turning)
                             : sweep_by_waves(x, v, k, scales, tol_square, turning, first_step(k, sweep) != 0);
    active = active & rotated;
  }
  begin_sweep(x, v, k, scales, floor, true);
  return active;
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
    s[j] = finished_value(normalize_vectors<A, Lane>(x, v, k, j), scales[j].exponent);
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
