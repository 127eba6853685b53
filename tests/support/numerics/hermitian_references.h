// The Hermitian matrices of tests/data/hermitian/batch.txt, with their eigenvalues of 150 digits as it has them.
// tests/support/hermitian_references.py makes the same matrices: their entries are exact in every type.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_REFERENCES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_REFERENCES_H_

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

struct HermitianReference {
  int family = 0;
  bool complex = false;
  Matrix matrix;                         // of a complex type where `complex`
  std::vector<long double> eigenvalues;  // ascending
};

// Integers of 24 bits with a sign.
class ReferenceIntegers {
 public:
  explicit ReferenceIntegers(uint64_t seed) : state_(seed) {}
  int64_t operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state_ >> 40) - (int64_t{1} << 23);
  }
  // The remainder that is not negative.
  int64_t modulo(int64_t n) { return ((*this)() % n + n) % n; }
  std::complex<double> element(bool complex, double scale) {
    const double re = static_cast<double>((*this)());
    return {re * scale, complex ? static_cast<double>((*this)()) * scale : 0.0};
  }

 private:
  uint64_t state_;
};

// entry(i, j) of the lower triangle, by columns.
template <class Entry>
Matrix hermitian_from_lower(DType dtype, int64_t n, Entry entry) {
  Matrix a(dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) a.at(i, j) = entry(i, j);
  }
  for (int64_t j = 0; j < n; ++j) {
    a.at(j, j) = a.at(j, j).real();
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = std::conj(a.at(j, i));
  }
  return a;
}

inline Matrix reference_matrix(DType dtype, int family, int64_t n, bool complex) {
  using Element = std::complex<double>;
  ReferenceIntegers next(static_cast<uint64_t>(family) * 1000003 + static_cast<uint64_t>(n) * 101 + (complex ? 1 : 0));
  switch (family) {
    case 0:  // random
      return hermitian_from_lower(dtype, n,
                                  [&](int64_t i, int64_t j) { return next.element(complex && i > j, 0x1p-23); });
    case 1: {  // graded on both sides
      std::vector<int> e;
      for (int64_t i = 0; i < n; ++i) e.push_back(static_cast<int>(next.modulo(41)));
      return hermitian_from_lower(dtype, n, [&](int64_t i, int64_t j) {
        return next.element(complex && i > j,
                            std::ldexp(1.0, -23 - e[static_cast<size_t>(i)] - e[static_cast<size_t>(j)]));
      });
    }
    case 2: {  // rank n / 2
      const int64_t rank = (n + 1) / 2;
      std::vector<Element> b;
      const auto small = [&] { return static_cast<double>(next.modulo(7) - 3); };
      for (int64_t x = 0; x < n * rank; ++x) {
        const double re = small();
        b.emplace_back(re, complex ? small() : 0.0);
      }
      return hermitian_from_lower(dtype, n, [&](int64_t i, int64_t j) {
        Element sum = 0;
        for (int64_t l = 0; l < rank; ++l) {
          sum += (l % 2 == 0 ? 1.0 : -1.0) * b[static_cast<size_t>(i * rank + l)] *
                 std::conj(b[static_cast<size_t>(j * rank + l)]);
        }
        return sum;
      });
    }
    case 3: {  // I - 2 v v^H / n
      const Element units[] = {1.0, -1.0, {0, 1}, {0, -1}};
      std::vector<Element> v;
      for (int64_t i = 0; i < n; ++i) v.push_back(units[next.modulo(complex ? 4 : 2)]);
      return hermitian_from_lower(dtype, n, [&](int64_t i, int64_t j) {
        const double scale = 2.0 / static_cast<double>(n);
        return (i == j ? 1.0 : 0.0) - scale * v[static_cast<size_t>(i)] * std::conj(v[static_cast<size_t>(j)]);
      });
    }
    case 4:  // second difference
      return hermitian_from_lower(dtype, n, [](int64_t i, int64_t j) {
        return Element(i == j ? 2 : i == j + 1 ? -1 : 0);
      });
    case 5:  // Wilkinson
      return hermitian_from_lower(dtype, n, [n](int64_t i, int64_t j) {
        return Element(i == j ? std::abs(static_cast<double>(2 * j - n + 1)) / 2 : i == j + 1 ? 1 : 0);
      });
    case 6:  // two clusters
      return hermitian_from_lower(dtype, n, [&](int64_t i, int64_t j) {
        return i == j ? Element(next.modulo(2) == 0 ? 1 : -1) : next.element(complex, 0x1p-43);
      });
    default:
      throw std::logic_error("a family that is not known");
  }
}

// Those of a type: of a complex one the real matrices, too.
inline std::vector<HermitianReference> hermitian_references(const std::string& path, DType dtype) {
  std::ifstream file(path);
  std::vector<HermitianReference> all;
  std::string kind, number;
  int64_t n = 0;
  for (HermitianReference one; file >> one.family >> n >> kind; one = {}) {
    one.complex = kind == "complex";
    for (int64_t i = 0; i < n && file >> number; ++i) one.eigenvalues.push_back(std::strtold(number.c_str(), nullptr));
    if (one.complex && !is_complex(dtype)) continue;
    one.matrix = reference_matrix(dtype, one.family, n, one.complex);
    all.push_back(std::move(one));
  }
  if (all.empty()) throw std::runtime_error("no references in " + path);
  return all;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_REFERENCES_H_
