// A column of one-sided Jacobi with vectors: what is done to it outside of rotations. It stands for 2^f d x in X and d v
// in V (jacobi/rotation.h). Lanes, warps and thread blocks share these steps.
//
//   before a sweep    its largest component comes into [1, 2) and d^2 into [1/2, 4), by powers of two; it is zero where
//                     it is dependent or below the floor
//   at the end        s = 2^f |x| / |v|, u = x / |x|, v / |v|, so that no error of d reaches a result
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
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_SCALED_COLUMN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_SCALED_COLUMN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_SCALED_COLUMN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_SCALED_COLUMN_H_
#endif

#include "engine/algorithms/jacobi/rotation.h"
#include "engine/algorithms/tall/qr.h"
#include "engine/core/scaling.h"

SVD_KERNEL_BEGIN

// --- its numbers -------------------------------------------------------------------------------------------------------

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

// s 2^exponent, or zero where that is below every number: a dependent column's exponent may have fallen out of the
// range of make_pow2().
template <class Lane>
SVD_HD Lane finished_value(Lane s, Lane exponent) {
  const Lane lowest(-2 * FloatTraits<typename Lane::Scalar>::kBias + 14);
  const Lane value = s * make_pow2(larger(exponent, lowest));
  return select(value > Lane(0), value, Lane(0));
}

// --- its steps ---------------------------------------------------------------------------------------------------------

// Column: a column of X and V, or the part of it that a thread has, with
//   each_x(f), each_v(f)    f(element) of what is there
//   square_of_x(), square_of_v(), largest_of_x()    of the whole column: squared norms, the largest magnitude
//   scale()                 its ColumnScale
//   kHasV, kKeepsX          whether there is V; whether x is a result
//   kHasBeyond              whether a column may be one beyond the last, which is zero in V, too

// The scaling before each sweep, and after the last one, too. Without has_floor, floor may be anything.
template <class Column, class Lane>
SVD_HD void scale_for_sweep(const Column& column, bool has_floor, Lane floor) {
  using E = typename Column::Element;
  const Lane largest = column.largest_of_x();
  const SweepScale<Lane> by =
      has_floor ? sweep_scale(largest, column.scale(), floor) : sweep_scale(largest, column.scale());
  column.each_x([&](E& x) SVD_LAMBDA { x = scaled(x, by.x); });
  if constexpr (Column::kHasV) column.each_v([&](E& v) SVD_LAMBDA { v = scaled(v, by.v); });
}

// The columns become u (or zero) and v. Returns s. Both inverses come before the columns are scaled, which saves a GPU's
// threads moves between registers: 3 % of the time of 8 x 8 c64 (device_vectors_bench).
template <class Column>
SVD_HD typename Column::Element::Lane normalize(const Column& column) {
  using E = typename Column::Element;
  using Lane = typename E::Lane;
  const Lane zero(0), one(1);
  const auto inverse_of = [&](Lane norm) SVD_LAMBDA { return one / select(norm > zero, norm, one); };
  const Lane x_norm = sqrt(column.square_of_x());
  const ColumnScale<Lane>& scale = column.scale();
  if constexpr (Column::kHasV) {
    const Lane v_norm = sqrt(column.square_of_v());
    const Lane x_inverse = inverse_of(x_norm), v_inverse = Column::kHasBeyond ? inverse_of(v_norm) : one / v_norm;
    if constexpr (Column::kKeepsX) column.each_x([&](E& x) SVD_LAMBDA { x = scaled(x, x_inverse); });
    column.each_v([&](E& v) SVD_LAMBDA { v = scaled(v, v_inverse); });
    return finished_value(x_norm * v_inverse, scale.exponent);
  } else {
    if constexpr (Column::kKeepsX) {
      const Lane inverse = inverse_of(x_norm);
      column.each_x([&](E& x) SVD_LAMBDA { x = scaled(x, inverse); });
    }
    const Lane d = sqrt(scale.square * Lane(1 / FloatTraits<typename E::Scalar>::kScaleSquare));
    return finished_value(x_norm * d, scale.exponent);
  }
}

SVD_KERNEL_END

#endif
