// Householder tridiagonalization of a Hermitian k x k matrix, k <= K, in the registers of a few threads, or of a block's.
//
//   in:   A, scaled, both triangles
//   out:  Q^H A Q = T, Q = H_0 H_1 .. H_{k-2}, H_j = I - g h^H h for a row h, which begins with element j + 1
//         to.diagonal(j, t_jj), .off_diagonal(j, g, t_{j+1,j}) in every thread, and with vectors .reflector(j, i, h_i) in
//         the thread that has it, i from the last multiple of R that is not beyond j + 1
//
// The threads are the grid of blocks/register_grid.h. Step j, with u = A(j + 1 :, j) and then with its first element
// replaced:
//
//   u from the threads of its column;   p^H = u^H A: sums along the rows of the grid
//   p along the rows, from the threads (r, r mod C);   w = g p - (g^2 / 2) (u^H p) u
//   A -= u w^H + w u^H, with the elements of u and w along the columns from the threads of the column
//
// Rows and columns that are done are only multiplied by further reflectors, and nobody reads them.
// A stage of C steps has its pivots at a place known to the compiler, as in bidiagonalize_in_registers.h.
// Cost for each thread and step: 6 K^2 / (R C) fused operations at most (complex: four times), and the scalars of a
// reflector. There are about K / C (log2 R + 2) exchanges in a warp, and two of K / R elements between warps.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 8.3.1, for both triangles.
// Accuracy: T and Q are those of A + E, |E|_F of order k u |A|_F at most.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_REGISTERS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_REGISTERS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_REGISTERS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_REGISTERS_H_
#endif

#include "engine/algorithms/blocks/register_grid.h"

SVD_KERNEL_BEGIN

template <class Threads, class E, int K, int R, int C>
class TridiagonalizeInRegisters : public RegisterGrid<Threads, E, K, R, C> {
  using Grid = RegisterGrid<Threads, E, K, R, C>;
  using Grid::c_;
  using Grid::from_column;
  using Grid::in_column;
  using Grid::k_;
  using Grid::over_rows;
  using Grid::r_;

 public:
  using Grid::Grid;
  using Grid::kCols;
  using Grid::kRows;
  using Grid::row;
  using L = typename E::Lane;
  using T = typename E::Scalar;

  template <class Part, class To>
  SVD_HD void run(Part& a, const To& to) {
    stages<0>(a, to);
  }

 private:
  template <int kStage, class Part, class To>
  SVD_HD void stages(Part& a, const To& to) {
    if constexpr (kStage < kCols) {
      if (C * kStage >= k_) return;
      SVD_LOOP for (int i = 0; i < C; ++i) {
        if (C * kStage + i < k_) step<kStage>(a, i, to);
      }
      stages<kStage + 1>(a, to);
    }
  }

  // Step j = C kStage + i.
  template <int kStage, class Part, class To>
  SVD_HD void step(Part& a, int i, const To& to) {
    constexpr int kFirst = C * kStage / R;  // the first local row of any thread that is not done
    constexpr int kNext = kFirst + 1 < kRows ? 1 : 0, kLeft = kRows - kFirst;
    const int j = C * kStage + i;
    E u[kLeft];
    SVD_UNROLL for (int l = 0; l < kLeft; ++l) u[l] = a[kStage][kFirst + l];
    from_column(u, i);
    to.diagonal(j, in_column(u[0], j % R).re);
    if (row(kFirst) <= j) u[0] = zero_element<E>();
    if (j + 1 == k_) return;
    const auto square = [&](L s, int l) SVD_LAMBDA { return add_square(s, u[l - kFirst]); };
    const L norm2 = over_rows(Grid::template in_thread<R, kFirst, kRows>(L(0), square));
    const bool in_row = (j + 1) % R != 0;  // row j + 1 is in the local row of row j
    const E x0 = in_column(in_row ? u[0] : u[kNext], (j + 1) % R);
    const Reflector<E> h = reflector_of<E>(norm2, x0);
    const L g = j + 2 < k_ ? h.g : L(0);
    if (in_row && row(kFirst) == j + 1) u[0] = h.u0;
    if (!in_row && r_ == 0) u[kNext] = h.u0;
    SVD_UNROLL for (int l = 0; l < kLeft; ++l) {
      if (c_ == i) to.reflector(j, row(kFirst + l), conj(u[l]));
    }
    to.off_diagonal(j, g, j + 2 < k_ ? h.beta : x0);
    E w[kLeft];
    multiply<kStage>(a, u, w);
    const auto product = [&](L s, int l) SVD_LAMBDA { return add_real_product(s, u[l - kFirst], w[l - kFirst]); };
    const L up = over_rows(Grid::template in_thread<R, kFirst, kRows>(L(0), product));
    const L half = g * (g * up) * L(T(-0.5));
    SVD_UNROLL for (int l = 0; l < kLeft; ++l) {
      E x = scaled(w[l], g);
      x.re = fma(half, u[l].re, x.re);
      if constexpr (E::kComplex) x.im = fma(half, u[l].im, x.im);
      w[l] = x;
    }
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) {
      // Column C m + c of A is row R l + r of u, and l is known to the compiler.
      const int l_of = C * m / R - kFirst, r_of = C * m % R + c_;
      const E of_u = conj(in_column(u[l_of], r_of)), of_w = conj(in_column(w[l_of], r_of));
      SVD_UNROLL for (int l = 0; l < kLeft; ++l) {
        a[m][kFirst + l] = subtract_product(subtract_product(a[m][kFirst + l], u[l], of_w), w[l], of_u);
      }
    }
  }

  // p := A u by rows. Rows that are done get anything.
  template <int kStage, class Part, int kLeft>
  SVD_HD void multiply(Part& a, const E (&u)[kLeft], E (&p)[kLeft]) {
    constexpr int kFirst = kRows - kLeft, kWays = R / C;
    E by_column[kCols];
    SVD_UNROLL for (int m = 0; m < kCols; ++m) {
      by_column[m] = zero_element<E>();
      if (m < kStage) continue;
      const auto product = [&](const E& s, int l) SVD_LAMBDA { return add_product(s, u[l - kFirst], a[m][l]); };
      by_column[m] = over_rows(Grid::template in_thread<R, kFirst, kRows>(zero_element<E>(), product));
    }
    SVD_UNROLL for (int l = 0; l < kLeft; ++l) {
      p[l] = by_column[kWays * (kFirst + l)];
      SVD_UNROLL for (int way = 1; way < kWays; ++way) {
        if (r_ / C == way) p[l] = by_column[kWays * (kFirst + l) + way];
      }
    }
    from_column(p, r_ % C);
    SVD_UNROLL for (int l = 0; l < kLeft; ++l) p[l] = conj(p[l]);
  }
};

SVD_KERNEL_END

#endif
