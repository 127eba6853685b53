// The errors of a decomposition, from the matrix as given and the factors as written:
//
//   |A - U S V^H|_F / |A|_F,   |I - U^H U|_F,   |I - V^H V|_F,   over the k leading columns of U and V
//
// computed from T = X S Y^H (engine/vector_layout.h), T = A or its transpose: |T - X S Y^H| = |A - U S V^H|, and X and
// Y have the orthogonality of U and V, or of V and U where A is wide. A Hermitian A = U L U^H has S = L, X = Y = U.
//
// Arithmetic is double for every type of matrix, with exact products of f32 and c64. For f64 and c128 the certificate
// has rounding errors of its own, about sqrt(k) u in the residual, which is relative to |A|, and sqrt(k) u in the
// others. T and S are scaled by one exact power of two, so that the largest component of T is in [1, 2). With it
// neither the sums nor the products of any finite matrix overflow, and underflows are below 2^-1000 of |A|.
// The zero matrix has residual zero if its values are zero. Values of +inf (OUT_OF_RANGE) give a residual of +inf.
//
// Order of the sums: components of products as in core/reduce.h. Squares of the residual's row i and column j are added
// for j mod 8 alone, then those partial sums, all rows', as in core/reduce.h. One matrix a team.
// Cost: 2 rows k^2 + 2 (rows + k) k^2 flops (complex: four times).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_FINISH_CERTIFICATE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_FINISH_CERTIFICATE_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_FINISH_CERTIFICATE_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_FINISH_CERTIFICATE_H_
#endif

#include <limits>
#include <type_traits>

#include "engine/core/hermitian.h"
#include "engine/core/reduce.h"
#include "engine/core/scaling.h"
#include "engine/core/strided.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

using WideNumber = ScalarLane<double>;
template <class E>
using WideOf = std::conditional_t<E::kComplex, ComplexElement<WideNumber>, RealElement<WideNumber>>;

template <class E>
SVD_HD WideOf<E> widened(const E& x) {
  WideOf<E> w;
  w.re = WideNumber(static_cast<double>(x.re.v));
  if constexpr (E::kComplex) w.im = WideNumber(static_cast<double>(x.im.v));
  return w;
}

// Scratch that the team shares.
struct CertificateWorkspace {
  WideNumber* s;        // k: values, scaled
  WideNumber* parts;    // 8: partial sums
  WideNumber* squares;  // rows * min(k, 8), or k * k
  WideNumber* norms;    // rows * min(k, 8)

  static SVD_HD int64_t row_parts(int rows, int k) { return static_cast<int64_t>(rows) * (k < 8 ? k : 8); }
  static SVD_HD int64_t most_squares(int rows, int k) {
    const int64_t of_rows = row_parts(rows, k), of_pairs = static_cast<int64_t>(k) * k;
    return of_rows > of_pairs ? of_rows : of_pairs;
  }
  static SVD_HD int64_t numbers(int rows, int k) { return k + 8 + most_squares(rows, k) + row_parts(rows, k); }
  static SVD_HD CertificateWorkspace in(WideNumber* memory, int rows, int k) {
    WideNumber* const squares = memory + k + 8;
    return {memory, memory + k, squares, squares + most_squares(rows, k)};
  }
};

// sum_of() of x[0 .. n - 1] by a team, which gets it on every member.
template <class Team>
SVD_HD WideNumber sum_by_team(const Team& team, int n, const WideNumber* x, WideNumber* parts) {
  const WideNumber zero(0);
  if (n <= 8) return sum_of(n, zero, [&](WideNumber sum, int i) SVD_LAMBDA { return sum + x[i]; });
  team.for_each(0, 8, [&](int p) SVD_LAMBDA {
    WideNumber sum = zero;
    for (int i = p; i < n; i += 8) sum = sum + x[i];
    parts[p] = sum;
  });
  const WideNumber total =
      ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
  team.sync();  // parts are written again
  return total;
}

// The power of two that takes the largest component of t to [1, 2).
template <class Team, class E>
SVD_HD Pow2<WideNumber> scale_of(const Team& team, const OperandMatrix<E>& t, int rows, int k,
                                 const CertificateWorkspace& work) {
  team.for_each(0, rows, [&](int i) SVD_LAMBDA {
    WideNumber largest(0);
    for (int j = 0; j < k; ++j) largest = raise_to_magnitude(largest, widened(t(i, j)));
    work.norms[i] = largest;
  });
  team.for_each(0, 8, [&](int p) SVD_LAMBDA {
    WideNumber largest(0);
    for (int i = p; i < rows; i += 8) largest = larger(work.norms[i], largest);
    work.parts[p] = largest;
  });
  WideNumber largest = work.parts[0];
  for (int p = 1; p < 8; ++p) largest = larger(work.parts[p], largest);
  team.sync();
  return make_pow2(-binary_exponent(largest));
}

// |T - X S Y^H|_F / |T|_F from the two squares.
template <class Lane>
SVD_HD Lane residual_of(Lane square, Lane norm) {
  const Lane zero(0), infinity(std::numeric_limits<double>::infinity());
  const Lane ratio = select(norm > zero, sqrt(square) / sqrt(norm), select(square > zero, infinity, square));
  return select(ratio >= zero, ratio, infinity);
}

// |T - X S Y^H|_F / |T|_F of a finite T.
template <class Team, class E>
SVD_HD WideNumber relative_residual(const Team& team, const OperandMatrix<E>& t, const VectorMatrix<E>& x,
                                    const VectorMatrix<E>& y, const typename E::Lane* s, int k,
                                    const CertificateWorkspace& work) {
  using Wide = WideOf<E>;
  const WideNumber zero(0);
  const int rows = x.rows, width = k < 8 ? k : 8;
  const Pow2<WideNumber> scale = scale_of(team, t, rows, k, work);
  team.for_each(0, k, [&](int l) SVD_LAMBDA { work.s[l] = WideNumber(static_cast<double>(s[l].v)) * scale; });
  team.for_each(0, rows * width, [&](int part) SVD_LAMBDA {
    const int i = part % rows;
    WideNumber square = zero, norm = zero;
    for (int j = part / rows; j < k; j += 8) {
      const Wide product = sum_of(k, zero_element<Wide>(), [&](const Wide& sum, int l) SVD_LAMBDA {
        return add_product(sum, widened(y.at(j, l)), scaled(widened(x.at(i, l)), work.s[l]));
      });
      const Wide given = scaled(widened(t(i, j)), scale);
      norm = add_square(norm, given);
      square = add_square(square, given - product);
    }
    work.squares[part] = square;
    work.norms[part] = norm;
  });
  const WideNumber square = sum_by_team(team, rows * width, work.squares, work.parts);
  const WideNumber norm = sum_by_team(team, rows * width, work.norms, work.parts);
  team.sync();
  return residual_of(square, norm);
}

// |I - X^H X|_F over the first k columns.
template <class Team, class E>
SVD_HD WideNumber orthogonality(const Team& team, const VectorMatrix<E>& x, int k, const CertificateWorkspace& work) {
  using Wide = WideOf<E>;
  const WideNumber zero(0);
  team.for_each(0, k * k, [&](int pair) SVD_LAMBDA {
    const int p = pair / k, q = pair % k;
    if (p > q) return;  // the conjugate of (q, p)
    const auto x_p = [&](int i) SVD_LAMBDA { return widened(x.at(i, p)); };
    const auto x_q = [&](int i) SVD_LAMBDA { return widened(x.at(i, q)); };
    Wide product = inner_product<Wide>(x.rows, x_p, x_q);
    if (p == q) product.re = product.re - WideNumber(1);
    work.squares[p * k + q] = work.squares[q * k + p] = add_square(zero, product);
  });
  const WideNumber square = sum_by_team(team, k * k, work.squares, work.parts);
  team.sync();
  return sqrt(square);
}

// The three numbers, in the order of plane kCertificate, on every member. t: rows x k; x and y have at least k columns.
// s: k values. finite: what is known of T; if it is not, all three are NaN.
struct Certificate {
  WideNumber residual, left, right;
};
template <class Team, class E>
SVD_HD Certificate certificate(const Team& team, const OperandMatrix<E>& t, const VectorMatrix<E>& x,
                               const VectorMatrix<E>& y, const typename E::Lane* s, int k, bool wide, bool finite,
                               const CertificateWorkspace& work) {
  const WideNumber nan(FloatTraits<double>::nan());
  if (!finite) return {nan, nan, nan};
  const WideNumber residual = relative_residual(team, t, x, y, s, k, work);
  const WideNumber of_x = orthogonality(team, x, k, work);
  const WideNumber of_y = y.at.data == x.at.data ? of_x : orthogonality(team, y, k, work);
  return {residual, wide ? of_y : of_x, wide ? of_x : of_y};
}

SVD_KERNEL_END

#endif
