// One decomposition of a large factor over a test matrix: outputs poisoned before, stray writes found after, and what
// came out judged in long double.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_RUN_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_RUN_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

// The plan of a problem that is known to be right; throws std::invalid_argument otherwise.
LargePlan large_plan_of(const Problem& problem, const LargeOptions& options);

struct LargeResult {
  LargeOutcome outcome;
  std::vector<double> values;
  std::vector<std::complex<double>> complex_values;              // of kGeneral, which has no others
  Matrix left, right;                                            // U and V^H, widened
  std::vector<std::byte> left_bytes, right_bytes, values_bytes;  // as they were stored
};

// Throws std::logic_error where the call wrote outside its outputs or changed its input. start: V_0 of a plan with
// starting vectors.
LargeResult run_large(const LargeEngine& engine, const LargePlan& plan, const Matrix& a,
                      const std::vector<int8_t>& signature = {}, const LargeControl& control = {},
                      const Matrix* start = nullptr);

// |I - U^H U|_F of the columns of u; |I - V^H V|_F of the rows of V^H.
double column_orthogonality(const Matrix& u);
double row_orthogonality(const Matrix& vh);

// |A - U S V^H|_F / |A|_F; 0 of the zero matrix.
double residual_of(const Matrix& a, const LargeResult& result);

// |J - V^H J V|_F / |V|_F^2 of the matrix V whose adjoint is given.
double signature_error(const Matrix& vh, const std::vector<int8_t>& signature);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_RUN_H_
