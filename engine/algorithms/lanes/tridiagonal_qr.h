// Eigenvalues of a real symmetric tridiagonal matrix T by implicitly shifted QR, with the rotations that make the vectors.
//
//   in:   d_i = t_ii (i < k), e_i = t_{i,i+1} (i < k - 1); `bound`: an off-diagonal element that is no larger is zero
//   out:  T = W diag(d) W^T, d_i in no order; W is the product of the rotations
//
// A sweep over the rows low .. high, between which no e_i is zero, with the shift mu (lanes/grouped_sweeps.h):
//
//   (y, z) = (d_low - mu, e_low)
//   i = low .. high - 1:   rows and columns i, i + 1 by the rotation that takes (y, z) to (r, 0);   e_{i-1} = r
//                          (y, z) = (t_{i,i+1}, t_{i,i+2})
//
// With (c, s) for the rotation the two diagonal elements change by p = s ((d_{i+1} - d_i) s + 2 c e_i), up and down. So
// their sum stays, and so do equal ones.
//
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., algorithm 8.3.2; the formula with p: Bowdler, Martin, Reinsch
// and Wilkinson, Numer. Math. 11 (1968) 293-306.
// Cost: an inverse square root and a reciprocal a row and sweep. Random matrices take about two sweeps an eigenvalue.
// Accuracy: the error of each eigenvalue and the residual are of order k u |T| at most. Off-diagonal elements that count
// as zero add sqrt(k) bound at most. No small eigenvalue is known relatively.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_TRIDIAGONAL_QR_H_
#endif

#include "engine/algorithms/lanes/grouped_sweeps.h"

SVD_KERNEL_BEGIN

// A Form of lanes/grouped_sweeps.h.
template <class L>
class TridiagonalForm {
 public:
  using Lane = L;
  using T = typename L::Scalar;
  using Writer = RotationWriter<L, false>;

  // d, e: k numbers each; e with a zero at its end.
  SVD_HD TridiagonalForm(L* d, L* e, L bound) : d_(d), e_(e), bound_(bound) {}

  SVD_HD bool is_split(int i) const { return is_zero(e_[i]); }
  SVD_HD int stops_shifts(int /*i*/) const { return 0; }
  SVD_HD L largest(const LastRows& rows) const {
    L largest = abs(d_[rows.last]);
    for (int i = rows.first; i < rows.last; ++i) largest = at_least(largest, at_least(abs(d_[i]), abs(e_[i])));
    return largest;
  }
  SVD_HD L diagonal(const LastRows& /*rows*/, int i, L scale) const { return d_[i] * scale; }
  SVD_HD L off_diagonal(int i, L scale) const { return e_[i] * scale; }
  SVD_HD L shift(L x, L largest) const { return x * largest; }

  class Sweep {
   public:
    SVD_HD Sweep(const TridiagonalForm& of, const SweptBlock& block, int end, L shift, int number, Writer* to)
        : of_(of), to_(to), number_(number), low_(block.low), end_(end), left_{block.low, end, 0}, shift_(shift) {}

    SVD_HD int low() const { return low_; }
    SVD_HD int end() const { return end_; }
    SVD_HD void start() {
      d_ = of_.d_[low_];
      b_ = z_ = of_.e_[low_];
      y_ = d_ - shift_;
      if (of_.is_zero(b_)) end_ = low_;
    }
    SVD_HD void rotate(int i) {
      // T is about one, so (y, z) is zero below 2^-60 (f64: 2^-450).
      constexpr bool kSingle = sizeof(T) == 4;
      const L least(T(kSingle ? 0x1p-120 : 0x1p-900));
      const L next = of_.d_[i + 1], beyond = of_.e_[i + 1];
      const Turn<L> turn(y_, z_, least);
      const L c = turn.f * turn.inverse, s = turn.g * turn.inverse;
      if (i > low_) {
        of_.e_[i - 1] = turn.r;
        if (of_.is_zero(turn.r)) left_ = {i, end_, 0};
      }
      const L q = fma(next - d_, s, c * (b_ + b_)), p = s * q;
      of_.d_[i] = d_ + p;
      d_ = next - p;
      y_ = fma(c, q, -b_);
      z_ = s * beyond;
      b_ = c * beyond;
      to_->rotation(number_, i, turn.plane());
      if (of_.is_zero(beyond)) end_ = i + 1;
    }
    SVD_HD void finish() const {
      of_.e_[end_ - 1] = y_;
      of_.d_[end_] = d_;
    }
    SVD_HD SweptBlock left() const { return {left_.low, end_, 0}; }
    SVD_HD void fill() const { to_->no_rotations(number_, low_, end_); }

   private:
    const TridiagonalForm& of_;
    Writer* const to_;
    const int number_, low_;
    int end_;
    SweptBlock left_;
    const L shift_;
    // The diagonal element of the next row and the element beside it, as far as they are rotated; and (y, z).
    L d_{0}, b_{0}, y_{0}, z_{0};
  };

 private:
  SVD_HD bool is_zero(L x) const { return (abs(x) <= bound_).m; }

  L* const d_;
  L* const e_;
  const L bound_;
};

template <class L, class Threads>
using TridiagonalQr = GroupedSweeps<TridiagonalForm<L>, Threads>;

SVD_KERNEL_END

#endif
