#include "tests/support/numerics/reference_hyperbolic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/support/numerics/columns.h"

namespace svdserve::numerics {
namespace {

using Real = long double;
using Column = std::vector<Real>;

struct Products {
  Real pp = 0, qq = 0, pq = 0;
};
Products products(const Column& p, const Column& q) {
  Products h;
  for (size_t i = 0; i < p.size(); ++i) {
    h.pp += p[i] * p[i];
    h.qq += q[i] * q[i];
    h.pq += p[i] * q[i];
  }
  return h;
}

// [p q] := [p q] [c f; g c], which is orthogonal with g = -f and J-orthogonal with g = f.
void combine(Column& p, Column& q, Real c, Real f, Real g) {
  for (size_t i = 0; i < p.size(); ++i) {
    const Real x = p[i], y = q[i];
    p[i] = c * x + g * y;
    q[i] = f * x + c * y;
  }
}

// 2 h_pq / (h_qq - h_pp) = tan 2 phi
void rotate(Column& p, Column& q, const Products& h) {
  const Real zeta = (h.qq - h.pp) / (2 * h.pq);
  const Real t = std::copysign(1 / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
  const Real c = 1 / std::sqrt(1 + t * t);
  combine(p, q, c, c * t, -c * t);
}

// -2 h_pq / (h_pp + h_qq) = tanh 2 phi; Cauchy and Schwarz: |zeta| > 1
void rotate_hyperbolically(Column& p, Column& q, const Products& h) {
  const Real zeta = (h.pp + h.qq) / (2 * h.pq);
  const Real t = -std::copysign(1 / (std::abs(zeta) + std::sqrt(std::max<Real>(zeta * zeta - 1, 0))), zeta);
  if (std::abs(t) >= 1) throw std::runtime_error("the factor has no full column rank");
  const Real c = 1 / std::sqrt((1 - t) * (1 + t));
  combine(p, q, c, c * t, c * t);
}

bool sweep(std::vector<Column>& columns, const std::vector<int8_t>& signs, Real tolerance) {
  bool rotated = false;
  for (size_t p = 0; p + 1 < columns.size(); ++p) {
    for (size_t q = p + 1; q < columns.size(); ++q) {
      const Products h = products(columns[p], columns[q]);
      if (!(std::abs(h.pq) > tolerance * (std::sqrt(h.pp) * std::sqrt(h.qq)))) continue;
      rotated = true;
      if (signs[p] == signs[q]) {
        rotate(columns[p], columns[q], h);
      } else {
        rotate_hyperbolically(columns[p], columns[q], h);
      }
    }
  }
  return rotated;
}

}  // namespace

std::vector<long double> reference_eigenvalues(const Matrix& g, const std::vector<int8_t>& signs) {
  return reference_eigenvalues(columns_of<Real>(g), signs);
}

std::vector<long double> reference_eigenvalues(std::vector<std::vector<long double>> columns,
                                               const std::vector<int8_t>& signs) {
  const Real tolerance =
      static_cast<Real>(std::max<size_t>(columns.size(), 4)) * std::numeric_limits<Real>::epsilon() / 2;
  constexpr int kSweeps = 100;
  int sweeps = 0;
  while (sweep(columns, signs, tolerance)) {
    if (++sweeps == kSweeps) throw std::runtime_error("the reference does not converge");
  }
  std::vector<Real> values;
  for (size_t j = 0; j < columns.size(); ++j) {
    values.push_back(signs[j] * products(columns[j], columns[j]).pp);
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace svdserve::numerics
