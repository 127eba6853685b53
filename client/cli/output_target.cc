#include "client/cli/output_target.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "client/cli/file_error.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

// The path without symbolic links; its last part need not exist.
Result<std::string> resolved(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(at, error); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(at, error);
    if (error) return file_error("write", path, error.value());
    at = at.parent_path() / to;  // an absolute one replaces it
  }
  const std::filesystem::path folder = at.has_parent_path() ? at.parent_path() : ".";
  const std::filesystem::path real = std::filesystem::canonical(folder, error);
  if (error) return file_error("write", path, error.value());
  if (::access(real.c_str(), W_OK | X_OK) != 0) return file_error("write", path, errno);
  return (real / at.filename()).string();
}

bool same(const OutputTarget& a, const OutputTarget& b) {
  if (a.exists && b.exists) return a.device == b.device && a.inode == b.inode;
  return !a.file.empty() && a.file == b.file;
}

}  // namespace

Result<OutputTarget> output_target(const std::string& path) {
  OutputTarget target{.path = path};
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    if (errno != ENOENT) return file_error("write", path, errno);
    if (path.ends_with('/')) return file_error("write", path, EISDIR);
    auto file = resolved(path);
    if (!file.ok()) return file.status();
    target.file = *std::move(file);
    return target;
  }
  target.exists = true;
  target.device = about.st_dev;
  target.inode = about.st_ino;
  target.is_pipe = S_ISFIFO(about.st_mode);
  if (S_ISDIR(about.st_mode)) return file_error("write", path, EISDIR);
  if (S_ISSOCK(about.st_mode)) return file_error("write", path, ENXIO);
  if (S_ISREG(about.st_mode)) {
    auto file = resolved(path);
    if (!file.ok()) return file.status();
    struct stat found {};
    // What /dev/fd names may have no name any more; then it is written into.
    if (::lstat(file->c_str(), &found) == 0 && found.st_dev == target.device && found.st_ino == target.inode) {
      target.file = *std::move(file);
      return target;
    }
  }
  if (::access(path.c_str(), W_OK) != 0) return file_error("write", path, errno);
  return target;
}

Status check_outputs(const std::vector<std::string>& paths) {
  std::vector<OutputTarget> targets;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    auto target = output_target(path);
    if (!target.ok()) return target.status();
    for (const OutputTarget& other : targets) {
      if (same(*target, other)) {
        return {.code = client::Code::kInvalidArgument,
                .message = other.path + " and " + path + " are the same file, for two outputs"};
      }
    }
    targets.push_back(*std::move(target));
  }
  return {};
}

}  // namespace svdserve::cli
