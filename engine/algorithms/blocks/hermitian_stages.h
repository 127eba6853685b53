// Eigenvalues and eigenvectors of Hermitian k x k matrices of one team each, k = 33 .. 128: what comes before and behind
// the singular vectors of placed_jacobi.h, or of bidiagonalization. The method is that of hermitian_eigen.h:
//
//   shift      N := 2^-e M, its largest component in [1, 2);   B := N + c I, c a power of two in (1.25, 2.5] |N|_F
//   (vectors   B = U S V^H)
//   quotients  lambda_j := 2^e Re u_j^H (N u_j), ascending, and U in their order
//
// Sums of N u are in ascending order. Source, accuracy: hermitian_eigen.h. Cost: k^2, and k^3 multiplications and
// additions (complex: 4 k^3).
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_HERMITIAN_STAGES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_HERMITIAN_STAGES_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_HERMITIAN_STAGES_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_HERMITIAN_STAGES_H_
#endif

#include "engine/algorithms/lanes/hermitian_eigen.h"
#include "engine/core/hermitian.h"

SVD_KERNEL_BEGIN

// A matrix between the stages, in memory that the team shares.
template <class E>
struct ShiftedHermitian {
  using T = typename E::Scalar;
  E* b;         // k x k by columns: N + c I; of a matrix that is not finite NaN
  T* diagonal;  // k: of N
  T* exponent;  // 1: e
  int k;

  static SVD_HD constexpr int numbers(int k) { return k + 1; }  // of diagonal and exponent
};

// Rows and columns of N U that a call computes together: each element of N and U that is read serves several sums.
inline constexpr int kQuotientTile = 4;

// The terms Re conj(u_ij) (N u_j)_i of rows first_row, first_row + row_step .. and columns first_column .. of u, to
// terms[j k + i].
template <class E>
SVD_HD void quotient_terms(const ShiftedHermitian<E>& m, const E* u, int first_row, int row_step, int first_column,
                           typename E::Scalar* terms) {
  using L = typename E::Lane;
  const int k = m.k;
  E sums[kQuotientTile][kQuotientTile];
  L diagonal[kQuotientTile];
  int rows[kQuotientTile], columns[kQuotientTile];  // beyond the last: the last
  SVD_UNROLL for (int a = 0; a < kQuotientTile; ++a) {
    rows[a] = first_row + a * row_step < k ? first_row + a * row_step : k - 1;
    columns[a] = first_column + a < k ? first_column + a : k - 1;
    diagonal[a] = L(m.diagonal[rows[a]]);
    SVD_UNROLL for (int c = 0; c < kQuotientTile; ++c) sums[a][c] = zero_element<E>();
  }
  SVD_ROW_LOOP for (int l = 0; l < k; ++l) {
    E of_u[kQuotientTile];
    SVD_UNROLL for (int c = 0; c < kQuotientTile; ++c) of_u[c] = u[columns[c] * k + l];
    SVD_UNROLL for (int a = 0; a < kQuotientTile; ++a) {
      E n = conj(m.b[l * k + rows[a]]);
      n.re = rows[a] == l ? diagonal[a] : n.re;
      SVD_UNROLL for (int c = 0; c < kQuotientTile; ++c) sums[a][c] = add_product(sums[a][c], n, of_u[c]);
    }
  }
  SVD_UNROLL for (int a = 0; a < kQuotientTile; ++a) {
    SVD_UNROLL for (int c = 0; c < kQuotientTile; ++c) {
      const int at = columns[c] * k + rows[a];
      terms[at] = add_real_product(L(0), u[at], sums[a][c]).v;
    }
  }
}

// scratch: 2 k numbers that the team shares.
template <class Team, class E>
SVD_HD void shift_hermitian(const Team& team, const OperandMatrix<E>& m, const ShiftedHermitian<E>& to,
                            typename E::Scalar* scratch) {
  using T = typename E::Scalar;
  using L = typename E::Lane;
  const int k = to.k;
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    L largest(0);
    for (int i = j; i < k; ++i) largest = raise_to_any_magnitude(largest, m(i, j));
    scratch[j] = largest.v;
  });
  L largest(0);
  for (int j = 0; j < k; ++j) largest = at_least_magnitude(L(scratch[j]), largest);
  const bool finite = any_of(largest <= L(FloatTraits<T>::kLargest));
  const L e = binary_exponent(finite ? largest : L(0));
  const Pow2<L> scale = make_pow2(-e);
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    to.diagonal[j] = scaled(m(j, j), scale).re.v;
    scratch[k + j] = sum_of_squares<E>(k, [&](int i) SVD_LAMBDA { return scaled(m(i, j), scale); }).v;
  });
  const L square = sum_of(k, L(0), [&](L sum, int j) SVD_LAMBDA { return sum + L(scratch[k + j]); });
  const L shift = finite ? hermitian_shift(square) : L(FloatTraits<T>::nan());
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA {
    const int i = x % k, j = x / k;
    E element = scaled(m(i, j), scale);
    if (i == j) element.re = element.re + shift;
    to.b[x] = element;
  });
  team.once([&]() SVD_LAMBDA { to.exponent[0] = e.v; });
}

// U, k x k by columns in any order, of the matrix that was shifted. value(r, lambda) and vector(i, r, element) get what
// has number r in ascending order. scratch: k k + k numbers that the team shares. Returns whether every eigenvalue is
// in range.
template <class Team, class E, class Value, class Vector>
SVD_HD bool hermitian_quotients(const Team& team, const ShiftedHermitian<E>& m, const E* u, typename E::Scalar* scratch,
                                const Value& value, const Vector& vector) {
  using T = typename E::Scalar;
  using L = typename E::Lane;
  const int k = m.k;
  T* const lambda = scratch + k * k;
  const L e(m.exponent[0]);
  const int tiles = (k + kQuotientTile - 1) / kQuotientTile;
  team.for_each(0, tiles * tiles,
                [&](int x) SVD_LAMBDA { quotient_terms(m, u, x % tiles, tiles, x / tiles * kQuotientTile, scratch); });
  team.for_each(0, k, [&](int j) SVD_LAMBDA {
    const L quotient = sum_of(k, L(0), [&](L sum, int i) SVD_LAMBDA { return sum + L(scratch[j * k + i]); });
    lambda[j] = quotient.v;
  });
  const auto number_of = [&](int j) SVD_LAMBDA {
    int before = 0;
    for (int i = 0; i < k; ++i) before += i < j ? lambda[i] <= lambda[j] : lambda[i] < lambda[j];
    return before;
  };
  const auto finished = [&](int j) SVD_LAMBDA { return finished_eigenvalue(L(lambda[j]), e); };
  bool in_range = true;
  for (int j = 0; j < k; ++j) in_range = in_range && any_of(abs(finished(j)) <= L(FloatTraits<T>::kLargest));
  team.for_each(0, k, [&](int j) SVD_LAMBDA { scratch[j] = static_cast<T>(number_of(j)); });
  team.for_each(0, k, [&](int j) SVD_LAMBDA { value(static_cast<int>(scratch[j]), finished(j).v); });
  team.for_each(0, k * k, [&](int x) SVD_LAMBDA { vector(x % k, static_cast<int>(scratch[x / k]), u[x]); });
  return in_range;
}

SVD_KERNEL_END

#endif
