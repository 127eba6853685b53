#include "tests/support/numerics/reference_svd.h"

#include <limits>

#include "tests/support/numerics/columns.h"
#include "tests/support/numerics/reference_jacobi.h"

namespace svdserve::numerics {
namespace {

static_assert(std::numeric_limits<long double>::max_exponent >= 16384, "long double must hold the squares of doubles");
static_assert(std::numeric_limits<long double>::digits >= 64, "long double must be more precise than double");

template <class Real, class Element>
std::vector<long double> values_in(const Matrix& a) {
  const auto s =
      ReferenceJacobi<Real, Element>::singular_values(columns_of<Element>(a), std::numeric_limits<Real>::epsilon() / 2);
  return {s.begin(), s.end()};
}

template <class Element>
double condition_in(const Matrix& a) {
  using Reference = ReferenceJacobi<long double, Element>;
  auto columns = columns_of<Element>(a);
  for (auto& column : columns) {
    const long double length = Reference::norm(column, 0);
    if (length == 0) return std::numeric_limits<double>::infinity();
    for (Element& x : column) x = times(1 / length, x);
  }
  const auto s = Reference::singular_values(std::move(columns), std::numeric_limits<long double>::epsilon() / 2);
  return static_cast<double>(s.front() / s.back());
}

}  // namespace

std::vector<long double> reference_singular_values(const Matrix& a) {
  switch (a.dtype) {
    case DType::kF32:
      return values_in<double, double>(a);
    case DType::kF64:
      return values_in<long double, long double>(a);
    case DType::kC64:
      return values_in<double, PlainComplex<double>>(a);
    case DType::kC128:
      return values_in<long double, PlainComplex<long double>>(a);
  }
  return {};
}

double unit_column_condition(const Matrix& a) {
  return is_complex(a.dtype) ? condition_in<PlainComplex<long double>>(a) : condition_in<long double>(a);
}

}  // namespace svdserve::numerics
