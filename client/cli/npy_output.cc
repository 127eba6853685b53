#include "client/cli/npy_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cli/file_error.h"
#include "client/cli/npy.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

constexpr int kPatienceMs = 50;  // between two looks at whether to stop

Status stopped(const std::string& path) {
  return {.code = client::Code::kCancelled, .message = "interrupted while writing " + path};
}

// Without a reader a pipe cannot be opened yet.
Result<int> open_for_writing(const OutputTarget& target, const std::stop_token& stop) {
  for (;;) {
    const int fd = ::open(target.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) return fd;
    const bool waits = errno == EINTR || (errno == ENXIO && target.is_pipe);
    if (!waits) return file_error("open", target.path, errno);
    if (stop.stop_requested()) return stopped(target.path);
    ::poll(nullptr, 0, kPatienceMs);
  }
}

Status write_all(int fd, const std::string& path, const std::byte* at, size_t bytes, const std::stop_token& stop) {
  while (bytes > 0) {
    const ssize_t written = ::write(fd, at, bytes);
    if (written >= 0) {
      at += written;
      bytes -= static_cast<size_t>(written);
      continue;
    }
    if (errno != EINTR && errno != EAGAIN) return file_error("write", path, errno);
    if (stop.stop_requested()) return stopped(path);
    pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, kPatienceMs);
  }
  return {};
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

Status NpyOutput::map_file(const std::string& head, size_t bytes) {
  int fd = -1;
  if (bytes > SIZE_MAX - head.size()) return file_error("reserve space for", target_.path, EFBIG);
  mapped_bytes_ = std::max<size_t>(head.size() + bytes, 1);
  if (!target_.file.empty()) {
    const std::string file = absl::StrCat(target_.file, ".", ::getpid(), ".part");
    fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return file_error("create", file, errno);
    unfinished_ = file;
    // A page of a mapped file that finds no room on the disk would be a SIGBUS.
    if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(mapped_bytes_)); error != 0) {
      ::close(fd);
      return file_error("reserve space for", file, error);
    }
  }
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const at = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
  const int error = errno;
  if (fd >= 0) ::close(fd);
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
  Status written = write_all(*fd, target_.path, static_cast<const std::byte*>(mapped_), mapped_bytes_, stop);
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

NpyOutput::~NpyOutput() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
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
