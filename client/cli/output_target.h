// Where results go: looked at before anything is sent.
#ifndef SVDSERVE_CLIENT_CLI_OUTPUT_TARGET_H_
#define SVDSERVE_CLIENT_CLI_OUTPUT_TARGET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::cli {

// What an output path names, symbolic links followed.
struct OutputTarget {
  std::string path = {};  // as it was given
  // The file that a complete result replaces or becomes; it is no symbolic link. Empty: a device, a pipe or the like,
  // which is written into.
  std::string file = {};
  bool is_pipe = false;
  bool exists = false;
  dev_t device = 0;  // with the next, of what exists
  ino_t inode = 0;
};

// Fails where nothing can be written there: a directory, a folder that is not there or is read-only.
client::Result<OutputTarget> output_target(const std::string& path);

// Fails where one of these cannot be written, and with INVALID_ARGUMENT where two are the same file. Empty paths are
// no outputs. Creates nothing.
client::Status check_outputs(const std::vector<std::string>& paths);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_OUTPUT_TARGET_H_
