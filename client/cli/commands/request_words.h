// The words by which a command line says what requests of load are made of.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_REQUEST_WORDS_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_REQUEST_WORDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client/cli/arguments.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// "MxN" or "MxN:WEIGHT".
struct ShapeAndWeight {
  int64_t rows, cols;
  double weight;
};
std::optional<ShapeAndWeight> parse_shape(const std::string& text);

// Declares --problem and --method.
void declare_problem(Arguments* arguments, std::string* problem, std::string* method);
// Sets problem and method. The error in these words, in one line.
std::optional<std::string> read_problem(const std::string& problem, const std::string& method,
                                        client::ComputeOptions* to);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_REQUEST_WORDS_H_
