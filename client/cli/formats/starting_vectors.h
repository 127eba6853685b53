// Approximate eigenvectors of a stack of matrices, from a file.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_STARTING_VECTORS_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_STARTING_VECTORS_H_

#include <string>

#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// Gives the matrices of the stack starting vectors (client::Batch): those of the file. It has an array of the shape of
// the stack, or of one matrix, for all of them; real or complex numbers of any precision.
client::Status load_starting_vectors(const std::string& path, MatrixStack* stack);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_STARTING_VECTORS_H_
