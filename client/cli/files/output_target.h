// Where results go: looked at before anything is sent.
#ifndef SVDSERVE_CLIENT_CLI_FILES_OUTPUT_TARGET_H_
#define SVDSERVE_CLIENT_CLI_FILES_OUTPUT_TARGET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// The target of an output path, symbolic links followed. "-" is standard output; a file of this name is "./-".
struct OutputTarget {
  std::string path = {};  // as it was given
  // The file that a complete result replaces or becomes; it is no symbolic link. Empty: a device, a pipe or the like,
  // which is written into.
  std::string file = {};
  // Open in this process, the caller's: where /dev/stdout, /dev/fd/N, /proc/self/fd/N or a link to one of these lead.
  // It is written into from where it stands, whatever is behind it. Else -1.
  int descriptor = -1;
  bool is_pipe = false;
  bool exists = false;
  // Attributes of a target that exists.
  dev_t device = 0;
  ino_t inode = 0;
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
};

// Fails where nothing can be written there. That is a directory, a folder that is not there or is read-only, a
// descriptor that is not open for writing.
client::Result<OutputTarget> output_target(const std::string& path);

// Whether what is written there goes to this process's standard output.
bool is_stdout(const std::string& path);

// Fails where an output cannot be written. Fails with INVALID_ARGUMENT where two outputs are the same file or, unless
// `force`, where an output is an input. Files are the same by equal paths, other spellings, and symbolic or hard links.
// Files with an empty path do not count. Creates nothing.
client::Status check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs, bool force);

// Help of the option --force, which sets `force`.
inline constexpr char kForceHelp[] = "allow an output to replace an input";

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FILES_OUTPUT_TARGET_H_
