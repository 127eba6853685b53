// Symmetric matrices with prescribed eigenvalues, and their factors G, J, as the papers behind large matrices generate
// their test data. Everything is in arithmetic of type Real, well above double, and G is rounded at the end.
//
//   A = Q diag(lambda) Q^T, Q a product of n - 1 random reflectors               (LAPACK's dlagsy)
//   P A P^T = G J G^T, J = diag(I, -I): symmetric indefinite factorization with complete pivoting
// Then the eigenvalues of G J G^T are lambda, those of a definite A the squares of G's singular values.
// Sources: V. Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, section 6 (there: in quadruple precision); V.
// Novakovic, S. Singer, BIT 51 (2011) 1009-1030, section 5 (in 80-bit precision). The pivots: J. R. Bunch, B. N.
// Parlett, SIAM J. Numer. Anal. 8 (1971) 639-655; of 2 x 2 pivots the eigenvectors make two columns of G, as in I.
// Slapnicar, Linear Algebra Appl. 272 (1998) 227-275. Cost: 2/3 n^3 multiplications for A, n^3 / 6 for G.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SYMMETRIC_FACTOR_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SYMMETRIC_FACTOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_jacobi.h"

namespace svdserve::numerics {

// A symmetric matrix: element (i, j) with i >= j is columns[j][i]; what lies above the diagonal is never looked at.
template <class Real>
using LowerTriangle = std::vector<std::vector<Real>>;

template <class Real>
struct SymmetricFactor {
  std::vector<std::vector<Real>> columns;  // of G, n of n elements
  std::vector<int8_t> signs;               // J: all +1 before all -1
};

template <class Real>
class SymmetricEigenvalues {
 public:
  // A = Q diag(lambda) Q^T.
  static LowerTriangle<Real> matrix(const std::vector<double>& lambda, Random& random) {
    const size_t n = lambda.size();
    LowerTriangle<Real> a(n, std::vector<Real>(n, Real(0)));
    for (size_t i = 0; i < n; ++i) a[i][i] = static_cast<Real>(lambda[i]);
    std::vector<Real> x(n), y(n);
    for (size_t first = n - std::min<size_t>(n, 1); first-- > 0;) {
      const Real tau = random_reflector(first, x, random);
      reflect(a, first, tau, x, y);
    }
    return a;
  }

 private:
  // I - tau x x^T of rows first .. n - 1, x[first] = 1.
  static Real random_reflector(size_t first, std::vector<Real>& x, Random& random) {
    Real square(0);
    for (size_t i = first; i < x.size(); ++i) {
      x[i] = static_cast<Real>(random.normal());
      square += x[i] * x[i];
    }
    const Real length = SquareRoot<Real>::of(square), signed_length = x[first] < 0 ? -length : length;
    const Real head = x[first] + signed_length;
    for (size_t i = first + 1; i < x.size(); ++i) x[i] /= head;
    x[first] = Real(1);
    return head / signed_length;
  }

  // A := (I - tau x x^T) A (I - tau x x^T) = A - x z^T - z x^T, y = tau A x, z = y - tau (x^T y) / 2 x.
  static void reflect(LowerTriangle<Real>& a, size_t first, Real tau, const std::vector<Real>& x,
                      std::vector<Real>& y) {
    const size_t n = a.size();
    std::fill(y.begin(), y.end(), Real(0));
    for (size_t j = first; j < n; ++j) {
      y[j] += a[j][j] * x[j];
      for (size_t i = j + 1; i < n; ++i) {
        y[i] += a[j][i] * x[j];
        y[j] += a[j][i] * x[i];
      }
    }
    Real product(0);
    for (size_t i = first; i < n; ++i) {
      y[i] *= tau;
      product += x[i] * y[i];
    }
    const Real half = tau * product / Real(2);
    for (size_t i = first; i < n; ++i) y[i] -= half * x[i];
    for (size_t j = first; j < n; ++j) {
      for (size_t i = j; i < n; ++i) a[j][i] -= x[i] * y[j] + y[i] * x[j];
    }
  }
};

template <class Real>
class SymmetricFactorization {
 public:
  // G and J of a non-singular A. Throws std::runtime_error where a pivot is zero.
  static SymmetricFactor<Real> factor(LowerTriangle<Real> a) {
    SymmetricFactorization f(std::move(a));
    while (f.done_ < f.n_) f.step();
    return f.partitioned();
  }

 private:
  explicit SymmetricFactorization(LowerTriangle<Real> a) : n_(a.size()), a_(std::move(a)) {}

  static Real magnitude(Real x) { return x < Real(0) ? -x : x; }

  // A pivot of order 1 if the largest diagonal element is at least alpha times the largest other one, else of order 2.
  void step() {
    const Real alpha = static_cast<Real>(0.6403882032022076);  // (1 + sqrt(17)) / 8
    size_t diagonal = done_, row = done_, col = done_;
    Real largest_diagonal(0), largest(0);
    for (size_t j = done_; j < n_; ++j) {
      if (magnitude(a_[j][j]) > largest_diagonal) {
        largest_diagonal = magnitude(a_[j][j]);
        diagonal = j;
      }
      for (size_t i = j + 1; i < n_; ++i) {
        if (magnitude(a_[j][i]) <= largest) continue;
        largest = magnitude(a_[j][i]);
        row = i;
        col = j;
      }
    }
    if (largest_diagonal == Real(0) && largest == Real(0)) throw std::runtime_error("the matrix is singular");
    if (largest_diagonal >= alpha * largest) {
      exchange(done_, diagonal);
      single();
    } else {
      exchange(done_, col);  // col < row, so row is where it was
      exchange(done_ + 1, row);
      pair();
    }
  }

  // Rows and columns k <= p of what is left of A change places, and so do the rows of G.
  void exchange(size_t k, size_t p) {
    if (k == p) return;
    for (auto& g : columns_) std::swap(g[k], g[p]);
    if (k > done_) std::swap(a_[done_][k], a_[done_][p]);  // of the column before k, in a pivot of order 2
    std::swap(a_[k][k], a_[p][p]);
    for (size_t i = k + 1; i < p; ++i) std::swap(a_[k][i], a_[i][p]);
    for (size_t i = p + 1; i < n_; ++i) std::swap(a_[k][i], a_[p][i]);
  }

  // g = a_k / sqrt |d|, d the pivot.
  void single() {
    append(a_[done_], a_[done_][done_]);
    ++done_;
    subtract(1);
  }

  // [g_1 g_2] = [a_k a_k+1] Q |D|^(-1/2), Q D Q^T the pivot.
  void pair() {
    const size_t k = done_;
    std::vector<Real>&first = a_[k], &second = a_[k + 1];
    second[k] = first[k + 1];
    const Real zeta = (second[k + 1] - first[k]) / (Real(2) * first[k + 1]);
    Real t = Real(1) / (magnitude(zeta) + SquareRoot<Real>::of(Real(1) + zeta * zeta));
    if (zeta < Real(0)) t = -t;
    const Real c = Real(1) / SquareRoot<Real>::of(Real(1) + t * t), s = c * t;
    const Real d_1 = first[k] - t * first[k + 1], d_2 = second[k + 1] + t * first[k + 1];
    std::vector<Real> x(n_, Real(0)), y(n_, Real(0));
    for (size_t i = k; i < n_; ++i) {
      x[i] = c * first[i] - s * second[i];
      y[i] = s * first[i] + c * second[i];
    }
    append(x, d_1);
    append(y, d_2);
    done_ += 2;
    subtract(2);
  }

  void append(const std::vector<Real>& x, Real d) {
    std::vector<Real> g(n_, Real(0));
    const Real root = SquareRoot<Real>::of(magnitude(d));
    for (size_t i = done_; i < n_; ++i) g[i] = x[i] / root;
    columns_.push_back(std::move(g));
    signs_.push_back(d < Real(0) ? -1 : 1);
  }

  // A := A - g J g^T for the newest columns.
  void subtract(size_t count) {
    for (size_t c = columns_.size() - count; c < columns_.size(); ++c) {
      const std::vector<Real>& g = columns_[c];
      for (size_t j = done_; j < n_; ++j) {
        const Real factor = signs_[c] < 0 ? -g[j] : g[j];
        for (size_t i = j; i < n_; ++i) a_[j][i] -= factor * g[i];
      }
    }
  }

  SymmetricFactor<Real> partitioned() {
    SymmetricFactor<Real> result;
    for (const int8_t sign : {int8_t{1}, int8_t{-1}}) {
      for (size_t j = 0; j < n_; ++j) {
        if (signs_[j] != sign) continue;
        result.columns.push_back(std::move(columns_[j]));
        result.signs.push_back(sign);
      }
    }
    return result;
  }

  size_t n_, done_ = 0;
  LowerTriangle<Real> a_;
  std::vector<std::vector<Real>> columns_;
  std::vector<int8_t> signs_;
};

// Rounded to double: n columns; both triangles.
template <class Real>
Matrix rounded_columns(const std::vector<std::vector<Real>>& columns) {
  const auto n = static_cast<int64_t>(columns.size());
  Matrix a(DType::kF64, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      a.at(i, j) = static_cast<double>(columns[static_cast<size_t>(j)][static_cast<size_t>(i)]);
    }
  }
  return a;
}
template <class Real>
Matrix rounded_symmetric(const LowerTriangle<Real>& lower) {
  Matrix a = rounded_columns(lower);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = a.at(j, i);
  }
  return a;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_SYMMETRIC_FACTOR_H_
