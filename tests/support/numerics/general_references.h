// The general matrices of tests/data/general/batch.txt, with their eigenvalues of 80 digits and the condition of each.
// tests/support/general_references.py makes the same matrices: their entries are exact in every type.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_GENERAL_REFERENCES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_GENERAL_REFERENCES_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/numerics/hermitian_references.h"

namespace svdserve::numerics {

struct GeneralReference {
  int family = 0;
  bool complex = false;
  Matrix matrix;  // of a complex type where `complex`
  std::vector<std::complex<long double>> eigenvalues;
  std::vector<double> conditions;  // 1 / |y^H x| of unit eigenvectors
};

inline Matrix general_reference_matrix(DType dtype, int family, int64_t n, bool complex) {
  using Element = std::complex<double>;
  ReferenceIntegers next(static_cast<uint64_t>(family) * 1000003 + static_cast<uint64_t>(n) * 101 + (complex ? 1 : 0));
  const auto by_columns = [&](auto entry) {
    Matrix a(dtype, n, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) a.at(i, j) = entry(i, j);
    }
    return a;
  };
  const auto exponents = [&](int64_t most) {
    std::vector<int> e;
    for (int64_t i = 0; i < n; ++i) e.push_back(static_cast<int>(next.modulo(most + 1)));
    return e;
  };
  switch (family) {
    case 0:  // random
      return by_columns([&](int64_t, int64_t) { return next.element(complex, 0x1p-23); });
    case 1: {  // D A D^-1
      const std::vector<int> e = exponents(40);
      return by_columns([&](size_t i, size_t j) { return next.element(complex, std::ldexp(1.0, -23 + e[i] - e[j])); });
    }
    case 2: {  // D A D
      const std::vector<int> e = exponents(12);
      return by_columns([&](size_t i, size_t j) { return next.element(complex, std::ldexp(1.0, -23 - e[i] - e[j])); });
    }
    case 3:  // Frank
      return by_columns(
          [&](int64_t i, int64_t j) { return Element(j >= i - 1 ? static_cast<double>(n - std::max(i, j)) : 0.0); });
    case 4:  // Grcar
      return by_columns([](int64_t i, int64_t j) { return Element(j == i - 1 ? -1 : i <= j && j <= i + 3 ? 1 : 0); });
    case 5:  // companion
      return by_columns([&](int64_t i, int64_t j) {
        return j == n - 1 ? next.element(complex, 0x1p-23) : Element(i == j + 1 ? 1 : 0);
      });
    case 6:  // a cyclic shift and small entries
      return by_columns([&](int64_t i, int64_t j) {
        return Element((j == (i + 1) % n ? 1.0 : 0.0) + 0x1p-20 * static_cast<double>(next.modulo(7)));
      });
    case 7:  // triangular
      return by_columns([&](int64_t i, int64_t j) { return i <= j ? next.element(complex, 0x1p-23) : Element(0); });
    case 8:  // small integers
      return by_columns([&](int64_t, int64_t) {
        const double re = static_cast<double>(next.modulo(7) - 3);
        return Element(re, complex ? static_cast<double>(next.modulo(7) - 3) : 0.0);
      });
    default:
      throw std::logic_error("a family that is not known");
  }
}

// Those of a type: of a complex one the real matrices, too.
inline std::vector<GeneralReference> general_references(const std::string& path, DType dtype) {
  std::ifstream file(path);
  std::vector<GeneralReference> all;
  std::string kind, re, im, condition;
  int64_t n = 0;
  for (GeneralReference one; file >> one.family >> n >> kind; one = {}) {
    one.complex = kind == "complex";
    for (int64_t i = 0; i < n && file >> re >> im >> condition; ++i) {
      one.eigenvalues.emplace_back(std::strtold(re.c_str(), nullptr), std::strtold(im.c_str(), nullptr));
      one.conditions.push_back(std::strtod(condition.c_str(), nullptr));
    }
    if (one.complex && !is_complex(dtype)) continue;
    one.matrix = general_reference_matrix(dtype, one.family, n, one.complex);
    all.push_back(std::move(one));
  }
  if (all.empty()) throw std::runtime_error("no references in " + path);
  return all;
}

// The largest error of eigenvalues that are well separated, in units of n u |A|_F times the condition of each: found in
// any order. Others, within 100 of their own errors of a neighbour, are not judged.
inline double worst_eigenvalue_error(const GeneralReference& reference,
                                     const std::vector<std::complex<long double>>& found, double unit_roundoff) {
  long double square = 0;
  for (const auto& x : reference.matrix.elements) square += std::norm(x);
  const double n = static_cast<double>(reference.matrix.rows), norm = static_cast<double>(std::sqrt(square));
  double worst = 0;
  for (size_t j = 0; j < reference.eigenvalues.size(); ++j) {
    const auto exact = reference.eigenvalues[j];
    long double gap = std::numeric_limits<long double>::infinity(), nearest = gap;
    for (size_t i = 0; i < reference.eigenvalues.size(); ++i) {
      if (i != j) gap = std::min(gap, std::abs(reference.eigenvalues[i] - exact));
      nearest = std::min(nearest, std::abs(found[i] - exact));
    }
    const double unit = n * unit_roundoff * norm * reference.conditions[j];
    if (20 * unit > 1e-2 * static_cast<double>(gap)) continue;
    worst = std::max(worst, static_cast<double>(nearest) / unit);
  }
  return worst;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_GENERAL_REFERENCES_H_
