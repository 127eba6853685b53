#include "client/cli/files/output_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "client/cli/files/file_error.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

constexpr int kMostLinks = 40;  // as Linux follows

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// The number of the descriptor that /proc calls so, of this process; -1: it is none.
int descriptor_called(const std::filesystem::path& path) {
  int number = -1;
  if (!absl::SimpleAtoi(path.filename().string(), &number) || number < 0) return -1;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(folder_of(path), error);
  if (error) return -1;
  for (const char* ours : {"/proc/self/fd", "/proc/thread-self/fd"}) {
    const std::filesystem::path real = std::filesystem::canonical(ours, error);
    if (!error && folder == real) return number;
  }
  return -1;
}

// Where the symbolic link leads that `at` is.
std::filesystem::path next(const std::filesystem::path& at, std::error_code& error) {
  return at.parent_path() / std::filesystem::read_symlink(at, error);  // an absolute one replaces it
}

// The descriptor of this process to which a path leads, the last link to be followed being that of /proc; -1: none.
int descriptor_named(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    if (const int number = descriptor_called(at); number >= 0) return number;
    if (!std::filesystem::is_symlink(at, error)) return -1;
    at = next(at, error);
    if (error) return -1;
  }
  return -1;
}

// The path without symbolic links; its last part need not exist.
Result<std::string> resolved(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(at, error); ++i) {
    at = next(at, error);
    if (error) return file_error("write", path, error.value());
  }
  const std::filesystem::path real = std::filesystem::canonical(folder_of(at), error);
  if (error) return file_error("write", path, error.value());
  if (::access(real.c_str(), W_OK | X_OK) != 0) return file_error("write", path, errno);
  return (real / at.filename()).string();
}

bool same(const OutputTarget& a, const OutputTarget& b) {
  if (a.exists && b.exists) return a.device == b.device && a.inode == b.inode;
  return !a.file.empty() && a.file == b.file;
}

// Whether the target is the file that an input's path names, links followed. A terminal or a pipe may be both.
bool is_file(const OutputTarget& target, const std::string& path) {
  struct stat about {};
  if (!target.exists || path.empty()) return false;
  const bool is_there =
      path == "-" ? ::fstat(STDIN_FILENO, &about) == 0 && S_ISREG(about.st_mode) : ::stat(path.c_str(), &about) == 0;
  return is_there && about.st_dev == target.device && about.st_ino == target.inode;
}

Status same_file(const NamedFile& output, const NamedFile& other, const std::string& advice) {
  return {.code = client::Code::kInvalidArgument,
          .message = output.name + " " + output.path + " and " + other.name + " " + other.path +
                     " are the same file: " + advice};
}

void describe(const struct stat& about, OutputTarget* target) {
  target->exists = true;
  target->device = about.st_dev;
  target->inode = about.st_ino;
  target->mode = about.st_mode;
  target->owner = about.st_uid;
  target->group = about.st_gid;
  target->is_pipe = S_ISFIFO(about.st_mode);
}

Result<OutputTarget> open_target(const std::string& path, int descriptor) {
  OutputTarget target{.path = path, .descriptor = descriptor};
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0) return file_error("write", path, errno);
  if ((flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0) return file_error("write", path, EBADF);
  struct stat about {};
  if (::fstat(descriptor, &about) != 0) return file_error("write", path, errno);
  describe(about, &target);
  return target;
}

}  // namespace

Result<OutputTarget> output_target(const std::string& path) {
  if (path == "-") return open_target("standard output", STDOUT_FILENO);
  // Before all else: a name may well be found for the file behind it, which is not to be replaced.
  if (const int descriptor = descriptor_named(path); descriptor >= 0) return open_target(path, descriptor);
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
  describe(about, &target);
  if (S_ISDIR(about.st_mode)) return file_error("write", path, EISDIR);
  if (S_ISSOCK(about.st_mode)) return file_error("write", path, ENXIO);
  if (S_ISREG(about.st_mode)) {
    auto file = resolved(path);
    if (!file.ok()) return file.status();
    struct stat found {};
    // The file behind another process's /proc/PID/fd may have no name any more; then it is written into.
    if (::lstat(file->c_str(), &found) == 0 && found.st_dev == target.device && found.st_ino == target.inode) {
      target.file = *std::move(file);
      return target;
    }
  }
  if (::access(path.c_str(), W_OK) != 0) return file_error("write", path, errno);
  return target;
}

bool is_stdout(const std::string& path) {
  return path == "-" || (!path.empty() && descriptor_named(path) == STDOUT_FILENO);
}

Status check_outputs(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs, bool force) {
  std::vector<std::pair<NamedFile, OutputTarget>> targets;
  for (const NamedFile& output : outputs) {
    if (output.path.empty()) continue;
    auto target = output_target(output.path);
    if (!target.ok()) return target.status();
    for (const auto& [other, of_other] : targets) {
      if (same(*target, of_other)) return same_file(output, other, "give each output a file of its own");
    }
    for (const NamedFile& input : inputs) {
      if (!force && is_file(*target, input.path)) {
        return same_file(output, input, "name another output, or replace the input by --force");
      }
    }
    targets.emplace_back(output, *std::move(target));
  }
  return {};
}

}  // namespace svdserve::cli
