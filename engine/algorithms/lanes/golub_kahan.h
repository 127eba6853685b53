// Singular values of an upper bidiagonal matrix B by implicitly shifted QR, with the rotations that make the vectors.
//
//   in:   d_i = b_ii (i < k), e_i = b_{i,i+1} (i < k - 1), real; `bound`: a superdiagonal that is no larger is zero
//   out:  B = U diag(d) V^T, d_i of any sign and in no order; U and V are the products of the rotations
//
// A sweep over the rows low .. high, between which no e_i is zero, with the shift mu:
//
//   (y, z) = (d_low^2 - mu, d_low e_low)
//   i = low .. high - 1:   columns i, i + 1 by the rotation that takes (y, z) to (r, 0);   e_{i-1} = r
//                          (y, z) = (b_ii, b_{i+1,i})
//                          rows i, i + 1 by the rotation that takes (y, z) to (r, 0);      d_i = r
//                          (y, z) = (b_{i,i+1}, b_{i,i+2})
//
// The shifts are eigenvalues of B^T B (lanes/grouped_sweeps.h). Where some d_i is zero a shift would not pass it, and a
// sweep has none. It makes a superdiagonal zero, but for rounding errors.
//
// Source: Golub and Kahan, SIAM J. Numer. Anal. 2 (1965) 205-224; Golub and Van Loan, Matrix Computations, 3rd ed.,
// algorithms 8.6.1 and 8.6.2.
// Cost: two inverse square roots and two reciprocals a row and sweep. Random matrices take about two sweeps a value.
// Accuracy: the error of each value and the residual are of order k u |B|. Superdiagonals that count as zero
// add sqrt(k) bound at most. No small value is known relatively.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_GOLUB_KAHAN_H_
#endif

#include "engine/algorithms/lanes/grouped_sweeps.h"

SVD_KERNEL_BEGIN

// A Form of lanes/grouped_sweeps.h.
template <class L>
class BidiagonalForm {
 public:
  using Lane = L;
  using Writer = RotationWriter<L>;
  using T = typename L::Scalar;

  // d, e: k numbers each; e with a zero at its end.
  SVD_HD BidiagonalForm(L* d, L* e, L bound) : d_(d), e_(e), bound_(bound) {}

  SVD_HD bool is_split(int i) const { return is_zero(e_[i]); }
  SVD_HD int stops_shifts(int i) const { return is_zero(d_[i]); }
  // The largest number of B. B^T B is relative to its square.
  SVD_HD L largest(const LastRows& rows) const {
    L largest = abs(d_[rows.last]);
    for (int i = rows.first; i < rows.last; ++i) largest = at_least(largest, at_least(abs(d_[i]), abs(e_[i])));
    if (rows.first > rows.low) largest = at_least(largest, abs(e_[rows.first - 1]));
    return largest;
  }
  SVD_HD L diagonal(const LastRows& rows, int i, L scale) const {
    const L above = i > rows.low ? e_[i - 1] * scale : L(0), d = d_[i] * scale;
    return fma(d, d, above * above);
  }
  SVD_HD L off_diagonal(int i, L scale) const { return d_[i] * scale * (e_[i] * scale); }
  SVD_HD L shift(L x, L largest) const { return at_least(x, L(0)) * largest * largest; }

  class Sweep {
   public:
    SVD_HD Sweep(const BidiagonalForm& of, const SweptBlock& block, int end, L shift, int number, Writer* to)
        : of_(of),
          to_(to),
          number_(number),
          low_(block.low),
          end_(end),
          left_{block.low, end, 0},
          shifted_(block.zeros == 0),
          shift_(shift) {}

    SVD_HD int low() const { return low_; }
    SVD_HD int end() const { return end_; }
    SVD_HD void start() {
      x_ = of_.d_[low_];
      b_ = of_.e_[low_];
      if (of_.is_zero(b_)) end_ = low_;
      f_ = shifted_ ? fma(x_, x_, -shift_) : x_;
      g_ = shifted_ ? x_ * b_ : b_;
    }
    SVD_HD void rotate(int i) {
      // (f, g) has the length of (y, z) times that of the vector on the left before it. B is about one. So a vector on the
      // left is zero below 2^-32 (f64: 2^-450), and (y, z) at most below 2^-30 (2^-50).
      constexpr bool kSingle = sizeof(T) == 4;
      const L least_right(T(kSingle ? 0x1p-124 : 0x1p-1000)), least_left(T(kSingle ? 0x1p-64 : 0x1p-900));
      const L next = of_.d_[i + 1], beyond = of_.e_[i + 1];
      const Turn<L> right(f_, g_, least_right);
      if (i > low_) {
        const L superdiagonal = right.r * before_;
        of_.e_[i - 1] = superdiagonal;
        if (of_.is_zero(superdiagonal)) left_ = {i, end_, 0};
      }
      const L along = fma(right.g, b_, right.f * x_) * before_, off = fma(right.f, b_, -(right.g * x_)) * before_;
      const L off_diagonal = off * right.inverse, diagonal = right.f * next * right.inverse;
      const Turn<L> left(along * right.inverse, right.g * next * right.inverse, least_left);
      to_->rotation(number_, i, left.plane(), right.plane());
      of_.d_[i] = left.r;
      left_.zeros += of_.is_zero(left.r);
      f_ = fma(left.g, diagonal, left.f * off_diagonal);
      x_ = fma(left.f, diagonal, -(left.g * off_diagonal));
      g_ = left.g * beyond;
      b_ = left.f * beyond;
      before_ = left.inverse;
      if (of_.is_zero(beyond)) end_ = i + 1;
    }
    SVD_HD void finish() const {
      of_.e_[end_ - 1] = f_ * before_;
      of_.d_[end_] = x_ * before_;
    }
    SVD_HD SweptBlock left() const { return {left_.low, end_, left_.zeros}; }
    SVD_HD void fill() const { to_->no_rotations(number_, low_, end_); }

   private:
    const BidiagonalForm& of_;
    Writer* const to_;
    const int number_, low_;
    int end_;
    SweptBlock left_;
    const bool shifted_;
    const L shift_;
    // (x, b), the next diagonal and superdiagonal element, and (y, z) are `before` times these numbers. So the next
    // rotation does not wait for the length of the last one.
    L x_{0}, b_{0}, f_{0}, g_{0}, before_{1};
  };

 private:
  SVD_HD int is_zero(L x) const { return (abs(x) <= bound_).m ? 1 : 0; }

  L* const d_;
  L* const e_;
  const L bound_;
};

template <class L, class Threads>
using GolubKahan = GroupedSweeps<BidiagonalForm<L>, Threads>;

SVD_KERNEL_END

#endif
