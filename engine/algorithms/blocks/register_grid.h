// A k x k matrix, k <= K, in the registers of a few threads, or of a block's: what algorithms on it have in common.
//
// The threads are a grid of R x C. Thread r + R c has the elements (R l + r, C m + c), which are a[m][l]. So no thread
// runs out of work while the rest of a matrix shrinks.
//
// The R threads of a column of the grid are neighbours in a warp. Columns may be in several, so what goes along a row of
// the grid is told for all rows of a thread at once.
// Sums are trees of 8 partials, with R = 16 of 16 (core/reduce.h). A thread has whole partials of each, and the tree
// begins in the thread. Where partials begin does not matter, so they are those of absolute rows and columns.
// Threads: core/team.h, numbered from zero, R C of them, and for arrays of n numbers
//   exchange_all(x, distance)   x := that of the thread whose number differs in the bits of `distance`
//   take_all(x, thread)         x := that of `thread`
//   add_all<R>(x)               x := the sum of those of all threads of this row of the grid: a tree, from the largest
//                               distance down
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_REGISTER_GRID_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_REGISTER_GRID_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_REGISTER_GRID_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_REGISTER_GRID_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/scaling.h"

SVD_KERNEL_BEGIN

// A thread's part of a matrix: a[m][l]. Where registers have no room for all of it, the first kElsewhere columns are in
// memory: their element n is at elsewhere[n * kThreads].
template <class E, int kCols, int kRows, int kElsewhere = 0, int kThreads = 1>
class PartOfMatrix {
 public:
  explicit SVD_HD PartOfMatrix(E* elsewhere) : elsewhere_(elsewhere) {}

  struct Column {
    PartOfMatrix* part;
    int m;
    SVD_HD E& operator[](int l) const {
      if constexpr (kElsewhere > 0) {
        if (m < kElsewhere) return part->elsewhere_[(m * kRows + l) * kThreads];
      }
      return part->registers_[m - kElsewhere][l];
    }
  };
  SVD_HD Column operator[](int m) { return {this, m}; }

 private:
  static_assert(kElsewhere < kCols);
  E registers_[kCols - kElsewhere][kRows];
  E* const elsewhere_;
};

template <class Threads, class E, int K, int R, int C>
class RegisterGrid {
 public:
  static_assert(R % C == 0 && K % R == 0);
  static constexpr int kPartials = R > 8 ? R : 8;  // of a sum
  static_assert(kPartials % R == 0);
  static constexpr int kThreads = R * C, kRows = K / R, kCols = K / C;
  using L = typename E::Lane;
  using T = typename E::Scalar;

  // k: columns of the matrix; rows and columns of a beyond it are zero. threads.index() < kThreads.
  SVD_HD RegisterGrid(const Threads& threads, int k)
      : threads_(threads), k_(k), r_(threads.index() % R), c_(threads.index() / R) {}

  SVD_HD int row(int l) const { return R * l + r_; }
  SVD_HD int col(int m) const { return C * m + c_; }

  // Step 1 of lanes/matrix_values.h, with one power of two for the matrix. Returns whether it is finite; one that is not
  // goes on as zero. exponent: of the power.
  template <class Part>
  SVD_HD bool scale(Part& a, L* exponent) {
    L largest(0);
    SVD_UNROLL for (int m = 0; m < kCols; ++m) {
      SVD_UNROLL for (int l = 0; l < kRows; ++l) largest = raise_to_any_magnitude(largest, a[m][l]);
    }
    SVD_UNROLL for (int d = R / 2; d > 0; d /= 2) {
      largest = at_least_magnitude(L(threads_.exchanged(largest.v, d)), largest);
    }
    SVD_UNROLL for (int d = C / 2; d > 0; d /= 2) {
      T other[1] = {largest.v};
      threads_.exchange_all(other, R * d);
      largest = at_least_magnitude(L(other[0]), largest);
    }
    const bool finite = largest.v <= FloatTraits<T>::kLargest;
    *exponent = binary_exponent(finite ? largest : L(0));
    const Pow2<L> scale = make_pow2(-*exponent);
    SVD_UNROLL for (int m = 0; m < kCols; ++m) {
      SVD_UNROLL for (int l = 0; l < kRows; ++l) {
        a[m][l] = finite ? scaled(scaled(a[m][l], scale.first), scale.second) : zero_element<E>();
      }
    }
    return finite;
  }

 protected:
  // --- sums -----------------------------------------------------------------------------------------------------------

  // This thread's part of a sum along a grid of kGroups: the terms kFirst .. kLast - 1 of its own.
  template <int kGroups, int kFirst, int kLast, class Sum, class Add>
  SVD_HD static Sum in_thread(const Sum& zero, Add add) {
    constexpr int kOwn = kPartials / kGroups;
    Sum s[kOwn];
    SVD_UNROLL for (int p = 0; p < kOwn; ++p) s[p] = zero;
    SVD_UNROLL for (int x = kFirst; x < kLast; ++x) s[x % kOwn] = add(s[x % kOwn], x);
    SVD_UNROLL for (int half = kOwn / 2; half > 0; half /= 2) {
      SVD_UNROLL for (int p = 0; p < half; ++p) s[p] = s[p] + s[p + half];
    }
    return s[0];
  }
  template <class Sum>
  SVD_HD Sum over_rows(Sum s) const {
    SVD_UNROLL for (int d = R / 2; d > 0; d /= 2) s = s + exchanged(s, d);
    return s + Sum{};
  }
  template <class Sum, int n>
  SVD_HD void over_cols(Sum (&s)[n]) {
    threads_.template add_all<R>(numbers(s));
    SVD_UNROLL for (int x = 0; x < n; ++x) s[x] = s[x] + Sum{};
  }

  // --- other threads --------------------------------------------------------------------------------------------------

  // Lanes and elements as the numbers that they consist of.
  template <class X, int n>
  SVD_HD static T (&numbers(X (&x)[n]))[n * sizeof(X) / sizeof(T)] {
    return reinterpret_cast<T(&)[n * sizeof(X) / sizeof(T)]>(x);
  }
  SVD_HD L exchanged(L x, int distance) const { return L(threads_.exchanged(x.v, distance)); }
  SVD_HD E exchanged(E x, int distance) const {
    x.re = exchanged(x.re, distance);
    if constexpr (E::kComplex) x.im = exchanged(x.im, distance);
    return x;
  }
  // x of thread r of this column of the grid.
  SVD_HD E in_column(E x, int r) const {
    x.re = L(threads_.from_lane(x.re.v, r + R * c_));
    if constexpr (E::kComplex) x.im = L(threads_.from_lane(x.im.v, r + R * c_));
    return x;
  }
  // x := that of this row of the grid in column c.
  template <int n>
  SVD_HD void from_column(E (&x)[n], int c) {
    threads_.take_all(numbers(x), r_ + R * c);
  }

  Threads threads_;
  const int k_, r_, c_;
};

SVD_KERNEL_END

#endif
