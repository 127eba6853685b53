// Small matrices for svdctl svd, eigh and eig: from a mapped file to mapped files.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_

#include <span>
#include <string>
#include <vector>

#include "client/cli/files/npy.h"
#include "client/cli/interruption.h"
#include "client/cpp/client.h"

namespace svdserve::cli {

// A plane of the results as an array of NumPy, and its file. An empty path: it is not kept.
struct BatchFile {
  client::Plane plane;
  std::string path;
  std::vector<int64_t> of_matrix;  // its shape for one matrix
  bool is_printed = false;         // values: to stdout, too, one matrix a line
};

// Decomposes the matrices of the stack and prints a summary to stderr; the exit code. `files` are all planes that
// `compute` asks for. verbose: the server's times go to stderr, too, and a line about each matrix that is not ok.
// Without a client: matrices that have no elements, so there is nothing to ask for.
int run_batch(const std::string& command, client::Client* client, const MatrixStack& stack,
              const client::ComputeOptions& compute, std::span<const BatchFile> files, bool verbose,
              const Interruption& interruption, const client::CallOptions& call);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_
