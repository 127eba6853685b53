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

// The words of --problem, --method and --vectors.
struct ProblemWords {
  std::string problem = "svd", method = "auto", vectors = "none";
};
void declare_problem(Arguments* arguments, ProblemWords* words);
// Sets problem, method and vectors. The error in these words, in one line.
std::optional<std::string> read_problem(const ProblemWords& words, client::ComputeOptions* to);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_REQUEST_WORDS_H_
