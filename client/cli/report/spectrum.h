// The values of a stack of matrices in a few numbers.
#ifndef SVDSERVE_CLIENT_CLI_REPORT_SPECTRUM_H_
#define SVDSERVE_CLIENT_CLI_REPORT_SPECTRUM_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::cli {

// The values of a matrix.
enum class Values : uint8_t {
  kSingular,     // descending
  kHyperbolic,   // singular values of a hyperbolic decomposition, in the order of J
  kEigenvalues,  // of Hermitian matrices: real, ascending
  kComplex,      // eigenvalues of general matrices: complex, in no order
};

// The least and the most of some numbers.
struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -least;

  void add(double x) {
    least = x < least ? x : least;
    most = x > most ? x : most;
  }
  bool empty() const { return least > most; }
  bool is_one() const { return least == most; }
};

struct Spectrum {
  Values kind = Values::kSingular;
  int64_t count = 0;              // of matrices
  int64_t values_per_matrix = 0;  // k
  // The matrices whose values are all finite. The ranges are over these.
  int64_t finite = 0;
  // Each matrix has one of each: its largest and its smallest value; kComplex has absolute values here.
  Range largest = {}, smallest = {};
  // The largest over the smallest absolute value, infinite where the smallest is 0; empty where the kind has none.
  Range condition = {};
  // The number of absolute values above max(m, n) times the machine epsilon times the largest, as NumPy's matrix_rank
  // has it; empty where the kind has none.
  Range rank = {};
  // The largest real part, of kComplex; else empty.
  Range largest_real_part = {};
  // The leading values of the first matrix, at most kFirst.
  static constexpr int64_t kFirst = 10;
  std::vector<std::complex<double>> first = {};
};

// values: `count` times `values_per_matrix` numbers of the batch's real type, of kComplex pairs of them. complete: they
// are all values of a matrix, and not the leading ones alone, which have neither condition nor rank.
Spectrum spectrum_of(const client::Batch& batch, std::span<const std::byte> values, int64_t values_per_matrix,
                     Values kind, bool complete = true);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_REPORT_SPECTRUM_H_
