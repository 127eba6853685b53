// Reference eigenvalues of G J G^T for a real G as stored.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HYPERBOLIC_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HYPERBOLIC_H_

#include <cstdint>
#include <vector>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// The n eigenvalues s_i^2 j_i, ascending, of which G J G^T has m - n zeros more; G is real, m x n, m >= n, of rank n.
// One-sided Jacobi in long double, one pair of columns after the other, until every cosine is below n u. A rotation is
// trigonometric where their signs are equal, hyperbolic where they differ. Source: K. Veselic, "A Jacobi eigenreduction
// algorithm for definite matrix pairs", Numer. Math. 64 (1993) 241-269. Throws std::runtime_error without convergence.
std::vector<long double> reference_eigenvalues(const Matrix& g, const std::vector<int8_t>& signs);
// The same of columns in long double.
std::vector<long double> reference_eigenvalues(std::vector<std::vector<long double>> columns,
                                               const std::vector<int8_t>& signs);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_HYPERBOLIC_H_
