// Singular values by one-sided Jacobi in a precision well above the one under test.
//
// Computes s_1 >= .. >= s_n of an m x n matrix A, m >= n, in arithmetic of type Real; A is overwritten.
// Method: Householder QR (m > n only), then rotations of column pairs (p, q) of R until every pair has
//   abs(g_pq) <= tolerance sqrt(g_pp) sqrt(g_qq),  G = R^H R,  tolerance = n u(Real);
// the values are the norms of the columns.
// Source: J. Demmel and K. Veselic, "Jacobi's method is more accurate than QR", SIAM J. Matrix Anal. Appl. 13 (1992).
// Accuracy: a small multiple of n u(Real) kappa relative to EACH value, kappa = condition number of A with unit
// columns. Householder QR keeps that, being backward stable column by column. Range: the caller picks a Real whose
// exponents hold the squares of the input (long double for double, double for float). So neither scaling nor care is
// needed.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_JACOBI_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_JACOBI_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

namespace svdserve::numerics {

// Specialized for types that the standard library has no square root of.
template <class Real>
struct SquareRoot {
  static Real of(Real x) { return std::sqrt(x); }
};

// std::complex multiplies with checks for NaN that cost more than the product, and does not take __float128.
template <class Real>
struct PlainComplex {
  Real re{};
  Real im{};
};

// The few operations of the algorithm, for real and for complex elements.
template <class Real>
Real conj_times(Real x, Real y) {
  return x * y;
}
template <class Real>
PlainComplex<Real> conj_times(PlainComplex<Real> x, PlainComplex<Real> y) {
  return {x.re * y.re + x.im * y.im, x.re * y.im - x.im * y.re};
}
template <class Real>
Real squared(Real x) {
  return x * x;
}
template <class Real>
Real squared(PlainComplex<Real> x) {
  return x.re * x.re + x.im * x.im;
}
template <class Real>
Real times(Real c, Real x) {
  return c * x;
}
template <class Real>
PlainComplex<Real> times(Real c, PlainComplex<Real> x) {
  return {c * x.re, c * x.im};
}
template <class Real>
Real multiply(Real x, Real y) {
  return x * y;
}
template <class Real>
PlainComplex<Real> multiply(PlainComplex<Real> x, PlainComplex<Real> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class Real>
Real add(Real x, Real y) {
  return x + y;
}
template <class Real>
PlainComplex<Real> add(PlainComplex<Real> x, PlainComplex<Real> y) {
  return {x.re + y.re, x.im + y.im};
}
template <class Real>
Real conjugate(Real x) {
  return x;
}
template <class Real>
PlainComplex<Real> conjugate(PlainComplex<Real> x) {
  return {x.re, -x.im};
}

template <class Real, class Element>
class ReferenceJacobi {
 public:
  using Columns = std::vector<std::vector<Element>>;

  // [in] n columns of m >= n elements each; [in] unit roundoff of Real. Throws std::runtime_error without convergence.
  static std::vector<Real> singular_values(Columns a, Real unit_roundoff) {
    if (a.front().size() > a.size()) reduce(a);
    for (auto& column : a) column.resize(a.size());
    orthogonalize(a, Real(static_cast<double>(std::max<size_t>(a.size(), 4))) * unit_roundoff);
    std::vector<Real> s;
    for (const auto& column : a) s.push_back(norm(column, 0));
    std::sort(s.begin(), s.end(), std::greater<>());
    return s;
  }

  static Real norm(const std::vector<Element>& x, size_t from) {
    Real sum{};
    for (size_t i = from; i < x.size(); ++i) sum += squared(x[i]);
    return SquareRoot<Real>::of(sum);
  }

 private:
  static Element dot(const std::vector<Element>& x, const std::vector<Element>& y, size_t from) {
    Element sum{};
    for (size_t i = from; i < x.size(); ++i) sum = add(sum, conj_times(x[i], y[i]));
    return sum;
  }

  // A = Q R, R in place of A's upper triangle, zeros below.
  static void reduce(Columns& a) {
    for (size_t j = 0; j < a.size(); ++j) {
      std::vector<Element>& v = a[j];
      const Real length = norm(v, j);
      if (!(length > Real(0))) continue;
      // v = x + phase(x_j) |x| e_j;  H = I - 2 v v^H / v^H v;  H x = -phase(x_j) |x| e_j
      const Real head = SquareRoot<Real>::of(squared(v[j]));
      Element diagonal{};
      if (head > Real(0)) {
        diagonal = times(-(length / head), v[j]);
      } else {
        set_real(diagonal, -length);
      }
      v[j] = add(v[j], times(Real(-1), diagonal));
      const Real half = length * (length + head);  // v^H v / 2
      for (size_t q = j + 1; q < a.size(); ++q) {
        const Element factor = times(Real(-1) / half, dot(v, a[q], j));
        for (size_t i = j; i < v.size(); ++i) a[q][i] = add(a[q][i], multiply(factor, v[i]));
      }
      std::fill(v.begin() + static_cast<std::ptrdiff_t>(j), v.end(), Element{});
      v[j] = diagonal;
    }
  }

  static void set_real(Real& x, Real value) { x = value; }
  static void set_real(PlainComplex<Real>& x, Real value) { x.re = value; }

  static void orthogonalize(Columns& a, Real tolerance) {
    // A column that depends on the others exactly shrinks with every rotation and never ends as anything but rounding
    // errors. Below `vanishing` of its first size it is zero. Accurate small values are within kappa of their column.
    const Real vanishing = tolerance * tolerance * tolerance;
    std::vector<Real> floors;
    for (const auto& column : a) floors.push_back(vanishing * norm(column, 0));
    constexpr int kSweeps = 100;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      bool rotated = false;
      for (size_t p = 0; p < a.size(); ++p) {
        for (size_t q = p + 1; q < a.size(); ++q) rotated = rotate(a[p], a[q], tolerance) || rotated;
      }
      if (!rotated) return;
      for (size_t j = 0; j < a.size(); ++j) {
        if (norm(a[j], 0) <= floors[j]) std::fill(a[j].begin(), a[j].end(), Element{});
      }
    }
    throw std::runtime_error("the reference does not converge");
  }

  // [p q] := [p q] J with J unitary such that p^H q = 0. False if the pair was orthogonal already.
  static bool rotate(std::vector<Element>& p, std::vector<Element>& q, Real tolerance) {
    Real pp{}, qq{};
    Element pq{};
    for (size_t i = 0; i < p.size(); ++i) {
      pp += squared(p[i]);
      qq += squared(q[i]);
      pq = add(pq, conj_times(p[i], q[i]));
    }
    const Real size = SquareRoot<Real>::of(squared(pq));
    if (!(size > tolerance * (SquareRoot<Real>::of(pp) * SquareRoot<Real>::of(qq)))) return false;
    const Element phase = times(Real(1) / size, conjugate(pq));  // makes p^H (phase q) real and positive
    const Real zeta = (qq - pp) / (Real(2) * size);
    const Real magnitude = zeta < Real(0) ? -zeta : zeta;
    Real t = Real(1) / (magnitude + SquareRoot<Real>::of(Real(1) + zeta * zeta));
    if (zeta < Real(0)) t = -t;
    const Real c = Real(1) / SquareRoot<Real>::of(Real(1) + t * t);
    for (size_t i = 0; i < p.size(); ++i) {
      const Element x = p[i];
      const Element y = multiply(phase, q[i]);
      p[i] = times(c, add(x, times(-t, y)));
      q[i] = times(c, add(y, times(t, x)));
    }
    return true;
  }
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_JACOBI_H_
