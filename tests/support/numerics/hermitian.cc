#include "tests/support/numerics/hermitian.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "tests/support/numerics/matrix_generators.h"

namespace svdserve::numerics {
namespace {

// The upper triangle from the lower one, after rounding; a real diagonal.
void mirror(Matrix& a) {
  round_to_dtype(a);
  for (int64_t j = 0; j < a.cols; ++j) {
    a.at(j, j) = a.at(j, j).real();
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = std::conj(a.at(j, i));
  }
}

}  // namespace

Matrix random_hermitian(DType dtype, int64_t n, Random& random) {
  Matrix a(dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      const double im = is_complex(dtype) && i > j ? random.normal() : 0;
      a.at(i, j) = {random.normal(), im};
    }
  }
  mirror(a);
  return a;
}

Matrix with_eigenvalues(DType dtype, const std::vector<double>& values, Random& random) {
  const auto n = static_cast<int64_t>(values.size());
  const Matrix q = orthonormal_columns(dtype, n, n, random);
  Matrix a(dtype, n, n);
  for (int64_t l = 0; l < n; ++l) {
    for (int64_t j = 0; j < n; ++j) {
      const std::complex<double> factor = values[static_cast<size_t>(l)] * std::conj(q.at(j, l));
      for (int64_t i = j; i < n; ++i) a.at(i, j) += q.at(i, l) * factor;
    }
  }
  mirror(a);
  return a;
}

Matrix triangle_alone(const Matrix& a, Triangle triangle) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Matrix given = a;
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      if (triangle == Triangle::kLower ? i < j : i > j) given.at(i, j) = {kNan, is_complex(a.dtype) ? kNan : 0};
    }
    if (is_complex(a.dtype)) given.at(j, j) = {a.at(j, j).real(), std::numeric_limits<double>::infinity()};
  }
  return given;
}

double eigen_residual(const Matrix& a, const std::vector<double>& values, const Matrix& u) {
  const auto n = static_cast<size_t>(a.rows);
  double scale = 0;
  for (const auto& z : a.elements) scale = std::max({scale, std::abs(z.real()), std::abs(z.imag())});
  if (scale == 0) scale = 1;
  long double error = 0, norm = 0;
  std::vector<long double> re(n), im(n);
  for (size_t j = 0; j < n; ++j) {
    const std::complex<double>* const x = u.elements.data() + j * n;
    const long double value = static_cast<long double>(values[j]) / scale;
    for (size_t i = 0; i < n; ++i) {
      re[i] = -value * x[i].real();
      im[i] = -value * x[i].imag();
    }
    for (size_t l = 0; l < n; ++l) {
      const std::complex<double>* const column = a.elements.data() + l * n;
      const long double x_re = x[l].real() / static_cast<long double>(scale);
      const long double x_im = x[l].imag() / static_cast<long double>(scale);
      for (size_t i = 0; i < n; ++i) {
        re[i] += column[i].real() * x_re - column[i].imag() * x_im;
        im[i] += column[i].real() * x_im + column[i].imag() * x_re;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      error += re[i] * re[i] + im[i] * im[i];
      norm += std::norm(a.elements[j * n + i] / scale);
    }
  }
  return static_cast<double>(std::sqrt(norm > 0 ? error / norm : error));
}

}  // namespace svdserve::numerics
