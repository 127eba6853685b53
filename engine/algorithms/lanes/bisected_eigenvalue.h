// One eigenvalue of a real symmetric tridiagonal matrix T by bisection. It does not wait for the others, so each has a thread.
//
//   in:   d_i = t_ii (i < k), b_i = t_{i,i+1}^2 (i < k - 1)
//   out:  the eigenvalue with j smaller ones
//
// Negative pivots of T - x I = L D L^T are the eigenvalues below x:
//
//   p_0 = d_0 - x;   p_{i+1} = (d_{i+1} - x) - b_i / p_i
//
// Intervals begin at [-bound, bound], bound = largest |d_i| + 2 largest |t_{i,i+1}| >= |T|, and are halved kSteps times. Threads
// with the same interval take the same middle and count. So the values of all j are in order, whatever the rounding errors.
// A pivot nearer to zero than kNegligibleSquare bound is replaced by the negative of that. It changes an element of the
// diagonal by twice as much.
//
// Source: Demmel, Dhillon, Ren, ETNA 3 (1995) 116-149. lanes/sturm_count.h has the count for lanes, with divisions.
// Cost: kSteps k reciprocals.
// Accuracy: the steps leave u |T| at most. A count is that of T with changes of 3 u |t_ij| and of 3 u |x| at most. In the tests
// eigenvalues of forms of up to 500 are off by 16 u |T| at most.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_EIGENVALUE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_EIGENVALUE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_EIGENVALUE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_EIGENVALUE_H_
#endif

#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// diagonal: d; squares: b.
template <class L>
class BisectedEigenvalue {
 public:
  using T = typename L::Scalar;

  SVD_HD BisectedEigenvalue(int k, const L* diagonal, const L* squares)
      : k_(k), diagonal_(diagonal), squares_(squares) {
    L of_diagonal(0), of_squares(0);
    for (int i = 0; i < k; ++i) {
      of_diagonal = larger(of_diagonal, abs(diagonal[i]));
      if (i + 1 < k) of_squares = larger(of_squares, squares[i]);
    }
    bound_ = of_diagonal + L(2) * sqrt(of_squares);
    least_pivot_ = larger(L(FloatTraits<T>::kNegligibleSquare) * bound_, L(FloatTraits<T>::kReciprocalSmallest));
  }

  SVD_HD L value(int j) const {
    constexpr int kSteps = FloatTraits<T>::kMantissaBits + 3;
    const L half(T(0.5));
    // Invariant: at most j eigenvalues are below a, and more than j below b.
    L a = -bound_, b = bound_;
    for (int step = 0; step < kSteps; ++step) {
      const L x = half * (a + b);
      const bool goes_down = values_below(x) > j;
      b = goes_down ? x : b;
      a = goes_down ? a : x;
    }
    return half * (a + b);
  }

 private:
  SVD_HD int values_below(L x) const {
    int count = 0;
    L p = diagonal_[0] - x;
    for (int i = 0;; ++i) {
      p = select(abs(p) < least_pivot_, -least_pivot_, p);
      count += (p < L(0)).m ? 1 : 0;
      if (i + 1 == k_) return count;
      p = fnma(squares_[i], reciprocal(p), diagonal_[i + 1] - x);
    }
  }

  const int k_;
  const L *const diagonal_, *const squares_;
  L least_pivot_, bound_;
};

SVD_KERNEL_END

#endif
