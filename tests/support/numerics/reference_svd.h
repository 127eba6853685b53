// Reference singular values: of the matrix as stored, with errors far below the bounds they are compared with.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_SVD_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_SVD_H_

#include <vector>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// The k = min(m, n) singular values of a finite matrix, descending. One-sided Jacobi in long double for f64 and c128,
// in double for f32 and c64. It has at least 11 bits more than the dtype, and exponents that hold every square.
std::vector<long double> reference_singular_values(const Matrix& a);

// kappa: the condition number of A (wide: of A^H) with its columns scaled to unit length. Infinite for a zero column.
double unit_column_condition(const Matrix& a);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_SVD_H_
