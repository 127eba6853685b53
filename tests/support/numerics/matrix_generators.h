// Test matrices of every kind that the numerical contract names, seeded.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_GENERATORS_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_GENERATORS_H_

#include <cstdint>
#include <vector>

#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

enum class Kind : uint8_t {
  kNormal,          // independent standard normal entries
  kGradedRows,      // normal, row i times a factor falling from 1 to 1e-12
  kGradedColumns,   // the same for columns
  kSteepRows,       // from 1 to 1e-100 (f64, c128)
  kSteepColumns,    //
  kColumnGraded,    // B D: cond(B with unit columns) <= 10, D over 1e+-150 (f32, c64: 1e+-15); wide: (B D)^H
  kHilbert,         // 1 / (i + j + 1); complex: times unimodular row and column factors
  kKahan,           // upper triangular, s^i (1, -c, -c, ..), c^2 + s^2 = 1; short side square, the rest zero
  kLaeuchli,        // a first row (wide: column) of ones, mu below it on the diagonal, mu^2 < u
  kDuplicates,      // columns (wide: rows) drawn from few distinct ones, exactly equal
  kZeroLines,       // normal with some columns and rows exactly zero
  kOuterProduct,    // rank 1
  kLowRank,         // rank about k / 2, a product of two factors
  kEqualValues,     // c Q with orthonormal columns (rows) Q
  kClusters,        // Q1 diag(1, .., 1, 1e-3, .., 1e-3) Q2^H
  kIdentity,        // 1 on the diagonal
  kDiagonal,        // unordered, of both signs, some zero
  kShift,           // ones above the diagonal, tiny on it: already bidiagonal
  kZero,            // +0 and -0
  kOneEntry,        // a single non-zero element
  kOverflowEntry,   // normal with one element at the largest finite number
  kHuge,            // normal, scaled so that s_1 stays just below the overflow threshold
  kOverflowing,     // every element near the largest finite number: values beyond it
  kUnderflowEntry,  // one element at the smallest normal number, the others below
  kTiny,            // normal, scaled to the smallest normal number
  kDenormals,       // small multiples of the smallest denormal
};

// The kinds that `dtype` has the range for.
std::vector<Kind> kinds(DType dtype);
const char* name(Kind kind);

// One finite matrix, a function of its arguments alone.
Matrix generate(Kind kind, DType dtype, int64_t rows, int64_t cols, uint64_t seed);

// m x k with orthonormal columns (m >= k), not yet rounded to the dtype.
Matrix orthonormal_columns(DType dtype, int64_t rows, int64_t cols, Random& random);

// Q1 diag(values) Q2^H, rounded: rows x cols with about these singular values; values.size() = min(rows, cols).
Matrix with_singular_values(DType dtype, int64_t rows, int64_t cols, const std::vector<double>& values, Random& random);

// A poisoned element: +-infinity or a NaN in the real or the imaginary part.
enum class Poison : uint8_t { kInfinity, kMinusInfinity, kQuietNan, kSignallingNan };
double poison_value(Poison poison);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_GENERATORS_H_
