#include "client/cli/npy_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cli/npy.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

Status io_error(const char* what, const std::string& path, int error) {
  return {.code = client::Code::kNotFound,
          .message = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error))};
}

}  // namespace

Result<std::unique_ptr<NpyOutput>> NpyOutput::make(const std::string& path, const std::string& type,
                                                   const std::vector<int64_t>& shape, bool fortran_order,
                                                   size_t bytes) {
  std::unique_ptr<NpyOutput> out(new NpyOutput);
  out->path_ = path;
  const std::string head = path.empty() ? "" : npy_header(type, shape, fortran_order);
  if (Status s = out->map_file(head, bytes); !s.ok()) return s;
  return out;
}

Status NpyOutput::map_file(const std::string& head, size_t bytes) {
  int fd = -1;
  mapped_bytes_ = std::max<size_t>(head.size() + bytes, 1);
  if (!path_.empty()) {
    const std::string file = absl::StrCat(path_, ".", ::getpid(), ".part");
    fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return io_error("create", file, errno);
    unfinished_ = file;
    // A page of a mapped file that finds no room on the disk would be a SIGBUS.
    if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(mapped_bytes_)); error != 0) {
      ::close(fd);
      return io_error("reserve space for", file, error);
    }
  }
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* const at = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (at == MAP_FAILED) return io_error("map", path_.empty() ? "memory for a result" : unfinished_, error);
  mapped_ = at;
  std::memcpy(at, head.data(), head.size());
  data_ = {static_cast<std::byte*>(at) + head.size(), bytes};
  return {};
}

Status NpyOutput::commit() {
  if (unfinished_.empty()) return {};
  // Without this, what the disk refuses is noticed by nobody.
  if (::msync(mapped_, mapped_bytes_, MS_SYNC) != 0) return io_error("write", unfinished_, errno);
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) return io_error("write", path_, errno);
  unfinished_.clear();
  return {};
}

NpyOutput::~NpyOutput() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

}  // namespace svdserve::cli
