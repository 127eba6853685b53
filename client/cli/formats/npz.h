// NumPy's archives of arrays, .npz: zip files of .npy files.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_NPZ_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_NPZ_H_

#include <string>

#include "client/cli/files/file_bytes.h"
#include "client/cli/files/npy.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// The array of a member, stored or compressed (numpy.savez_compressed); its name is that without .npy. Without a name
// the archive must have one member alone. Checks the member's CRC-32. Fails with the names where there is no such one.
client::Result<NpyArray> read_npz(FileBytes file, const std::string& name);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_NPZ_H_
