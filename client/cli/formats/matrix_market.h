// Matrix Market's exchange format (Boisvert, Pozo and Remington 1996).
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_MATRIX_MARKET_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_MATRIX_MARKET_H_

#include <cstddef>
#include <span>

#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// One matrix in full, of f64 or c128. Formats array and coordinate; fields real, integer, pattern (ones) and complex;
// symmetries general, symmetric, skew-symmetric and hermitian. Entries that are given more than once are summed.
client::Result<NpyArray> read_matrix_market(std::span<const std::byte> text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_MATRIX_MARKET_H_
