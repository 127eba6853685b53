// Hermitian test matrices, and what came out of their eigenproblems judged in long double.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_H_

#include <cstdint>
#include <vector>

#include "engine/options.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// Independent standard normal entries of the lower triangle, rounded.
Matrix random_hermitian(DType dtype, int64_t n, Random& random);

// Q diag(values) Q^H with a random unitary Q, rounded: about these eigenvalues.
Matrix with_eigenvalues(DType dtype, const std::vector<double>& values, Random& random);

// A with NaN for all that an eigenproblem of this triangle does not read, imaginary parts of the diagonal included.
Matrix triangle_alone(const Matrix& a, Triangle triangle);

// |A U - U diag(values)|_F / |A|_F; of a zero matrix the numerator.
double eigen_residual(const Matrix& a, const std::vector<double>& values, const Matrix& u);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_HERMITIAN_H_
