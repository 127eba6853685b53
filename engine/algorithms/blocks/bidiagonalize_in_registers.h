// Householder bidiagonalization of a k x k matrix, k <= K, in the registers of a few threads, or of a block's. It is the
// algorithm of lanes/bidiagonalize.h, bit for bit.
//
//   in:   A, scaled; q(j, x) and e(j, x) get |b_jj|^2 and |b_{j,j+1}|^2, in every thread
//   out:  Q^H A P = B where reflectors are wanted: Q = H_0 H_1 .., P = H'_0 H'_1 .., each I - g h h^H.
//         reflectors.left(j, i, h_i), .right(j, i, h_i) in the thread that has it, i from the last multiple of R or C
//         that is not beyond the first of H; .left_end(j, g, b_jj), .right_end(j, g, b_{j,j+1}) in thread 0
//
// The threads are the grid of blocks/register_grid.h. Step j:
//
//   u = A(:, j) from the threads of its column; g u^H A(:, m): sums along the rows of the grid; A(:, m) -= u w
//   v = A(j, :) from the threads of its row; g A(l, :) conj(v): sums along its columns; A(l, :) -= w v^T
//
// Numbers of rows and columns that are done are zero in u and v. A stage of C steps has its pivots at a place known to
// the compiler, m = l C / R. The code of a step is there once a stage, with the loops as long as the stage needs.
//
// Shared memory held the matrix before. There a step reads four numbers and writes two for each element, and 8 threads
// repeat each reflector. Cost for each thread and step: 4 K^2 / (R C) fused operations at most, the scalars of two
// reflectors, and about 2 (K / R + K / C) exchanges.
// Source and accuracy: lanes/bidiagonalize.h.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_REGISTERS_H_
#endif

#include "engine/algorithms/blocks/register_grid.h"

SVD_KERNEL_BEGIN

// For values alone.
struct NoReflectors {
  static constexpr bool kWanted = false;
};

template <class Threads, class E, int K, int R, int C>
class BidiagonalizeInRegisters : public RegisterGrid<Threads, E, K, R, C> {
  using Grid = RegisterGrid<Threads, E, K, R, C>;
  using Grid::c_;
  using Grid::from_column;
  using Grid::in_column;
  using Grid::k_;
  using Grid::over_cols;
  using Grid::over_rows;
  using Grid::r_;
  using Grid::threads_;

 public:
  using Grid::col;
  using Grid::Grid;
  using Grid::kCols;
  using Grid::kRows;
  using Grid::row;
  using L = typename E::Lane;

  template <class Part, class Diagonal, class Superdiagonal, class Reflectors = NoReflectors>
  SVD_HD void run(Part& a, Diagonal q, Superdiagonal e, Reflectors reflectors = {}) {
    stages<0>(a, q, e, reflectors);
  }

 private:
  template <int kStage, class Part, class Diagonal, class Superdiagonal, class Reflectors>
  SVD_HD void stages(Part& a, Diagonal q, Superdiagonal e, const Reflectors& reflectors) {
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
  template <int kStage, class Part, class Reflectors>
  SVD_HD L reflect_columns(Part& a, int i, const Reflectors& reflectors) {
    constexpr int kFirst = C * kStage / R;  // the first local row of any thread that is not done
    const int j = C * kStage + i;
    E u[kRows - kFirst];
    SVD_UNROLL for (int l = kFirst; l < kRows; ++l) u[l - kFirst] = a[kStage][l];
    from_column(u, i);
    if (row(kFirst) < j) u[0] = zero_element<E>();
    const auto square = [&](L s, int l) SVD_LAMBDA { return add_square(s, u[l - kFirst]); };
    const L norm2 = over_rows(Grid::template in_thread<R, kFirst, kRows>(L(0), square));
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
      const E w = scaled(over_rows(Grid::template in_thread<R, kFirst, kRows>(zero_element<E>(), product)), h.g);
      SVD_UNROLL for (int l = kFirst; l < kRows; ++l) a[m][l] = subtract_product(a[m][l], u[l - kFirst], w);
    }
    return norm2;
  }

  // The same from the right. Returns |A(j, j + 1:)|^2; a row of one element stays as it is.
  template <int kStage, class Part, class Reflectors>
  SVD_HD L reflect_rows(Part& a, int i, const Reflectors& reflectors) {
    constexpr int kFirst = C * kStage / R, kNext = kStage + 1 < kCols ? kStage + 1 : kStage;
    const int j = C * kStage + i;
    E v[kCols];
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) v[m] = in_column(a[m][kFirst], j % R);
    if (c_ <= i) v[kStage] = zero_element<E>();
    const auto square = [&](L s, int m) SVD_LAMBDA { return add_square(s, v[m]); };
    L norm2[1] = {Grid::template in_thread<C, kStage, kCols>(L(0), square)};
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
      w[l - kFirst] = Grid::template in_thread<C, kStage, kCols>(zero_element<E>(), product);
    }
    over_cols(w);
    SVD_UNROLL for (int l = kFirst; l < kRows; ++l) {
      w[l - kFirst] = scaled(w[l - kFirst], g);
      SVD_UNROLL for (int m = kStage; m < kCols; ++m) a[m][l] = subtract_product(a[m][l], v[m], w[l - kFirst]);
    }
    return norm2[0];
  }
};

SVD_KERNEL_END

#endif
