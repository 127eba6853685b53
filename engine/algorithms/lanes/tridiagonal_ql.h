// TRIDIAGONAL for small Hermitian matrices: eigenvalues and eigenvectors of k x k matrices, k <= kLargestTridiagonal, by
// a real tridiagonal form; one matrix a lane.
//
//   M = U L U^H;   N := 2^-e M, its largest component in [1, 2)
//   Q^H N Q = T    plane rotations: T real, d_0 .. d_{k-1} on its diagonal and e_0 .. e_{k-2} beside it
//   T = Z L Z^T    implicit QL:  sweeps until e_l = 0, for l = 0 .. k - 3;  then one rotation for the last two rows
//   U := Q Z, its columns made unit;   lambda_j := 2^e z_j^T T z_j, ascending; numbered before the factor 2^e, as in
//   hermitian_eigen.h
//
// To T. G = [conj(c), conj(s); -s, c], c = x / r, s = y / r, takes (x, y)^T to a real (r, 0)^T. So all elements beside the
// diagonal become real but the last one, whose phase goes to Q. A reflector for each column has a square root and a
// division less for k = 4, but rounds more.
//
// A sweep rotates rows and columns i, i + 1 for i = k - 2 .. l. It begins with the vector (e_i, d_{i+1} - mu) and chases
// the bulge upwards. At an e_i of zero it ends, and above it begins anew. Its shift mu is
//   sweep 0     the smallest eigenvalue of T(l .. k-1), by kLaguerreSteps steps of Laguerre from the left of all
//   sweeps 1, 2 d_l, the Rayleigh quotient
//   others      the eigenvalue of T(l .. l+1) that is nearer to d_l (Wilkinson)
// Sweeps wait for the square root and the division of each rotation. A step of Laguerre has one of each, too, and three
// steps save more sweeps than that. Shifts are guesses: no result depends on the accuracy of one.
//
// e_i is negligible where |e_i| <= u (1 + |d_i| + |d_{i+1}|): errors are relative to the largest component. Nothing
// depends on the sign of a zero, and idle sweeps change nothing else, so a lane's bits do not depend on its neighbours.
//
// Sources: Golub and Van Loan, Matrix Computations, 3rd ed., section 8.3; implicit QL: Dubrulle, Martin and Wilkinson,
// Numer. Math. 12 (1968) 377-383; Wilkinson's shift: Parlett, The Symmetric Eigenvalue Problem, section 8.9; Laguerre's
// method for eigenvalues: Parlett, Math. Comp. 18 (1964) 464-485. Cost: random 4 x 4: 10 rotations of Z, which is real,
// and 3 of N and U. Accuracy: |lambda - exact|, |M U - U L|_F and
// |I - U^H U|_F |M|_F are within 10 k u |M|_F; `engine_hermitian_batch_test` prints the worst.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QL_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QL_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QL_H_
#endif

#include "engine/algorithms/lanes/hermitian_eigen.h"

SVD_KERNEL_BEGIN

// Squares below this count as zero: the vector is below u^(3/2) of the matrix.
template <class T>
inline constexpr T kLeastSquare = sizeof(T) == sizeof(float) ? T(0x1p-76) : T(0x1p-300);

// Sweeps for one row before a matrix is given up. LAPACK has as many for an eigenvalue, on average.
inline constexpr int kMostQlSweeps = 30;
inline constexpr int kLaguerreSteps = 3;
// The first sweep with Wilkinson's shift.
inline constexpr int kFirstWilkinsonSweep = 3;

template <class E>
SVD_HD E negated(E x) {
  x.re = -x.re;
  if constexpr (E::kComplex) x.im = -x.im;
  return x;
}

// sum + x r, r real
template <class E>
SVD_HD E add_scaled(E sum, const E& x, typename E::Lane r) {
  sum.re = fma(x.re, r, sum.re);
  if constexpr (E::kComplex) sum.im = fma(x.im, r, sum.im);
  return sum;
}

// --- to tridiagonal form ------------------------------------------------------------------------------------

// The unitary matrix G = [conj(c), conj(s); -s, c] that takes (x, y)^T to (r, 0)^T, r = |(x, y)|. A vector that counts as
// zero has the identity and r = 0.
template <class E>
struct CosineAndSine {
  E c, s;
  typename E::Lane r;
};
template <class E>
SVD_HD CosineAndSine<E> plane_rotation(const E& x, const E& y) {
  using Lane = typename E::Lane;
  const Lane zero(0), one(1);
  const Lane square = add_square(add_square(zero, x), y);
  const auto turn = square >= Lane(kLeastSquare<typename Lane::Scalar>);
  const Lane r = sqrt_in_range(select(turn, square, one)), inverse = reciprocal(r);
  const E c = scaled(x, inverse), s = scaled(y, inverse);
  // G becomes unitary to the last bit or two: eigenvalues would change by as much as it is not.
  const Lane by = add_square(add_square(Lane(-1), c), s) * Lane(-0.5f);
  E identity = zero_element<E>();
  identity.re = one;
  return {select_element(turn, add_scaled(c, c, by), identity),
          select_element(turn, add_scaled(s, s, by), zero_element<E>()), select(turn, r, zero)};
}

// x^H p + y^H q
template <class E>
SVD_HD E sum_of_products(const E& x, const E& p, const E& y, const E& q) {
  return add_product(add_product(zero_element<E>(), x, p), y, q);
}

// (p, q) := (p, q) G^H
template <class E>
SVD_HD void rotate_columns(E& p, E& q, const E& c, const E& s) {
  const E x = p, y = q;
  p = sum_of_products(conj(c), x, conj(s), y);
  q = sum_of_products(negated(s), x, c, y);
}
// (p, q)^T := G^H (p, q)^T
template <class E>
SVD_HD void rotate_back(E& p, E& q, const E& c, const E& s) {
  const E x = p, y = q;
  p = sum_of_products(conj(c), x, negated(s), y);
  q = sum_of_products(conj(s), x, c, y);
}

// Rows and columns p, p + 1 of the lower triangle of N right of column j become those of G N G^H.
template <class A, class E, class Size>
SVD_HD void rotate_hermitian(A m, Size k, int j, int p, const E& c, const E& s) {
  using Lane = typename E::Lane;
  const int q = p + 1;
  SVD_UNROLL for (int l = j + 1; l < p; ++l) {
    const E x = m(p, l), y = m(q, l);
    m(p, l) = sum_of_products(c, x, s, y);
    m(q, l) = sum_of_products(negated(conj(s)), x, conj(c), y);
  }
  SVD_UNROLL for (int i = q + 1; i < k; ++i) {
    E x = m(i, p), y = m(i, q);
    rotate_columns(x, y, c, s);
    m(i, p) = x;
    m(i, q) = y;
  }
  // Row q of G N, by which the trace gives the other diagonal element.
  const E b = m(q, p);
  const Lane of_p = m(p, p).re, of_q = m(q, q).re;
  const E x = add_scaled(add_product(zero_element<E>(), conj(c), b), negated(s), of_p);
  const E y = add_scaled(add_product(zero_element<E>(), negated(conj(s)), conj(b)), c, of_q);
  m(q, p) = sum_of_products(conj(c), x, conj(s), y);
  const Lane last = add_real_product(add_real_product(Lane(0), negated(s), x), c, y);
  m(p, p).re = (of_p + of_q) - last;
  m(q, q).re = last;
}

// Column j of N becomes that of T, *e the element beside the diagonal. c and s of the rotation of rows p, p + 1 stay in
// m(p + 1, j) and m(j, p + 1).
template <class A, class Lane, class Size>
SVD_HD void reduce_column(A m, Size k, int j, Lane* e) {
  using E = typename A::Element;
  E y = m(k - 1, j);
  SVD_UNROLL for (int p = k - 2; p > j; --p) {
    const CosineAndSine<E> g = plane_rotation(E(m(p, j)), y);
    rotate_hermitian(m, k, j, p, g.c, g.s);
    m(p + 1, j) = g.c;
    m(j, p + 1) = g.s;
    y = zero_element<E>();
    y.re = g.r;
  }
  *e = y.re;
}

// The phase that makes the last element beside the diagonal, x, real: *e = phase x = |x|.
template <class E, class Lane>
SVD_HD E last_phase(const E& x, Lane* e) {
  const Lane zero(0), one(1);
  E phase = zero_element<E>();
  phase.re = one;
  if constexpr (!E::kComplex) {
    *e = x.re;
    return phase;
  } else {
    const Lane square = add_square(zero, x);
    const auto turn = square >= Lane(kLeastSquare<typename Lane::Scalar>);
    const Lane norm = sqrt_in_range(select(turn, square, one));
    *e = select(turn, norm, zero);
    return select_element(turn, scaled(conj(x), reciprocal(norm)), phase);
  }
}

// --- implicit QL --------------------------------------------------------------------------------------------

// A matrix T in each lane: diagonal, and the elements beside it.
template <class Lane>
struct Tridiagonal {
  Lane *d, *e;
};

// Nearly the smallest eigenvalue of T(l .. k-1), of order n:
//   x := mean - sqrt((n - 1) / n) |T - mean I|_F;   x := x - n p / (p' - sqrt((n - 1) ((n - 1) p'^2 - n p p'')))
// p(x) = det(T - x I), by the recurrence of its leading minors.
template <class Lane, class Size>
SVD_HD Lane laguerre_shift(const Tridiagonal<Lane>& t, Size k, int l) {
  using T = typename Lane::Scalar;
  const Lane zero(0), order(static_cast<T>(k - l)), less(static_cast<T>(k - l - 1));
  // Beyond every eigenvalue, and far from the limits of the type.
  const Lane bound(static_cast<T>(4 * kLargestTridiagonal)), least(kLeastSquare<T>);
  const auto root_of = [&](Lane x) SVD_LAMBDA { return select(x >= least, sqrt_in_range(x), zero); };
  Lane trace = zero, square = zero;
  SVD_UNROLL for (int i = l; i < k; ++i) trace = trace + t.d[i];
  const Lane mean = trace * Lane(T(1) / static_cast<T>(k - l));
  SVD_UNROLL for (int i = l; i < k; ++i) {
    const Lane off = t.d[i] - mean;
    square = fma(off, off, square);
    if (i + 1 < k) square = fma(t.e[i] + t.e[i], t.e[i], square);
  }
  Lane x = mean - root_of(square * Lane(static_cast<T>(k - l - 1) / static_cast<T>(k - l)));
  SVD_UNROLL for (int step = 0; step < kLaguerreSteps; ++step) {
    // p, p' and p'' of the last leading minor, and of the one before.
    Lane p = t.d[l] - x, slope(-1), curve = zero, p_before(1), slope_before = zero, curve_before = zero;
    SVD_UNROLL for (int i = l + 1; i < k; ++i) {
      const Lane d = t.d[i] - x, b = t.e[i - 1] * t.e[i - 1];
      const Lane p_next = fnma(b, p_before, d * p), slope_next = fnma(b, slope_before, fma(d, slope, -p));
      const Lane curve_next = fnma(b, curve_before, fnma(Lane(2), slope, d * curve));
      p_before = p, slope_before = slope, curve_before = curve;
      p = p_next, slope = slope_next, curve = curve_next;
    }
    const Lane radicand = less * fnma(order * p, curve, less * (slope * slope));
    const Lane sum = abs(slope) + root_of(radicand);
    const auto moves = sum >= least;
    const Lane moved = fma(order * p, reciprocal(select(moves, sum, Lane(1))), x);
    x = select(moves, at_least(at_most(moved, bound), -bound), x);
  }
  return x;
}

// (d_{l+1} - d_l) / 2. A zero is +0: its sign is used, and idle sweeps may change those of d.
template <class Lane>
SVD_HD Lane half_difference(const Tridiagonal<Lane>& t, int l) {
  return fma(t.d[l + 1] - t.d[l], Lane(0.5f), Lane(0));
}

// Wilkinson's shift; any number where e_l is zero.
template <class Lane>
SVD_HD Lane wilkinson_shift(const Tridiagonal<Lane>& t, int l) {
  const Lane half = half_difference(t, l), square = t.e[l] * t.e[l];
  const Lane root = sqrt_in_range(fma(half, half, square));
  return t.d[l] - square * reciprocal(half + copysign(root, half));
}

// Columns i, i + 1 of Z.
template <class Z, class Lane, class Size>
SVD_HD void rotate_basis(Z z, Size k, int i, Lane c, Lane s) {
  SVD_UNROLL for (int row = 0; row < k; ++row) {
    const Lane x = z(row, i).re, y = z(row, i + 1).re;
    z(row, i).re = fnma(s, y, c * x);
    z(row, i + 1).re = fma(s, x, c * y);
  }
}

// One sweep over rows l .. k - 1 of the lanes in `active`; the others keep theirs.
template <class Z, class Lane, class Size>
SVD_HD void ql_sweep(const Tridiagonal<Lane>& t, Z z, Size k, int l, Lane mu, typename Lane::Mask active) {
  const Lane zero(0), one(1), least(kLeastSquare<typename Lane::Scalar>);
  Lane g = t.d[k - 1] - mu, s = one, c = one, p = zero;
  auto begins = Lane::mask(true);
  SVD_UNROLL for (int i = k - 2; i >= l; --i) {
    const auto gap = t.e[i] == zero;
    const Lane f = s * t.e[i], b = c * t.e[i];
    const Lane square = fma(f, f, g * g);
    const auto turn = active & !gap & (square >= least);
    const Lane r = sqrt_in_range(select(turn, square, one)), inverse = reciprocal(r);
    if (i + 2 < k) t.e[i + 1] = select(begins, zero, select(turn, r, g));
    s = select(turn, f * inverse, zero);
    c = select(turn, g * inverse, one);
    const Lane d = t.d[i + 1] - p, q = fma(t.d[i] - d, s, (b + b) * c);
    p = s * q;
    t.d[i + 1] = d + p;
    g = fma(c, q, -b);
    rotate_basis(z, k, i, c, s);
    if (i == l) break;
    // Where the block below is complete, the one above begins.
    begins = gap;
    g = select(gap, t.d[i] - mu, g);
    s = select(gap, one, s);
  }
  t.d[l] = t.d[l] - p;
  t.e[l] = g;
}

// e_i that are negligible, l <= i, become zero.
template <class Lane, class Size>
SVD_HD void drop_negligible(const Tridiagonal<Lane>& t, Size k, int l) {
  const Lane zero(0), one(1), u(FloatTraits<typename Lane::Scalar>::kUnitRoundoff);
  SVD_UNROLL for (int i = l; i + 1 < k; ++i) {
    const auto negligible = abs(t.e[i]) <= u * ((abs(t.d[i]) + abs(t.d[i + 1])) + one);
    t.e[i] = select(negligible, zero, t.e[i]);
  }
}

// Sweeps until e_l is zero. Returns the lanes where it is not.
template <class Z, class Lane, class Size>
SVD_HD typename Lane::Mask split_off_row(const Tridiagonal<Lane>& t, Z z, Size k, int l) {
  for (int sweep = 0;; ++sweep) {
    drop_negligible(t, k, l);
    const auto active = abs(t.e[l]) > Lane(0);
    if (!any_of(active) || sweep == kMostQlSweeps) return active;
    const Lane mu = sweep == 0                     ? laguerre_shift(t, k, l)
                    : sweep < kFirstWilkinsonSweep ? t.d[l]
                                                   : wilkinson_shift(t, l);
    ql_sweep(t, z, k, l, mu, active);
  }
}

// The rows kRow .. k - 3, one after the other, each in code of its own.
template <int kRow, class Z, class Lane, class Size>
SVD_HD typename Lane::Mask split_off_rows(const Tridiagonal<Lane>& t, Z z, Size k) {
  constexpr int kMost = Size::kValue != 0 ? Size::kValue : kLargestTridiagonal;
  auto unfinished = Lane::mask(false);
  if constexpr (kRow + 2 < kMost) {
    if (kRow + 2 >= k) return unfinished;
    unfinished = split_off_row(t, z, k, FixedSize<kRow>());
    unfinished = unfinished | split_off_rows<kRow + 1>(t, z, k);
  }
  return unfinished;
}

// The last two rows: t = tan(theta) of the smaller angle of the two.
template <class Z, class Lane, class Size>
SVD_HD void split_last_rows(const Tridiagonal<Lane>& t, Z z, Size k) {
  const int l = k - 2;
  const Lane zero(0), one(1), e = t.e[l];
  const Lane half = half_difference(t, l), square = e * e;
  const auto turn = square >= Lane(kLeastSquare<typename Lane::Scalar>);
  const Lane sum = half + copysign(sqrt_in_range(select(turn, fma(half, half, square), one)), half);
  const Lane tangent = select(turn, e * reciprocal(sum), zero);
  const Lane c = reciprocal(sqrt_in_range(fma(tangent, tangent, one)));
  t.d[l] = fnma(tangent, e, t.d[l]);
  t.d[l + 1] = fma(tangent, e, t.d[l + 1]);
  rotate_basis(z, k, l, c, tangent * c);
}

// The eigenvalues as Rayleigh quotients of the columns of Z, |z_j| nearly one: z^T T z (1 - (|z|^2 - 1)).
template <class Z, class Lane, class Size>
SVD_HD void rayleigh_quotients(const Tridiagonal<Lane>& t, Z z, Size k, Lane* lambda) {
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    Lane sum(0), excess(-1);
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      const Lane x = z(i, j).re;
      Lane product = t.d[i] * x;
      if (i > 0) product = fma(t.e[i - 1] + t.e[i - 1], z(i - 1, j).re, product);
      sum = fma(product, x, sum);
      excess = fma(x, x, excess);
    }
    lambda[j] = fnma(sum, excess, sum);
  }
}

// --- eigenvectors -------------------------------------------------------------------------------------------

// x := Q Z. m: as reduce_column() left it; phase: of the last row.
template <class A, class Z, class E, class Size>
SVD_HD void transform_back(A x, A m, Z z, Size k, const E& phase) {
  SVD_UNROLL for (int c = 0; c < k; ++c) {
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      E y = zero_element<E>();
      y.re = z(i, c).re;
      x(i, c) = E::kComplex && i + 1 == k && k > 1 ? scaled(conj(phase), y.re) : y;
    }
    SVD_UNROLL for (int j = k - 3; j >= 0; --j) {
      SVD_UNROLL for (int p = j + 1; p + 1 < k; ++p) rotate_back(x(p, c), x(p + 1, c), E(m(p + 1, j)), E(m(j, p + 1)));
    }
  }
}

// Columns of length nearly one: x_j (1 - (|x_j|^2 - 1) / 2). A column of one component keeps its bits.
template <class A, class Size>
SVD_HD void make_columns_unit(A x, Size k) {
  using E = typename A::Element;
  using Lane = typename E::Lane;
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    const Lane excess = sum_of(k, Lane(-1), [&](Lane sum, int i) SVD_LAMBDA { return add_square(sum, E(x(i, j))); });
    const Lane by = excess * Lane(-0.5f);
    SVD_UNROLL for (int i = 0; i < k; ++i) x(i, j) = add_scaled(E(x(i, j)), E(x(i, j)), by);
  }
}

// As hermitian_eigen(), but for the order of equal values, which is that of their columns. z: k x k real elements of
// scratch.
template <class A, class Z, class Lane, class Size>
SVD_HD Lane tridiagonal_eigen(A x, A m, Z z, Size k, bool upper, Lane* lambda, Lane* rank) {
  using E = typename A::Element;
  constexpr int kStorage = Size::kValue != 0 ? Size::kValue : kLargestTridiagonal;
  const Lane zero(0), one(1);
  Lane exponent, e[kStorage];
  E phase = zero_element<E>();
  const auto finite = scale_hermitian(m, k, upper, &exponent);
  SVD_UNROLL for (int j = 0; j + 2 < k; ++j) reduce_column(m, k, j, &e[j]);
  if (k > 1) {
    phase = last_phase(E(m(k - 1, k - 2)), &e[k - 2]);
  }
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j] = m(j, j).re;
    SVD_UNROLL for (int i = 0; i < k; ++i) z(i, j).re = i == j ? one : zero;
  }
  Lane d[kStorage], kept[kStorage];
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    d[j] = lambda[j];
    if (j + 1 < k) kept[j] = e[j];
  }
  const Tridiagonal<Lane> t{lambda, e};
  const auto unfinished = split_off_rows<0>(t, z, k);
  if (k > 1) split_last_rows(t, z, k);
  rayleigh_quotients(Tridiagonal<Lane>{d, kept}, z, k, lambda);
  transform_back(x, m, z, k, phase);
  make_columns_unit(x, k);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    Lane before = zero;
    SVD_UNROLL for (int i = 0; i < k; ++i) {
      if (i == j) continue;
      before = before + select(i < j ? lambda[i] <= lambda[j] : lambda[i] < lambda[j], one, zero);
    }
    rank[j] = before;
  }
  auto in_range = Lane::mask(true);
  SVD_UNROLL for (int j = 0; j < k; ++j) {
    lambda[j] = finished_eigenvalue(lambda[j], exponent);
    in_range = in_range & (abs(lambda[j]) <= Lane(FloatTraits<typename Lane::Scalar>::kLargest));
  }
  return status_of<Lane>(finite, in_range, unfinished);
}

SVD_KERNEL_END

#endif
