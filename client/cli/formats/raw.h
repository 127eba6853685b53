// Numbers without a head.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_RAW_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_RAW_H_

#include <string>

#include "client/cli/files/file_bytes.h"
#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// An array in C order. shape: "1000,4,4" or "1000x4x4"; dtype: one of kDataTypeNames, or as NumPy has it, "<f4"; empty:
// f64. A name that both have is the service's: c32 is two binary16.
// Fails where the file is not as long as they say.
client::Result<NpyArray> read_raw(FileBytes file, const std::string& shape, const std::string& dtype);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_RAW_H_
