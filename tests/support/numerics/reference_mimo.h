// MIMO numbers from singular values by the textbook's formulas, in long double, whose exponents hold the squares of all
// doubles. They are independent of the engine's way to them.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_MIMO_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_MIMO_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "engine/outputs.h"

namespace svdserve::numerics {

// Asks for all MIMO numbers.
inline MimoOptions all_mimo_numbers(std::vector<double> snr_db, int64_t group, double rank_threshold) {
  MimoOptions mimo;
  for (const MimoPlane& m : kMimoPlanes) mimo.*m.option = true;
  mimo.rank_threshold = rank_threshold;
  mimo.snr_db = std::move(snr_db);
  mimo.group = group;
  return mimo;
}

using Real = long double;

// log2(1 + x)
inline Real log2_1p(Real x) { return std::log1p(x) / std::log(Real(2)); }

// sum log2(1 + snr s^2 / cols)
inline Real reference_capacity(const std::vector<double>& s, double snr, int64_t cols) {
  Real sum = 0;
  for (const double x : s) sum += log2_1p(Real(snr) * x * x / cols);
  return sum;
}

// Water-filling of `power` among streams of these singular values, in any order: by the sorted breakpoints. The power
// at which stream r + 1 comes into use is d_r = sum_{i <= r} (v_{r+1} - v_i), v = 1 / (snr s^2).
inline Real reference_water_filling(std::vector<double> s, double snr, double power) {
  std::sort(s.begin(), s.end(), std::greater<>());
  std::vector<Real> v;
  for (const double x : s) {
    if (x > 0) v.push_back(1 / (Real(snr) * x * x));
  }
  if (v.empty()) return 0;
  size_t used = 1;
  Real breakpoint = 0;
  for (; used < v.size(); ++used) {
    const Real next = breakpoint + Real(used) * (v[used] - v[used - 1]);
    if (next >= power) break;
    breakpoint = next;
  }
  const Real above = (power - breakpoint) / Real(used);  // the level, above v of the last stream in use
  Real sum = 0;
  for (size_t i = 0; i < used; ++i) sum += log2_1p((above + (v[used - 1] - v[i])) / v[i]);
  return sum;
}

inline Real reference_condition(const std::vector<double>& s) {
  return s.back() == 0 ? std::numeric_limits<double>::infinity() : s.front() / s.back();
}

// exp(-sum p ln p), p = s / sum s
inline Real reference_effective_rank(const std::vector<double>& s) {
  Real sum = 0, entropy = 0;
  for (const double x : s) sum += x;
  if (sum == 0) return 0;
  for (const double x : s) {
    if (x > 0) entropy -= x / sum * std::log(x / sum);
  }
  return std::exp(entropy);
}

// The references of those that are one number of a matrix, and have no parameter. s: descending.
struct MatrixReference {
  Plane plane;
  const char* name;
  Real (*of)(const std::vector<double>& s);
};
inline constexpr MatrixReference kMatrixReferences[] = {
    {Plane::kConditionNumber, "condition", reference_condition},
    {Plane::kEffectiveRank, "effective rank", reference_effective_rank},
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_MIMO_H_
