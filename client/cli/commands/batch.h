// Small matrices for svdctl values, svd, eigh and eig: from a mapped file to mapped files.
#ifndef SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_
#define SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_

#include <span>
#include <string>
#include <vector>

#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/interruption.h"
#include "client/cpp/client.h"

namespace svdserve::cli {

// A plane of the results as an array of NumPy, and its file. An empty path: it is not kept.
struct BatchFile {
  client::Plane plane;
  std::string path;
  std::vector<int64_t> of_matrix;  // its shape for one matrix
};

// Decomposes the matrices of the stack and reports on them; the exit code. `files` are all planes that `compute` asks
// for. print: the values go to stdout, one matrix a line. Without a client: matrices that have no elements, so there is
// nothing to ask for.
int run_batch(const Context& context, client::Client* client, const MatrixStack& stack,
              const client::ComputeOptions& compute, std::span<const BatchFile> files, bool print,
              const Interruption& interruption, const client::CallOptions& call);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_COMMANDS_BATCH_H_
