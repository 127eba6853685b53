// Hermitian matrices of every family that a test should have, and the errors of their eigendecompositions.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_SAMPLES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_SAMPLES_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <vector>

#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_hermitian.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {

// The upper triangle from the lower one, after rounding.
inline Matrix mirrored(Matrix a) {
  round_to_dtype(a);
  for (int64_t j = 0; j < a.cols; ++j) {
    a.at(j, j) = a.at(j, j).real();
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = std::conj(a.at(j, i));
  }
  return a;
}

inline std::complex<double> normal_element(DType dtype, Random& random) {
  const double re = random.normal();
  return {re, is_complex(dtype) ? random.normal() : 0.0};
}

// sum_l weight[l] v_l v_l^H of random unit vectors, not orthogonal.
inline Matrix sum_of_outer_products(DType dtype, int64_t n, const std::vector<double>& weights, Random& random) {
  Matrix a(dtype, n, n);
  for (const double weight : weights) {
    std::vector<std::complex<double>> v(static_cast<size_t>(n));
    double square = 0;
    for (auto& x : v) square += std::norm(x = normal_element(dtype, random));
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) a.at(i, j) += weight / square * v[i] * std::conj(v[j]);
    }
  }
  return mirrored(a);
}

inline Matrix random_hermitian(DType dtype, int64_t n, Random& random) {
  Matrix a(dtype, n, n);
  for (auto& x : a.elements) x = normal_element(dtype, random);
  return mirrored(a);
}

inline Matrix tridiagonal(DType dtype, int64_t n, const std::function<double(int64_t)>& diagonal,
                          const std::function<double(int64_t)>& below) {
  Matrix a(dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    a.at(j, j) = diagonal(j);
    if (j + 1 < n) a.at(j + 1, j) = below(j);
  }
  return mirrored(a);
}

// D H D, |d_i| from 1 to 10^-decades, shuffled.
inline Matrix graded(DType dtype, int64_t n, double decades, Random& random) {
  Matrix a = random_hermitian(dtype, n, random);
  std::vector<double> d;
  for (int64_t i = 0; i < n; ++i) d.push_back(std::pow(10.0, -decades * random.uniform(0, 1)));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a.at(i, j) *= d[i] * d[j];
  }
  return mirrored(a);
}

// I - 2 v v^H: eigenvalues 1 and one -1; and of several v, that are not orthogonal, all between.
inline Matrix reflection(DType dtype, int64_t n, int64_t vectors, Random& random) {
  Matrix a = sum_of_outer_products(dtype, n, std::vector<double>(static_cast<size_t>(vectors), -2.0), random);
  for (int64_t j = 0; j < n; ++j) a.at(j, j) += 1;
  return mirrored(a);
}

inline Matrix scaled_by(Matrix a, int exponent) {
  for (auto& x : a.elements) x = {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
  return mirrored(a);
}

struct HermitianFamily {
  const char* name;
  std::function<Matrix(DType, int64_t, Random&)> make;
};

inline const std::vector<HermitianFamily>& hermitian_families() {
  static const std::vector<HermitianFamily> all{
      {"random", random_hermitian},
      {"zero", [](DType t, int64_t n, Random&) { return Matrix(t, n, n); }},
      {"identity",
       [](DType t, int64_t n, Random&) {
         return tridiagonal(
             t, n, [](int64_t) { return 1.0; }, [](int64_t) { return 0.0; });
       }},
      {"diagonal",
       [](DType t, int64_t n, Random& r) {
         return tridiagonal(
             t, n, [&](int64_t) { return r.normal(); }, [](int64_t) { return 0.0; });
       }},
      {"second difference",
       [](DType t, int64_t n, Random&) {
         return tridiagonal(
             t, n, [](int64_t) { return 2.0; }, [](int64_t) { return -1.0; });
       }},
      {"Wilkinson",
       [](DType t, int64_t n, Random&) {
         return tridiagonal(
             t, n, [n](int64_t j) { return std::abs(static_cast<double>(2 * j - n + 1)) / 2; },
             [](int64_t) { return 1.0; });
       }},
      {"Clement",
       [](DType t, int64_t n, Random&) {
         return tridiagonal(
             t, n, [](int64_t) { return 0.0; },
             [n](int64_t j) { return std::sqrt(static_cast<double>((j + 1) * (n - 1 - j))); });
       }},
      {"exchange",
       [](DType t, int64_t n, Random&) {
         Matrix a(t, n, n);
         for (int64_t j = 0; j < n; ++j) a.at(n - 1 - j, j) = 1;
         return mirrored(a);
       }},
      {"ones",
       [](DType t, int64_t n, Random&) {
         Matrix a(t, n, n);
         std::fill(a.elements.begin(), a.elements.end(), 1.0);
         return a;
       }},
      {"rank one", [](DType t, int64_t n, Random& r) { return sum_of_outer_products(t, n, {-1.0}, r); }},
      {"half rank",
       [](DType t, int64_t n, Random& r) {
         std::vector<double> weights;
         for (int64_t l = 0; l < (n + 1) / 2; ++l) weights.push_back(l % 2 == 0 ? 1 : -1);
         return sum_of_outer_products(t, n, weights, r);
       }},
      {"reflection", [](DType t, int64_t n, Random& r) { return reflection(t, n, 1, r); }},
      {"reflections", [](DType t, int64_t n, Random& r) { return reflection(t, n, n / 2, r); }},
      {"graded 1e-12", [](DType t, int64_t n, Random& r) { return graded(t, n, 12, r); }},
      {"graded 1e-80", [](DType t, int64_t n, Random& r) { return graded(t, n, value_bytes(t) == 4 ? 15 : 80, r); }},
      {"arrow",
       [](DType t, int64_t n, Random& r) {
         Matrix a(t, n, n);
         for (int64_t j = 0; j < n; ++j) {
           a.at(j, j) = std::ldexp(1.0, -static_cast<int>(j));
           if (j > 0) a.at(j, 0) = 1e-3 * normal_element(t, r);
         }
         return mirrored(a);
       }},
      {"blocks",
       [](DType t, int64_t n, Random& r) {
         Matrix a = random_hermitian(t, n, r);
         for (int64_t split = 1; split < n; ++split) {
           if (r.bits() % 2 == 0) continue;
           for (int64_t j = 0; j < split; ++j) {
             for (int64_t i = split; i < n; ++i) a.at(i, j) = 0;
           }
         }
         return mirrored(a);
       }},
      {"weakly coupled",
       [](DType t, int64_t n, Random& r) {
         return tridiagonal(
             t, n, [&](int64_t) { return r.normal() * std::pow(10.0, -20 * r.uniform(0, 1)); },
             [&](int64_t) { return std::pow(10.0, -20 * r.uniform(0, 1)); });
       }},
      {"near identity",
       [](DType t, int64_t n, Random& r) {
         Matrix a = random_hermitian(t, n, r);
         const double size = std::pow(10.0, -20 * r.uniform(0, 1));
         for (int64_t j = 0; j < n; ++j) {
           for (int64_t i = j; i < n; ++i) a.at(i, j) = size * a.at(i, j) + (i == j ? 1.0 : 0.0);
         }
         return mirrored(a);
       }},
      {"tiny", [](DType t, int64_t n,
                  Random& r) { return scaled_by(random_hermitian(t, n, r), value_bytes(t) == 4 ? -110 : -900); }},
      {"huge", [](DType t, int64_t n,
                  Random& r) { return scaled_by(random_hermitian(t, n, r), value_bytes(t) == 4 ? 110 : 900); }},
      {"denormal", [](DType t, int64_t n,
                      Random& r) { return scaled_by(random_hermitian(t, n, r), value_bytes(t) == 4 ? -140 : -1060); }},
  };
  return all;
}

// In units of u |M|_F, u |M|_F and u.
struct HermitianErrors {
  double eigenvalue = 0, residual = 0, orthogonality = 0;
};

inline double norm_of(const Matrix& a) {
  long double largest = 0, square = 0;
  for (const auto& x : a.elements) largest = std::max<long double>({largest, std::abs(x.real()), std::abs(x.imag())});
  if (largest == 0) return 0;
  for (const auto& x : a.elements) square += std::norm(Wide(x.real(), x.imag()) / largest);
  return static_cast<double>(largest * std::sqrt(square));
}

// Without a reference the eigenvalues are not compared.
inline HermitianErrors hermitian_errors(const Matrix& m, const Dense& vectors, const std::vector<double>& lambda,
                                        bool with_reference) {
  const int64_t n = m.rows;
  const double u = real_type(m.dtype).unit_roundoff, norm = norm_of(m);
  // The last bit of a denormal eigenvalue is not one of the arithmetic's.
  const double unit = std::max(norm * u, real_type(m.dtype).smallest_denormal);
  HermitianErrors errors;
  errors.orthogonality = static_cast<double>(orthogonality(vectors, false)) / u;
  const long double scale = norm == 0 ? 1 : std::scalbn(1.0L, std::ilogb(norm));
  long double square = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t row = 0; row < n; ++row) {
      Wide sum = -static_cast<long double>(lambda[j]) / scale * vectors.at(row, j);
      for (int64_t l = 0; l < n; ++l) {
        sum += Wide(m.at(row, l).real(), m.at(row, l).imag()) / scale * vectors.at(l, j);
      }
      square += std::norm(sum);
    }
  }
  errors.residual = static_cast<double>(std::sqrt(square) * scale / unit);
  if (!with_reference) return errors;
  const auto exact = reference_eigenvalues(m);
  for (int64_t j = 0; j < n; ++j) {
    const long double error = std::abs(static_cast<long double>(lambda[j]) - exact[j]) / unit;
    errors.eigenvalue = std::max(errors.eigenvalue, static_cast<double>(error));
  }
  return errors;
}

// Those of matrix i of a batch with vectors.
inline HermitianErrors hermitian_errors(const Plan& plan, const Matrix& m, const PlanesResult& result, int64_t i,
                                        const std::vector<double>& lambda, bool with_reference) {
  return hermitian_errors(m, load(plan.problem, result, Plane::kLeft, i, m.rows, m.rows), lambda, with_reference);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_SAMPLES_H_
