// The numerical contract of singular values, as a check of one matrix's results. Its bounds are stated here and in
// docs/accuracy.md, and tests take them from here. u = 2^-53 or 2^-24, k = min(m, n).
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_CONTRACT_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_CONTRACT_H_

#include <string>
#include <vector>

#include "engine/planner.h"
#include "engine/result.h"
#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// More than 64 max(k, 8) rows or columns: reduced tile by tile, with a wider bound.
bool is_very_long(const Problem& problem);

// BIDIAGONAL and JACOBI: abs(s - s_ref) <= value_bound() u s_max + half the smallest denormal.
double value_bound(const Problem& problem);

// JACOBI on A = B D (wide: A^H = B D): relative error of every normal value <= relative_bound() kappa u.
double relative_bound(const Problem& problem);

// BISECTION: abs(lambda - lambda_ref) <= 2 delta lambda_ref + 16 k u lambda_max, lambda = s^2. Returned for one value,
// in units of u lambda_max; ratio = lambda_ref / lambda_max.
double lambda_bound(const Plan& plan, double ratio);

// How the worst value of one matrix stands against its bound.
struct Verdict {
  double error = 0;     // of the value nearest to (or farthest past) its bound; u s_max, BISECTION: u lambda_max
  double bound = 0;     // of that value, in the same unit
  std::string failure;  // empty: the matrix keeps the whole contract; otherwise what it broke

  double ratio() const { return bound > 0 ? error / bound : 0; }
};

// Checks error, order, sign, canonical zero, range and status of one finite matrix. [in] k values as stored, widened to
// double; [in] k reference values, descending.
Verdict check(const Plan& plan, const std::vector<double>& values, MatrixStatus status,
              const std::vector<long double>& reference);

// The error of a peer's values in the unit of check(); negative if a value overflowed or is missing.
double error_of(const Plan& plan, const std::vector<double>& values, const std::vector<long double>& reference);

// The largest relative error of a value whose reference is a normal number.
double relative_error(DType dtype, const std::vector<double>& values, const std::vector<long double>& reference);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_CONTRACT_H_
