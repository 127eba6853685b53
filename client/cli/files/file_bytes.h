// The bytes of an input, mapped where that can be.
#ifndef SVDSERVE_CLIENT_CLI_FILES_FILE_BYTES_H_
#define SVDSERVE_CLIENT_CLI_FILES_FILE_BYTES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "client/cpp/types.h"

namespace svdserve::cli {

// A file in memory; the owner keeps the bytes.
struct FileBytes {
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = {};
};

// Maps the file. "-" is standard input, from where it stands to its end: mapped where that is the whole of a file, and
// else read. Fails for what is not a regular file, and for a terminal.
client::Result<FileBytes> file_bytes(const std::string& path);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FILES_FILE_BYTES_H_
