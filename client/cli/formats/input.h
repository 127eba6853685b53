// Matrices from files of several formats.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_INPUT_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// The format of an input as the command line has it. All empty: the file says it itself, by its first bytes (.npy, .npz,
// Matrix Market) or by its name (.csv).
struct InputFormat {
  std::string format = {};             // one of kFormats
  std::string shape = {}, dtype = {};  // of raw numbers, which a shape alone stands for
  std::string exponent = {};           // of integers of 16 bits

  void declare(Arguments* arguments);
};
inline constexpr const char* kFormats[] = {"npy", "npz", "mtx", "csv", "raw"};

// The array of the file `path`, of standard input for "-", or of a member of an archive for "a.npz:name". Numbers are
// not copied where they lie in the file as they are. Errors name the file and, of a text, the line.
client::Result<NpyArray> load_array(const std::string& path, const InputFormat& format = {});
client::Result<MatrixStack> load_matrices(const std::string& path, const InputFormat& format = {});
// The diagonal of J.
client::Result<std::vector<int8_t>> load_signature(const std::string& path);

// The file of an input: "a.npz" for "a.npz:name".
std::string input_file(const std::string& path);
// The name of an input's results: without folder and ending, and with the member of an archive; "stdin" for "-".
std::string output_stem(const std::string& path);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_INPUT_H_
