// One singular value of a bidiagonal matrix B by bisection. It does not wait for the others, so each has a thread.
//
//   in:   q_i = |b_ii|^2 (i < k), e_i = |b_{i,i+1}|^2 (i < k - 1), |B| >= 1 / k or so
//   out:  the value with j smaller ones
//
// Negative pivots of B^T B - x^2 I = L D L^T are the values below x. The differential form of the stationary qd has them:
//
//   t_0 = -x^2;   d_i = q_i + t_i,   t_{i+1} = e_i t_i / d_i - x^2
//
// It knows small values as B has them. The count of B^T B by its elements (lanes/bisection.h) loses half of the digits.
// A pivot nearer to zero than kNegligibleSquare largest(q, e) is replaced by the negative of that bound, and t_i by
// d_i - q_i. That changes a diagonal element of B^T B by twice the bound. With d_i alone q_i would change, which may be
// zero.
//
// Intervals begin at [0, bound], bound = 2 sqrt(largest(q, e)) >= s_max, and are halved kSteps times. Threads with the
// same interval take the same middle and count. So the values of all j are in order, whatever the rounding errors.
//
// Source: Fernando and Parlett, Numer. Math. 67 (1994) 191-229 (stationary qd); Demmel, Dhillon, Ren, ETNA 3 (1995)
// 116-149 (counts). LAPACK's dlaneg has the same recurrence.
// Cost: kSteps k reciprocals.
// Accuracy: the steps leave u s_max / 2 at most. A count is that of q and e with relative errors of 3 u each at most.
// They move a value by 3 k u relatively at most, and in the tests by 3 u s_max.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_VALUE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_VALUE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_VALUE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_BISECTED_VALUE_H_
#endif

#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// squares: q_0, e_0, q_1, .., q_{k-1}.
template <class L>
class BisectedValue {
 public:
  using T = typename L::Scalar;

  SVD_HD BisectedValue(int k, const L* squares) : k_(k), squares_(squares) {
    L largest(0);
    for (int i = 0; i < 2 * k - 1; ++i) largest = larger(largest, squares[i]);
    least_pivot_ = L(FloatTraits<T>::kNegligibleSquare) * largest;
    bound_ = L(2) * sqrt(largest);
  }

  SVD_HD L value(int j) const {
    constexpr int kSteps = FloatTraits<T>::kMantissaBits + 2;
    const L half(T(0.5));
    // Invariant: at most j values are below a, and more than j below b.
    L a(0), b = bound_;
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
    const L shift = x * x;
    L t = -shift;
    int count = 0;
    for (int i = 0;; ++i) {
      const L q = squares_[2 * i];
      L d = q + t;
      const auto is_near = abs(d) < least_pivot_;
      d = select(is_near, -least_pivot_, d);
      t = select(is_near, d - q, t);
      count += (d < L(0)).m ? 1 : 0;
      if (i + 1 == k_) return count;
      t = fma(squares_[2 * i + 1], t * reciprocal(d), -shift);
    }
  }

  const int k_;
  const L* const squares_;
  L least_pivot_, bound_;
};

SVD_KERNEL_END

#endif
