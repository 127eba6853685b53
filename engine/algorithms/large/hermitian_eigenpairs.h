// Parts that the methods for Hermitian eigenproblems share: the matrix by one of its triangles, eigenvalues and
// eigenvectors as they are stored, the certificate.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_EIGENPAIRS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_EIGENPAIRS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::large {

// --- the matrix ---------------------------------------------------------------------------------------------------

inline LargeStop entry_is_not_finite(int64_t row, int64_t col) {
  return {LargeStatus::kNonFinite, "entry (" + std::to_string(row) + ", " + std::to_string(col) + ") is not finite",
          false, row, col};
}

// Throws for the first entry of the triangle that is not finite. Imaginary parts of the diagonal do not count.
// T: the real type of the operand, n x n.
template <class T>
void require_finite_triangle(const T* numbers, const Problem& p, bool upper) {
  const int64_t n = p.rows, components = is_complex(p.dtype) ? 2 : 1;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      const int64_t row = upper ? j : i, col = upper ? i : j;
      const T* const x = numbers + components * (p.order == Order::kRowMajor ? row * n + col : row + col * n);
      const bool real_alone = components == 1 || i == j;
      if (!std::isfinite(x[0]) || !(real_alone || std::isfinite(x[1]))) throw entry_is_not_finite(row, col);
    }
  }
}

// x := 2^exponent x. In two steps, because the power alone may be out of range.
template <class Backend>
void multiply_by_power(Backend& backend, LargeView<typename Backend::Element> x, int exponent) {
  const int half = exponent / 2;
  for (const int part : {half, exponent - half}) {
    backend.scale_columns(x, std::vector<double>(static_cast<size_t>(x.cols), std::ldexp(1.0, part)));
  }
}

// m := 2^-e M, of M the triangle that the plan names, and both triangles of m; returns e. The largest column of m has a
// norm in [1/2, 1), or e is 0 and M is zero. Throws LargeStop for an entry that is not finite.
template <class Backend>
int load_hermitian(Backend& backend, const LargePlan& plan, const void* matrix,
                   LargeView<typename Backend::Element> m) {
  const Problem& p = plan.problem;
  const bool upper = plan.options.triangle == Triangle::kUpper;
  // The adjoint of M is M, and has the upper triangle below.
  if (!backend.load(matrix, p, upper, m).finite) {
    value_bytes(p.dtype) == 4 ? require_finite_triangle(static_cast<const float*>(matrix), p, upper)
                              : require_finite_triangle(static_cast<const double*>(matrix), p, upper);
  }
  backend.mirror_lower(m);
  int32_t exponent = kZeroColumn;
  for (const ScaledNorm& norm : backend.column_norms(m, nullptr)) exponent = std::max(exponent, norm.exponent);
  if (exponent == kZeroColumn) return 0;
  multiply_by_power(backend, m, -exponent);
  return exponent;
}

// --- results ------------------------------------------------------------------------------------------------------

// mantissa 2^exponent, the mantissa with the sign, of a magnitude in [1/2, 1) or 0: also beyond the range of doubles.
struct Eigenvalue {
  double mantissa = 0;
  int exponent = 0;
  int64_t column = 0;  // of the basis

  // value 2^exponent.
  static Eigenvalue of(double value, int exponent, int64_t column) {
    Eigenvalue result{0, 0, column};
    result.mantissa = std::frexp(value, &result.exponent);
    result.exponent += exponent;
    return result;
  }

  friend bool operator<(const Eigenvalue& x, const Eigenvalue& y) {
    const int of_x = (x.mantissa > 0) - (x.mantissa < 0), of_y = (y.mantissa > 0) - (y.mantissa < 0);
    if (of_x != of_y) return of_x < of_y;
    if (of_x == 0) return false;
    if (x.exponent != y.exponent) return (x.exponent < y.exponent) == (of_x > 0);
    return x.mantissa < y.mantissa;
  }
};

// Stores the eigenvalues, rounded once, and reports how many are not zero and whether one is out of range.
inline void store_eigenvalues(const std::vector<Eigenvalue>& sorted, const LargePlan& plan,
                              const LargeOperands& operands, LargeReport& report) {
  const bool single = value_bytes(plan.problem.dtype) == 4;
  report.rank = 0;
  for (size_t j = 0; j < sorted.size(); ++j) {
    const double value = std::ldexp(sorted[j].mantissa, sorted[j].exponent) + 0.0;  // no -0
    report.rank += sorted[j].mantissa != 0 ? 1 : 0;
    if (single) {
      const auto rounded = static_cast<float>(value) + 0.0f;
      static_cast<float*>(operands.values)[j] = rounded;
      report.out_of_range |= std::isinf(rounded);
    } else {
      static_cast<double*>(operands.values)[j] = value;
      report.out_of_range |= std::isinf(value);
    }
  }
}

// The problem of an array n x n like the operand: that of the eigenvectors.
inline Problem basis_problem(const LargePlan& plan) {
  Problem p = plan.problem;
  p.cols = p.rows;
  return p;
}

// Stores the columns of the basis in the order of the eigenvalues. The basis is overwritten.
template <class Backend>
void store_eigenvectors(Backend& backend, const std::vector<Eigenvalue>& sorted, const LargePlan& plan,
                        const LargeOperands& operands, LargeView<typename Backend::Element> basis) {
  std::vector<int64_t> order;
  order.reserve(sorted.size());
  for (const Eigenvalue& value : sorted) order.push_back(value.column);
  backend.permute_columns(basis, order);
  backend.store(basis, false, operands.left, basis_problem(plan));
}

// Errors of the stored results, |M U - U L|_F / |M|_F and |I - U^H U|_F, into `report`. m: 2^-exponent M, of norm about 1.
template <class Backend>
void certify_eigenpairs(Backend& backend, const LargePlan& plan, const LargeOperands& operands,
                        LargeView<typename Backend::Element> m, int exponent, LargeReport& report) {
  const int64_t n = m.rows;
  const auto u = backend.matrix(n, n), product = backend.matrix(n, n);
  (void)backend.load(operands.left, basis_problem(plan), false, u);
  backend.herk(u, product);
  report.left_orthogonality = backend.distance_from_signature(product, n);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t j = 0; j < values.size(); ++j) {
    const double value = value_bytes(plan.problem.dtype) == 4 ? static_cast<const float*>(operands.values)[j]
                                                              : static_cast<const double*>(operands.values)[j];
    values[j] = -std::ldexp(value, -exponent);
  }
  const auto norm = [&](LargeView<typename Backend::Element> x) {
    double sum = 0;
    for (const double square : backend.column_products(x, x)) sum += square;
    return std::sqrt(sum);
  };
  const double norm_of_m = norm(m);
  if (report.out_of_range) {  // some of L is infinite
    report.residual = std::numeric_limits<double>::infinity();
  } else if (norm_of_m > 0) {
    backend.copy(u, product);
    backend.scale_columns(product, values);
    backend.gemm(Op::kNone, Op::kNone, 1.0, m, u, 1.0, product);
    report.residual = norm(product) / norm_of_m;
  }
  backend.release(product);
  backend.release(u);
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_HERMITIAN_EIGENPAIRS_H_
