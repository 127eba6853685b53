// QR of a rows x k matrix by a thread block, rows > k, Q kept; and multiplication by it.
//
//   reduce   A 2^-exponents = Q R;  R to a triangle, the reflectors stay in the factor
//   expand   X = Q [X_k; 0], a warp a column
//
// Householder's, unblocked (Golub and Van Loan, 3rd ed., algorithms 5.2.1 and 5.1.4): reflectors as in householder.h.
// Column c belongs to warp c mod the number of warps, row i of every column to thread i mod 32 of the warp. So no
// thread reads what another wrote, but for the column of the reflector; two barriers a reflector. The sum of a column's
// squares is of its own kind (32 partial sums and a butterfly). Reflectors need only |x_0| and the length of the rest.
// Threads of a block: core/team.h. Cost: 2 rows k^2 and 4 rows k^2 flops (complex: four times). Accuracy: column-wise
// backward stable. One matrix a block; the bits are a function of the matrix and of the block's size.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/scaling.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// The factor of one matrix, in memory that the block shares.
template <class E>
struct BlockFactor {
  E* a;                 // rows x k by columns: the reflectors, u_0 on the diagonal, and R above it
  typename E::Lane* g;  // k
  int rows, k;
  SVD_HD E* column(int j) const { return a + static_cast<int64_t>(j) * rows; }
};

template <class Threads, class E>
class BlockQr {
 public:
  using L = typename E::Lane;
  using T = typename E::Scalar;

  SVD_HD BlockQr(const Threads& threads, const BlockFactor<E>& factor)
      : threads_(threads),
        f_(factor),
        warp_(threads.index() / 32),
        warps_(threads.count() / 32),
        lane_(threads.index() % 32) {}

  // source(i, j): an element of A; by_rows: those of a row follow each other in memory. exponents: of the columns,
  // [0] NaN where A is not finite: then r has a NaN in it. r: [out] k x k, row by row.
  template <class Source>
  SVD_HD void reduce(const Source& source, bool by_rows, const T* exponents, E* r) const {
    const bool finite = exponents[0] == exponents[0];
    load(source, by_rows, exponents, finite);
    threads_.sync();
    for (int j = 0; j < f_.k; ++j) {
      const E* const u = f_.column(j);
      const Reflector<E> h = reflector(u, j);
      threads_.sync();
      if (threads_.index() == 0) {
        f_.column(j)[j] = h.u0;
        f_.g[j] = h.g;
        r[j * f_.k + j] = h.beta;
      }
      for (int c = first_column(j + 1); c < f_.k; c += warps_) reflect(u, j, h.u0, h.g, f_.column(c), 1);
      threads_.sync();
    }
    for (int x = threads_.index(); x < f_.k * f_.k; x += threads_.count()) {
      const int i = x / f_.k, j = x % f_.k;
      if (i != j) r[x] = i < j ? f_.column(j)[i] : zero_element<E>();
    }
    if (finite) return;
    threads_.sync();
    if (threads_.index() == 0) r[0].re = L(FloatTraits<T>::nan());
  }

  // Column c < columns of X at x(0, c), rows row_step elements apart. x_k: k x k, row by row. done(element): as it is
  // to be written.
  template <class X, class Done>
  SVD_HD void expand(const E* x_k, int columns, const X& x, int64_t row_step, const Done& done) const {
    for (int c = warp_; c < columns; c += warps_) {
      E* const y = x(c);
      for (int i = lane_; i < f_.rows; i += 32) y[i * row_step] = i < f_.k ? x_k[i * f_.k + c] : zero_element<E>();
      for (int j = f_.k - 1; j >= 0; --j) {
        const E* const u = f_.column(j);
        reflect(u, j, u[j], f_.g[j], y, row_step);
      }
      for (int i = lane_; i < f_.rows; i += 32) y[i * row_step] = done(y[i * row_step]);
    }
  }

 private:
  SVD_HD L across(L s) const {
    for (int d = 16; d > 0; d /= 2) s = s + L(threads_.from_lane(s.v, lane_ ^ d));
    return s;
  }
  // The first column from `least` on that belongs to this warp.
  SVD_HD int first_column(int least) const { return least + (warp_ - least % warps_ + warps_) % warps_; }

  template <class Source>
  SVD_HD void load(const Source& source, bool by_rows, const T* exponents, bool finite) const {
    const int64_t all = static_cast<int64_t>(f_.rows) * f_.k;
    for (int64_t x = threads_.index(); x < all; x += threads_.count()) {
      const int i = static_cast<int>(by_rows ? x / f_.k : x % f_.rows);
      const int j = static_cast<int>(by_rows ? x % f_.k : x / f_.rows);
      f_.column(j)[i] = finite ? scaled(source(i, j), make_pow2(-L(exponents[j]))) : zero_element<E>();
    }
  }
  // The reflector of the column from row j on, to every thread.
  SVD_HD Reflector<E> reflector(const E* column, int j) const {
    L square(0);
    for (int i = lane_; i < f_.rows; i += 32) {
      if (i > j) square = add_square(square, column[i]);
    }
    const L rest = sqrt(across(square));
    const E x0 = column[j];
    // A vector of two with the same x_0 and the same length has the same g and u_0.
    return make_reflector<E>(2, [&](int i) SVD_LAMBDA {
      E x = zero_element<E>();
      x.re = rest;
      return i == 0 ? x0 : x;
    });
  }
  // y := (I - g u u^H) y, rows j and below.
  SVD_HD void reflect(const E* u, int j, const E& u0, L g, E* y, int64_t step) const {
    const auto u_at = [&](int i) SVD_LAMBDA { return i == j ? u0 : u[i]; };
    const int first = j / 32 * 32 + lane_, begin = first < j ? first + 32 : first;
    E sum = zero_element<E>();
    for (int i = begin; i < f_.rows; i += 32) sum = add_product(sum, u_at(i), y[i * step]);
    sum.re = across(sum.re);
    if constexpr (E::kComplex) sum.im = across(sum.im);
    const E w = scaled(sum, g);
    for (int i = begin; i < f_.rows; i += 32) y[i * step] = subtract_product(y[i * step], u_at(i), w);
  }

  const Threads threads_;
  const BlockFactor<E> f_;
  const int warp_, warps_, lane_;
};

SVD_KERNEL_END

#endif
