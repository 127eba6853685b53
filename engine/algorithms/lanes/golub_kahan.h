// Singular values of an upper bidiagonal matrix B by implicitly shifted QR, with the rotations that make the vectors; one
// matrix a thread.
//
//   in:   d_i = b_ii (i < k), e_i = b_{i,i+1} (i < k - 1), real; `bound`: a superdiagonal that is no larger is zero
//   out:  B = U diag(d) V^T, d_i of any sign and in no order; U and V are the products of the rotations
//
// A sweep over the rows low .. high, between which no e_i is zero, with the shift mu. mu is the eigenvalue of the last
// 2 x 2 block of B^T B that is closer to its last element:
//
//   (y, z) = (d_low - mu / d_low, e_low)
//   i = low .. high - 1:   columns i, i + 1 by the rotation that takes (y, z) to (r, 0);   e_{i-1} = r
//                          (y, z) = (b_ii, b_{i+1,i})
//                          rows i, i + 1 by the rotation that takes (y, z) to (r, 0);      d_i = r
//                          (y, z) = (b_{i,i+1}, b_{i,i+2})
//
// It makes e_{high-1} small, cubically fast in the end. Where some d_i is zero a shift would not pass it, and mu is zero:
// one sweep then makes e_{high-1} zero. `high` only falls, so a group of sweeps (lanes/rotation_groups.h) needs the
// columns up to that of its first.
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

#include "engine/algorithms/lanes/rotation_groups.h"

SVD_KERNEL_BEGIN

template <class L>
class GolubKahan {
 public:
  using T = typename L::Scalar;

  // d, e: k numbers each, e with a zero at its end.
  SVD_HD GolubKahan(L* d, L* e, L bound) : d_(d), e_(e), bound_(bound) {}

  // Sweeps until all rows above `high` are done and it is zero, or until `to` has no room for another group. Returns
  // the row at which it goes on.
  SVD_HD int run(int high, RotationWriter<L>* to) {
    high = deflated(high);
    while (high > 0 && to->begin(high)) {
      for (int number = 0; number < RotationGroup::kSweeps; ++number) {
        if (high == 0) {
          to->sweep(number, 0, 0);
          continue;
        }
        sweep(high, number, to);
        high = deflated(high);
      }
    }
    return high;
  }

 private:
  SVD_HD int deflated(int high) const {
    while (high > 0 && (abs(e_[high - 1]) <= bound_).m) --high;
    return high;
  }

  // mu / d_low as above, of the rows low .. high. Numbers relative to the largest of the block have squares in range.
  SVD_HD L shift(int low, int high) const {
    L a = d_[high - 1], b = e_[high - 1], c = d_[high], above = high - 1 > low ? e_[high - 2] : L(0);
    const L largest = at_least(at_least(abs(a), abs(b)), at_least(abs(c), abs(above)));
    const L scale = reciprocal(largest);
    a = a * scale;
    b = b * scale;
    c = c * scale;
    above = above * scale;
    const L off = a * b, last = fma(c, c, b * b);
    const L half = L(T(0.5)) * (fma(a, a, above * above) - last);
    const L root = sqrt_in_range(at_least(fma(half, half, off * off), L(FloatTraits<T>::kNegligibleSquare)));
    const L mu = last - off * off * reciprocal(half + copysign(root, half));
    return mu * (largest * reciprocal(d_[low])) * largest;
  }

  SVD_HD void sweep(int high, int number, RotationWriter<L>* to) {
    int low = high - 1;
    L least = abs(d_[high - 1]);
    while (low > 0 && (abs(e_[low - 1]) > bound_).m) {
      --low;
      least = at_most(least, abs(d_[low]));
    }
    to->sweep(number, low, high);
    L x = d_[low], b = e_[low];
    L y = x - ((least <= bound_).m ? L(0) : shift(low, high)), z = b;
    SVD_LOOP for (int i = low; i < high; ++i) {
      const RotationToFirst<L> right(y, z);
      if (i > low) e_[i - 1] = right.r;
      to->right(number, i, right.plane());
      const L next = d_[i + 1], beyond = e_[i + 1];
      y = fma(right.s, b, right.c * x);
      b = fma(right.c, b, -(right.s * x));
      z = right.s * next;
      x = right.c * next;
      const RotationToFirst<L> left(y, z);
      d_[i] = left.r;
      to->left(number, i, left.plane());
      y = fma(left.s, x, left.c * b);
      x = fma(left.c, x, -(left.s * b));
      z = left.s * beyond;
      b = left.c * beyond;
    }
    d_[high] = x;
    e_[high - 1] = y;
  }

  L* const d_;
  L* const e_;
  const L bound_;
};

SVD_KERNEL_END

#endif
