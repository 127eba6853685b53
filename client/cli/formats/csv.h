// A matrix in a table of numbers.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_CSV_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_CSV_H_

#include <cstddef>
#include <span>

#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// One matrix of f64, or of c128 where a number has an imaginary part, such as 1.5-2j. A row is a line; commas separate
// its numbers, or else semicolons, or else blanks, as the first row has them. Empty lines and lines that begin with #
// do not count.
client::Result<NpyArray> read_csv(std::span<const std::byte> text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_CSV_H_
