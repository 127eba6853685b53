// Threads that have the columns of a matrix in pairs. kSplit neighbouring threads have a pair: row i kSplit + part of its
// two columns is in thread `part`, which has kRows rows. They take part in the odd-even exchange (jacobi/odd_even.h).
//
// Sums over a column: a thread deals its rows to kPartials partial sums in turn, and joins them by a tree. The threads of
// a pair join theirs by exchanges at distance kSplit / 2, .., 1. With kSplit kPartials = 8 that is core/reduce.h's order.
// The code is that of one thread of a warp or a block (core/team.h).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PAIR_THREADS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PAIR_THREADS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PAIR_THREADS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_PAIR_THREADS_H_
#endif

#include "engine/core/element.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

template <class Threads, class E, int kRows, int kSplit, int kPartials>
class PairThreads {
 public:
  using L = typename E::Lane;

  explicit SVD_HD PairThreads(const Threads& threads) : threads_(threads) {}

  SVD_HD const Threads& threads() const { return threads_; }
  SVD_HD L exchanged(L v, int distance) const { return L(threads_.exchanged(v.v, distance)); }
  SVD_HD E exchanged(E v, int distance) const {
    v.re = exchanged(v.re, distance);
    if constexpr (E::kComplex) v.im = exchanged(v.im, distance);
    return v;
  }

  // The sum of the partial sums of all threads of the pair.
  template <class Sum>
  SVD_HD Sum joined(Sum (&s)[kPartials]) const {
    SVD_UNROLL for (int n = kPartials / 2; n > 0; n /= 2) {
      SVD_UNROLL for (int i = 0; i < n; ++i) s[i] = s[i] + s[i + n];
    }
    Sum sum = s[0];
    SVD_UNROLL for (int d = kSplit / 2; d > 0; d /= 2) sum = sum + exchanged(sum, d);
    return sum;
  }
  // add(sum, i): sum + the term of row i of this thread.
  template <class Sum, class Add>
  SVD_HD Sum sum(const Sum& zero, Add add) const {
    Sum s[kPartials];
    SVD_UNROLL for (int p = 0; p < kPartials; ++p) s[p] = zero;
    SVD_UNROLL for (int i = 0; i < kRows; ++i) s[i % kPartials] = add(s[i % kPartials], i);
    return joined(s);
  }
  // |x|^2 and x^H y of columns by their rows in this thread: x(i), y(i).
  template <class X>
  SVD_HD L square_of(X x) const {
    return sum(L(0), [&](L s, int i) SVD_LAMBDA { return add_square(s, E(x(i))); });
  }
  template <class X, class Y>
  SVD_HD E product_of(X x, Y y) const {
    return sum(zero_element<E>(), [&](const E& s, int i) SVD_LAMBDA { return add_product(s, E(x(i)), E(y(i))); });
  }

 private:
  const Threads threads_;
};

SVD_KERNEL_END

#endif
