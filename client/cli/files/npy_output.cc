#include "client/cli/files/npy_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/files/file_error.h"
#include "client/cli/files/npy.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

constexpr int kPatienceMs = 50;  // between two looks at whether to stop
constexpr std::chrono::milliseconds kBetweenWrites(20);

Status stopped(const std::string& path) {
  return {.code = client::Code::kCancelled, .message = "interrupted while writing " + path};
}

// Without a reader a pipe cannot be opened yet. The caller's descriptor is duplicated, which shares its position:
// opened by its name again, a file would be written from its beginning.
Result<int> open_for_writing(const OutputTarget& target, const std::stop_token& stop) {
  if (target.descriptor >= 0) {
    const int fd = ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 ? Result<int>(fd) : file_error("open", target.path, errno);
  }
  for (;;) {
    const int fd = ::open(target.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) return fd;
    const bool waits = errno == EINTR || (errno == ENXIO && target.is_pipe);
    if (!waits) return file_error("open", target.path, errno);
    if (stop.stop_requested()) return stopped(target.path);
    ::poll(nullptr, 0, kPatienceMs);
  }
}

Status write_all(int fd, const OutputTarget& target, const std::byte* at, size_t bytes, const std::stop_token& stop) {
  // A descriptor of the caller's may block, where a stop would not be heard: a pipe that poll() calls writable has
  // room for this much.
  const bool may_block = target.descriptor >= 0 && !S_ISREG(target.mode);
  const size_t most = may_block ? PIPE_BUF : bytes;
  bool has_room = !may_block;
  while (bytes > 0) {
    const ssize_t written = has_room ? ::write(fd, at, std::min(bytes, most)) : 0;
    if (written < 0 && errno != EINTR && errno != EAGAIN) return file_error("write", target.path, errno);
    if (written > 0) {
      at += written;
      bytes -= static_cast<size_t>(written);
      has_room = !may_block;
      continue;
    }
    if (stop.stop_requested()) return stopped(target.path);
    pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
    has_room = ::poll(&room, 1, kPatienceMs) > 0 || !may_block;
  }
  return {};
}

// The permissions of `old` for a file of another group. Users may move between the group and the others, so each of
// the two gets only the permissions that both had.
mode_t permissions_of_another_group(mode_t old) {
  const mode_t both = (old >> 3) & old & 07;
  return (old & 0700) | both << 3 | both;
}

// The file, which no other process can open yet, gets the permissions of the one whose place it takes. It gets owner
// and group where this process may give them away. A change that the file system refuses leaves it as closed as it is.
void take_over(int fd, const OutputTarget& replaced) {
  const bool has_group = ::fchown(fd, replaced.owner, replaced.group) == 0 || ::fchown(fd, -1, replaced.group) == 0;
  (void)::fchmod(fd, has_group ? replaced.mode & 0777 : permissions_of_another_group(replaced.mode));
}

// A name beside `file` that fits where FILE.PID.part does not.
std::string short_name(const std::string& file) {
  static std::atomic<int> taken = 0;
  return std::filesystem::path(file).replace_filename(absl::StrCat("svdctl.", ::getpid(), ".", taken++, ".part"));
}

}  // namespace

Result<std::unique_ptr<NpyOutput>> NpyOutput::make(const std::string& path, const std::string& type,
                                                   const std::vector<int64_t>& shape, bool fortran_order,
                                                   size_t bytes) {
  std::unique_ptr<NpyOutput> out(new NpyOutput);
  if (!path.empty()) {
    auto target = output_target(path);
    if (!target.ok()) return target.status();
    out->target_ = *std::move(target);
  }
  const std::string head = path.empty() ? "" : npy_header(type, shape, fortran_order);
  if (Status s = out->map_file(head, bytes); !s.ok()) return s;
  return out;
}

Result<int> NpyOutput::create_file() {
  std::string file = absl::StrCat(target_.file, ".", ::getpid(), ".part");
  const auto create = [&] {
    ::unlink(file.c_str());  // of a process that had this number before; with its permissions, or a link
    return ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, target_.exists ? 0600 : 0666);
  };
  int fd = create();
  if (fd < 0 && errno == ENAMETOOLONG) {
    file = short_name(target_.file);
    fd = create();
  }
  if (fd < 0) return file_error("create", file, errno);
  unfinished_ = file;
  if (target_.exists) take_over(fd, target_);
  return fd;
}

Status NpyOutput::map_file(const std::string& head, size_t bytes) {
  if (bytes > SIZE_MAX - head.size()) return file_error("reserve space for", target_.path, EFBIG);
  mapped_bytes_ = std::max<size_t>(head.size() + bytes, 1);
  if (!target_.file.empty()) {
    const auto created = create_file();
    if (!created.ok()) return created.status();
    descriptor_ = *created;
    // A page of a mapped file that finds no room on the disk would be a SIGBUS.
    if (const int error = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(mapped_bytes_)); error != 0) {
      return file_error("reserve space for", unfinished_, error);
    }
  }
  const int flags = descriptor_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const at = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
  const int error = errno;
  if (at == MAP_FAILED) return file_error("map", unfinished_.empty() ? "memory for a result" : unfinished_, error);
  mapped_ = at;
  std::memcpy(at, head.data(), head.size());
  data_ = {static_cast<std::byte*>(at) + head.size(), bytes};
  return {};
}

Status NpyOutput::sync() {
  // Without this, what the disk refuses is noticed by nobody.
  if (!unfinished_.empty() && ::msync(mapped_, mapped_bytes_, MS_SYNC) != 0) {
    return file_error("write", unfinished_, errno);
  }
  // Nobody shall have put a directory there meanwhile.
  struct stat about {};
  if (!unfinished_.empty() && ::lstat(target_.file.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    return file_error("write", target_.path, S_ISDIR(about.st_mode) ? EISDIR : EEXIST);
  }
  return {};
}

Status NpyOutput::write_into(const std::stop_token& stop) {
  if (target_.path.empty() || !target_.file.empty()) return {};
  const auto fd = open_for_writing(target_, stop);
  if (!fd.ok()) return fd.status();
  // A reader that has gone is an error of this write, not the end of the process.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Status written = write_all(*fd, target_, static_cast<const std::byte*>(mapped_), mapped_bytes_, stop);
  std::signal(SIGPIPE, before);
  if (::close(*fd) != 0 && written.ok()) written = file_error("write", target_.path, errno);
  return written;
}

Status NpyOutput::finish() {
  if (unfinished_.empty()) return {};
  if (std::rename(unfinished_.c_str(), target_.file.c_str()) != 0) return file_error("write", target_.path, errno);
  unfinished_.clear();
  return {};
}

void NpyOutput::begin_writing() const {
  // It does not wait, so that errors are left for sync().
  if (descriptor_ >= 0) (void)::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

NpyOutput::~NpyOutput() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

WriteBehind::WriteBehind(std::vector<const NpyOutput*> outputs) {
  try {
    thread_ = std::jthread([outputs = std::move(outputs)](const std::stop_token& stop) {
      std::mutex mutex;
      std::condition_variable_any ended;
      std::unique_lock lock(mutex);
      while (!stop.stop_requested()) {
        for (const NpyOutput* out : outputs) out->begin_writing();
        ended.wait_for(lock, stop, kBetweenWrites, [] { return false; });
      }
    });
  } catch (const std::system_error&) {  // at a limit of threads
  }
}

Status commit(const std::vector<NpyOutput*>& outputs, std::stop_token stop) {
  for (NpyOutput* out : outputs) {
    if (Status s = out->sync(); !s.ok()) return s;
  }
  for (NpyOutput* out : outputs) {
    if (Status s = out->write_into(stop); !s.ok()) return s;
  }
  for (NpyOutput* out : outputs) {
    if (Status s = out->finish(); !s.ok()) return s;
  }
  return {};
}

}  // namespace svdserve::cli
