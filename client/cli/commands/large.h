// Large matrices for svdctl values, svd, hsvd, eigh and eig: from a mapped file to mapped files, with a progress bar.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_LARGE_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_LARGE_H_

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/formats/input.h"
#include "client/cli/interruption.h"
#include "client/cpp/client.h"

namespace svdserve::cli {

// The arguments of svd, hsvd and eigh for large matrices.
struct LargeArguments {
  std::string method = "auto", strategy = "auto", variant = "auto";
  double tolerance = 0;
  int64_t max_sweeps = 0;
  bool certificate = false;
  bool is_eigenproblem = false;  // it has more methods

  void declare(Arguments* arguments);
  // Nothing: all is well. Else what is wrong, in one line.
  std::optional<std::string> read(client::LargeOptions* options) const;
};

// Whether they are options that only large matrices have.
bool has_options_of_large(const client::LargeOptions& options);
// The error in options of small matrices that only large ones have. Nothing: all is well.
std::optional<std::string> misplaced_for_small(const client::LargeOptions& options);
// The words for an option of small matrices, such as "--top-k", where the matrices are large.
std::string misplaced_for_large(const std::string& option);

// Where results go; empty: they are not kept.
struct LargeFiles {
  std::string u, s, vh;
  bool print_values = false;  // to stdout, one matrix a line

  // The files as -o PREFIX of svd and hsvd names them, and as their options do.
  std::vector<std::pair<std::string, std::string*>> svd_names() { return {{"u", &u}, {"s", &s}, {"vh", &vh}}; }
  std::vector<NamedFile> outputs() const { return {{"--u", u}, {"--s", s}, {"--vh", vh}}; }
};

// The help of --verbose.
inline constexpr char kVerboseHelp[] =
    "also print the server's times and a line about each matrix, of small ones only\nabout those that are not ok, and "
    "about each retry";

// The exit codes of commands that take a stack, and of those that take one matrix, for their help.
inline constexpr char kStackExitCodes[] =
    "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input.\n"
    "3 done, but some matrices are not ok (non-finite, not converged, out of range).\n"
    "128 + N ended by signal N (129, 130, 143).";
inline constexpr char kOneMatrixExitCodes[] =
    "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input.\n"
    "3 done, but the result is not ok (not converged, out of range).\n"
    "128 + N ended by signal N (129, 130, 143).";

// The one matrix of a file and, unless its name is empty, the signs of its columns from another. The exit code where
// something is wrong.
std::optional<int> load_one(const Context& context, const std::string& matrix_file, const InputFormat& format,
                            const std::string& signature_file, MatrixStack* stack, std::vector<int8_t>* signature);

// Decomposes every matrix of the stack, each in a call of its own, and reports on them; the exit code. signature: see
// client::LargeMatrix.
int run_large(const Context& context, client::Client& client, const MatrixStack& stack,
              std::span<const int8_t> signature, const LargeFiles& files, const client::LargeOptions& options,
              const Interruption& interruption, client::CallOptions call);

// kDone where the results of all matrices are right, else kExceptions.
int exit_code(std::span<const client::MatrixException> exceptions);

// Whether each of these matrices goes in a call of its own, for its size, or because it or its results exceed a
// message. A tall matrix with complete bases is an example. Options that only small ones have keep the latter small.
bool is_large(const client::Batch& batch, const client::ServerLimits& limits, const client::ComputeOptions& compute);

// Asks the server for its limits and devices; the time for it is taken from the call's.
client::Result<client::ServerInfo> ask_server(client::Client& client, client::CallOptions* call);

// fail(), or the exit code of an interrupted command.
int fail_unless_interrupted(const Context& context, const client::Status& status, const Interruption& interruption);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_LARGE_H_
