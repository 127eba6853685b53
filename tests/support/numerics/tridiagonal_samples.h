// Real symmetric tridiagonal matrices that are hard for divide and conquer, or easy to get wrong.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_TRIDIAGONAL_SAMPLES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_TRIDIAGONAL_SAMPLES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

struct Tridiagonal {
  std::vector<double> d, e;  // e: as long as d, its last is not used
  int32_t n() const { return static_cast<int32_t>(d.size()); }
};

// n >= 1
struct TridiagonalKind {
  const char* name;
  std::function<Tridiagonal(int32_t)> make;
};

inline Tridiagonal tridiagonal_of(int32_t n, const std::function<double(int32_t)>& d,
                                  const std::function<double(int32_t)>& e) {
  Tridiagonal t;
  for (int32_t i = 0; i < n; ++i) {
    t.d.push_back(d(i));
    t.e.push_back(e(i));
  }
  return t;
}

inline Tridiagonal random_tridiagonal(int32_t n, double scale) {
  Random random(static_cast<uint64_t>(n));
  return tridiagonal_of(
      n, [&](int32_t) { return scale * random.normal(); }, [&](int32_t) { return scale * random.normal(); });
}

// As a dense symmetric matrix of normal numbers becomes: e_i is the norm of n - 1 - i of them. Little is deflated.
inline Tridiagonal reduced_normal_matrix(int32_t n) {
  Random random(static_cast<uint64_t>(n) + 1);
  return tridiagonal_of(
      n, [&](int32_t) { return std::sqrt(2.0) * random.normal(); },
      [&](int32_t i) { return i + 1 < n ? std::fabs(std::sqrt(n - 1.5 - i) + std::sqrt(0.5) * random.normal()) : 0; });
}

// |m - i| on the diagonal of blocks of order `block`, connected by `glue`.
inline Tridiagonal glued_wilkinson(int32_t n, int32_t block, double glue) {
  return tridiagonal_of(
      n, [=](int32_t i) { return std::fabs((block - 1) / 2.0 - i % block); },
      [=](int32_t i) { return (i + 1) % block == 0 ? glue : 1.0; });
}

// How many eigenvalues are below x.
inline int32_t sturm_count(const Tridiagonal& t, long double x) {
  int32_t count = 0;
  long double pivot = 1;
  for (int32_t i = 0; i < t.n(); ++i) {
    const auto at = static_cast<size_t>(i);
    const long double e = i > 0 ? t.e[at - 1] : 0;
    pivot = static_cast<long double>(t.d[at]) - x - (i > 0 ? e * e / pivot : 0);
    if (pivot == 0) pivot = -1e-4000L;
    count += pivot < 0 ? 1 : 0;
  }
  return count;
}

inline std::vector<TridiagonalKind> tridiagonal_kinds() {
  const auto constant = [](double x) { return [x](int32_t) { return x; }; };
  return {
      {"random", [](int32_t n) { return random_tridiagonal(n, 1); }},
      {"reduced normal", reduced_normal_matrix},
      {"tiny", [](int32_t n) { return random_tridiagonal(n, 1e-300); }},
      {"denormal", [](int32_t n) { return random_tridiagonal(n, 1e-315); }},
      {"huge", [](int32_t n) { return random_tridiagonal(n, 1e300); }},
      {"Toeplitz", [=](int32_t n) { return tridiagonal_of(n, constant(2), constant(1)); }},
      {"negative Toeplitz", [=](int32_t n) { return tridiagonal_of(n, constant(2), constant(-1)); }},
      {"Wilkinson", [](int32_t n) { return glued_wilkinson(n, n, 1); }},
      {"glued Wilkinson", [](int32_t n) { return glued_wilkinson(n, 21, 1e-8); }},
      {"barely glued Wilkinson", [](int32_t n) { return glued_wilkinson(n, 21, 1e-14); }},
      {"equal diagonal", [=](int32_t n) { return tridiagonal_of(n, constant(3), constant(0)); }},
      {"zero", [=](int32_t n) { return tridiagonal_of(n, constant(0), constant(0)); }},
      {"zero diagonal", [=](int32_t n) { return tridiagonal_of(n, constant(0), constant(1)); }},
      {"graded down",
       [](int32_t n) {
         const auto f = [](int32_t i) { return std::ldexp(1.0, -i); };
         return tridiagonal_of(n, f, f);
       }},
      {"graded up",
       [](int32_t n) {
         const auto f = [n](int32_t i) { return std::ldexp(1.0, i - n); };
         return tridiagonal_of(n, f, f);
       }},
      // Its eigenvalues are so close that rotations form long chains.
      {"chains", [=](int32_t n) { return tridiagonal_of(n, constant(1), constant(3e-14)); }},
      {"cluster",
       [](int32_t n) {
         Random random(7);
         return tridiagonal_of(
             n, [&](int32_t i) { return i % 3 + 1e-13 * random.normal(); }, [&](int32_t) { return 1e-12; });
       }},
      {"cluster at zero",
       [](int32_t n) {
         return tridiagonal_of(
             n, [](int32_t i) { return i % 10 == 0 ? 1.0 : 1e-18; },
             [](int32_t i) { return i % 10 == 4 ? 0.5 : 1e-9; });
       }},
      {"diagonal",
       [](int32_t n) {
         return tridiagonal_of(
             n, [](int32_t i) { return i * 7 % 11; }, [](int32_t) { return 0; });
       }},
  };
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_TRIDIAGONAL_SAMPLES_H_
