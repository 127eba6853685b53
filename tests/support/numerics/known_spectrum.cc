#include "tests/support/numerics/known_spectrum.h"

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <utility>

#include "tests/support/numerics/reference_hyperbolic.h"
#include "tests/support/numerics/symmetric_factor.h"

namespace svdserve::numerics {
namespace {

using Real = long double;

struct Rotation {
  Real c, s;
  explicit Rotation(Real angle) : c(std::cos(angle)), s(std::sin(angle)) {}
  void apply(Real& x, Real& y) const {
    const Real old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  }
};

class RandomUnitary {
 public:
  RandomUnitary(size_t n, bool complex, Random& random) : complex_(complex) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    const int layers = 4 + std::ilogb(static_cast<double>(n)) + 1;
    const auto angle = [&] { return 2 * std::numbers::pi_v<Real> * static_cast<Real>(random.uniform()); };
    for (int layer = 0; layer < layers; ++layer) {
      for (size_t i = n; i-- > 1;) {
        std::swap(order[i], order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(i)))]);
      }
      for (size_t i = 0; i + 1 < n; i += 2) {
        steps_.push_back({order[i], order[i + 1], Rotation(angle()), Rotation(complex ? angle() : 0)});
      }
    }
  }

  // x := Q x for x = re + i im; im is null where Q is real.
  void apply(Real* re, Real* im) const {
    for (const Step& step : steps_) {
      step.plane.apply(re[step.p], re[step.q]);
      if (!complex_) continue;
      step.plane.apply(im[step.p], im[step.q]);
      step.phase.apply(re[step.p], im[step.p]);
    }
  }

 private:
  struct Step {
    size_t p, q;
    Rotation plane, phase;
  };
  bool complex_;
  std::vector<Step> steps_;
};

}  // namespace

Matrix with_known_spectrum(DType dtype, const std::vector<double>& values, Random& random) {
  const size_t n = values.size();
  const bool complex = is_complex(dtype);
  const RandomUnitary q(n, complex, random);
  // Columns of (Q L)^H, and so rows of Q L, which are Q times the columns of L.
  std::vector<Real> re(n * n), im(complex ? n * n : 0), x(n), y(n);
  for (size_t j = 0; j < n; ++j) {
    x.assign(n, Real(0));
    y.assign(n, Real(0));
    x[j] = static_cast<Real>(values[j]);
    q.apply(x.data(), y.data());
    for (size_t i = 0; i < n; ++i) re[i * n + j] = x[i];
    for (size_t i = 0; complex && i < n; ++i) im[i * n + j] = -y[i];
  }
  // Q (Q L)^H is M^H = M. Its lower triangle is taken for both.
  Matrix m(dtype, static_cast<int64_t>(n), static_cast<int64_t>(n));
  for (size_t j = 0; j < n; ++j) {
    Real *const column = re.data() + j * n, *const imaginary = complex ? im.data() + j * n : nullptr;
    q.apply(column, imaginary);
    m.elements[j * n + j] = static_cast<double>(column[j]);
    for (size_t i = j + 1; i < n; ++i) {
      const std::complex<double> z(static_cast<double>(column[i]), complex ? static_cast<double>(imaginary[i]) : 0.0);
      m.elements[j * n + i] = z;
      m.elements[i * n + j] = std::conj(z);
    }
  }
  return m;
}

Matrix with_known_values(DType dtype, int64_t rows, int64_t cols, const std::vector<double>& values, Random& random) {
  const auto m = static_cast<size_t>(rows), n = static_cast<size_t>(cols);
  const bool complex = is_complex(dtype);
  const RandomUnitary q(m, complex, random), p(n, complex, random);
  // Columns of (P L)^H, one after the other: L has the values, and zeros up to its m columns.
  std::vector<Real> re(m * n, Real(0)), im(complex ? m * n : 0, Real(0)), x(n), y(n);
  for (size_t j = 0; j < values.size(); ++j) {
    x.assign(n, Real(0));
    y.assign(n, Real(0));
    x[j] = static_cast<Real>(values[j]);
    p.apply(x.data(), y.data());
    for (size_t i = 0; i < n; ++i) re[i * m + j] = x[i];
    for (size_t i = 0; complex && i < n; ++i) im[i * m + j] = -y[i];
  }
  Matrix a(dtype, rows, cols);
  const bool is_single = value_bytes(dtype) == sizeof(float);
  const auto rounded = [&](Real z) { return is_single ? double{static_cast<float>(z)} : static_cast<double>(z); };
  for (size_t j = 0; j < n; ++j) {
    Real *const column = re.data() + j * m, *const imaginary = complex ? im.data() + j * m : nullptr;
    q.apply(column, imaginary);
    for (size_t i = 0; i < m; ++i) {
      a.elements[j * m + i] = {rounded(column[i]), complex ? rounded(imaginary[i]) : 0.0};
    }
  }
  return a;
}

std::vector<long double> accurate_eigenvalues(const Matrix& m) {
  // [X -Y; Y X] of M = X + i Y.
  const auto n = static_cast<size_t>(m.rows), copies = static_cast<size_t>(is_complex(m.dtype) ? 2 : 1);
  LowerTriangle<Real> a(copies * n, std::vector<Real>(copies * n, Real(0)));
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < n; ++i) {
      const bool lower = i >= j;
      const std::complex<double> z = m.elements[lower ? j * n + i : i * n + j];
      for (size_t copy = 0; lower && copy < copies; ++copy) a[copy * n + j][copy * n + i] = z.real();
      if (copies == 2 && i != j) a[j][n + i] = lower ? z.imag() : -z.imag();
    }
  }
  auto factor = SymmetricFactorization<Real>::factor(std::move(a));
  const auto all = reference_eigenvalues(std::move(factor.columns), factor.signs);
  std::vector<Real> values;
  for (size_t i = 0; i < all.size(); i += copies) values.push_back(all[i]);
  return values;
}

}  // namespace svdserve::numerics
