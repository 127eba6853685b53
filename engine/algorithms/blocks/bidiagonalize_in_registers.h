// Householder bidiagonalization of a k x k matrix, k <= K, in the registers of a few threads, or of a block's. It is the
// algorithm of lanes/bidiagonalize.h, bit for bit.
//
//   in:   A, scaled; q(j, x) and e(j, x) get |b_jj|^2 and |b_{j,j+1}|^2, in every thread
//   out:  Q^H A P = B where reflectors are wanted: Q = H_0 H_1 .., P = H'_0 H'_1 .., each I - g h h^H.
//         reflectors.left(j, i, h_i), .right(j, i, h_i) in the thread that has it, i from the last multiple of R or C
//         that is not beyond the first of H; .left_end(j, g, b_jj), .right_end(j, g, b_{j,j+1}) in thread 0
//
// The threads are a grid of R x C. Thread r + R c has the elements (R l + r, C m + c), which are a[m][l]. So no thread
// runs out of work while the rest of the matrix shrinks. Step j:
//
//   u = A(:, j) from the threads of its column; g u^H A(:, m): sums along the rows of the grid; A(:, m) -= u w
//   v = A(j, :) from the threads of its row; g A(l, :) conj(v): sums along its columns; A(l, :) -= w v^T
//
// The R threads of a column of the grid are neighbours in a warp. Columns may be in several, so what goes along a row of
// the grid is told for all rows of a thread at once.
// Numbers of rows and columns that are done are zero in u and v. A stage of C steps has its pivots at a place known to
// the compiler, m = l C / R. The code of a step is there once a stage, with the loops as long as the stage needs.
// Sums are trees of 8 partials, with R = 16 of 16 (core/reduce.h). A thread has whole partials of each, and the tree
// begins in the thread. Where partials begin does not matter, so they are those of absolute rows and columns.
//
// Shared memory held the matrix before. There a step reads four numbers and writes two for each element, and 8 threads
// repeat each reflector. Cost for each thread and step: 4 K^2 / (R C) fused operations at most, the scalars of two
// reflectors, and about 2 (K / R + K / C) exchanges.
// Threads: core/team.h, numbered from zero, R C of them, and for arrays of n numbers
//   exchange_all(x, distance)   x := that of the thread whose number differs in the bits of `distance`
//   take_all(x, thread)         x := that of `thread`
//   add_all<R>(x)               x := the sum of those of all threads of this row of the grid: a tree, from the largest
//                               distance down
// Source and accuracy: lanes/bidiagonalize.h.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/scaling.h"

SVD_KERNEL_BEGIN

// For values alone.
struct NoReflectors {
  static constexpr bool kWanted = false;
};

template <class Threads, class E, int K, int R, int C>
class BidiagonalizeInRegisters {
 public:
  static_assert(R % C == 0 && K % R == 0);
  static constexpr int kPartials = R > 8 ? R : 8;  // of a sum
  static_assert(kPartials % R == 0);
  static constexpr int kThreads = R * C, kRows = K / R, kCols = K / C;
  using L = typename E::Lane;
  using T = typename E::Scalar;

  // k: columns of the matrix; rows and columns of a beyond it are zero. threads.index() < kThreads.
  SVD_HD BidiagonalizeInRegisters(const Threads& threads, int k)
      : threads_(threads), k_(k), r_(threads.index() % R), c_(threads.index() / R) {}

  SVD_HD int row(int l) const { return R * l + r_; }
  SVD_HD int col(int m) const { return C * m + c_; }

  // Step 1 of lanes/matrix_values.h, with one power of two for the matrix. Returns whether it is finite; one that is not
  // goes on as zero. exponent: of the power.
  SVD_HD bool scale(E (&a)[kCols][kRows], L* exponent) {
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

  template <class Diagonal, class Superdiagonal, class Reflectors = NoReflectors>
  SVD_HD void run(E (&a)[kCols][kRows], Diagonal q, Superdiagonal e, Reflectors reflectors = {}) {
    stages<0>(a, q, e, reflectors);
  }

 private:
  template <int kStage, class Diagonal, class Superdiagonal, class Reflectors>
  SVD_HD void stages(E (&a)[kCols][kRows], Diagonal q, Superdiagonal e, const Reflectors& reflectors) {
    if constexpr (kStage < kCols) {
      if (C * kStage >= k_) return;
      SVD_LOOP for (int i = 0; i < C; ++i) {
        const int j = C * kStage + i;
        if (j < k_) q(j, reflect_columns<kStage>(a, i, reflectors));
        if (j + 1 < k_) e(j, reflect_rows<kStage>(a, i, reflectors));
      }
      stages<kStage + 1>(a, q, e, reflectors);
    }
  }

  // Step j = C kStage + i, from the left. Returns |A(j:, j)|^2.
  template <int kStage, class Reflectors>
  SVD_HD L reflect_columns(E (&a)[kCols][kRows], int i, const Reflectors& reflectors) {
    constexpr int kFirst = C * kStage / R;  // the first local row of any thread that is not done
    const int j = C * kStage + i;
    E u[kRows - kFirst];
    SVD_UNROLL for (int l = kFirst; l < kRows; ++l) u[l - kFirst] = a[kStage][l];
    from_column(u, i);
    if (row(kFirst) < j) u[0] = zero_element<E>();
    const auto square = [&](L s, int l) SVD_LAMBDA { return add_square(s, u[l - kFirst]); };
    const L norm2 = over_rows(in_thread<R, kFirst, kRows>(L(0), square));
    const Reflector<E> h = reflector_of<E>(norm2, in_column(u[0], j % R));
    if (row(kFirst) == j) u[0] = h.u0;
    if constexpr (Reflectors::kWanted) {
      SVD_UNROLL for (int l = kFirst; l < kRows; ++l) {
        if (c_ == i) reflectors.left(j, row(l), conj(u[l - kFirst]));
      }
      if (threads_.index() == 0) reflectors.left_end(j, h.g, h.beta);
    }
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) {
      const auto product = [&](const E& s, int l) SVD_LAMBDA { return add_product(s, u[l - kFirst], a[m][l]); };
      const E w = scaled(over_rows(in_thread<R, kFirst, kRows>(zero_element<E>(), product)), h.g);
      SVD_UNROLL for (int l = kFirst; l < kRows; ++l) a[m][l] = subtract_product(a[m][l], u[l - kFirst], w);
    }
    return norm2;
  }

  // The same from the right. Returns |A(j, j + 1:)|^2; a row of one element stays as it is.
  template <int kStage, class Reflectors>
  SVD_HD L reflect_rows(E (&a)[kCols][kRows], int i, const Reflectors& reflectors) {
    constexpr int kFirst = C * kStage / R, kNext = kStage + 1 < kCols ? kStage + 1 : kStage;
    const int j = C * kStage + i;
    E v[kCols];
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) v[m] = in_column(a[m][kFirst], j % R);
    if (c_ <= i) v[kStage] = zero_element<E>();
    const auto square = [&](L s, int m) SVD_LAMBDA { return add_square(s, v[m]); };
    L norm2[1] = {in_thread<C, kStage, kCols>(L(0), square)};
    over_cols(norm2);
    const bool in_stage = i + 1 < C;  // column j + 1
    E x0[1] = {in_stage ? v[kStage] : v[kNext]};
    from_column(x0, (i + 1) % C);
    const Reflector<E> h = reflector_of<E>(norm2[0], x0[0]);
    if (in_stage && c_ == i + 1) v[kStage] = h.u0;
    if (!in_stage && c_ == 0) v[kNext] = h.u0;
    const L g = j + 2 < k_ ? h.g : L(0);
    if constexpr (Reflectors::kWanted) {
      SVD_UNROLL for (int m = kStage; m < kCols; ++m) {
        if (r_ == j % R) reflectors.right(j, col(m), v[m]);
      }
      if (threads_.index() == 0) reflectors.right_end(j, g, j + 2 < k_ ? h.beta : x0[0]);
    }
    E w[kRows - kFirst];
    SVD_UNROLL for (int l = kFirst; l < kRows; ++l) {
      const auto product = [&](const E& s, int m) SVD_LAMBDA { return add_product(s, v[m], a[m][l]); };
      w[l - kFirst] = in_thread<C, kStage, kCols>(zero_element<E>(), product);
    }
    over_cols(w);
    SVD_UNROLL for (int l = kFirst; l < kRows; ++l) {
      w[l - kFirst] = scaled(w[l - kFirst], g);
      SVD_UNROLL for (int m = kStage; m < kCols; ++m) a[m][l] = subtract_product(a[m][l], v[m], w[l - kFirst]);
    }
    return norm2[0];
  }

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
