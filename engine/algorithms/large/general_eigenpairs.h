// The eigenvalues of one large general matrix as they are stored, which CPU and GPU share: rounded once, exact zeros
// counted.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_GENERAL_EIGENPAIRS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_GENERAL_EIGENPAIRS_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "engine/large_engine.h"
#include "engine/planner.h"

namespace svdserve::large {

// x 2^exponent, without an overflow on the way.
inline std::complex<double> times_power(std::complex<double> x, int exponent) {
  return {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
}

inline bool is_single(const LargePlan& plan) { return value_bytes(plan.problem.dtype) == sizeof(float); }

// u of the operand's type.
inline double unit_roundoff(const LargePlan& plan) {
  return is_single(plan) ? std::numeric_limits<float>::epsilon() / 2 : std::numeric_limits<double>::epsilon() / 2;
}

// The array of V, or of W^H.
inline Problem general_basis_problem(const LargePlan& plan) {
  Problem problem;
  problem.rows = problem.cols = plan.problem.rows;
  problem.dtype = is_single(plan) ? DType::kC64 : DType::kC128;
  problem.order = plan.problem.order;
  return problem;
}

template <class T>
bool store_numbers(const std::vector<std::complex<double>>& values, int exponent, void* to) {
  bool out_of_range = false;
  auto* const numbers = static_cast<T*>(to);
  for (size_t j = 0; j < values.size(); ++j) {
    const std::complex<double> value = times_power(values[j], exponent);
    const T parts[2] = {static_cast<T>(value.real()) + T(0), static_cast<T>(value.imag()) + T(0)};  // no -0
    std::copy(parts, parts + 2, numbers + 2 * j);
    out_of_range |= std::isinf(parts[0]) || std::isinf(parts[1]);
  }
  return out_of_range;
}

// Stores 2^exponent `values`, and reports how many are not zero and whether one is out of range.
inline void store_general_values(const std::vector<std::complex<double>>& values, int exponent, const LargePlan& plan,
                                 void* to, LargeReport& report) {
  report.rank = std::count_if(values.begin(), values.end(), [](std::complex<double> value) { return value != 0.0; });
  report.out_of_range =
      is_single(plan) ? store_numbers<float>(values, exponent, to) : store_numbers<double>(values, exponent, to);
}

// 2^-exponent times the n values that were stored.
inline std::vector<std::complex<double>> stored_general_values(const LargePlan& plan, const void* from, int exponent) {
  std::vector<std::complex<double>> values(static_cast<size_t>(plan.values));
  for (size_t j = 0; j < values.size(); ++j) {
    const std::complex<double> stored = is_single(plan)
                                            ? std::complex<double>(static_cast<const std::complex<float>*>(from)[j])
                                            : static_cast<const std::complex<double>*>(from)[j];
    values[j] = times_power(stored, -exponent);
  }
  return values;
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_GENERAL_EIGENPAIRS_H_
