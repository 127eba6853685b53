#include "client/cli/files/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "client/cli/files/file_error.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

Result<FileBytes> map(int fd, size_t size, const std::string& name) {
  void* const at = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) return file_error("map", name, errno);
  std::shared_ptr<const void> owner(at, [size](const void* p) {
    if (p != nullptr) ::munmap(const_cast<void*>(p), size);
  });
  return FileBytes{{static_cast<const std::byte*>(at), size}, std::move(owner)};
}

// Everything from where the descriptor stands.
Result<FileBytes> read_all(int fd, const std::string& name) {
  constexpr size_t kLeast = 1 << 16;
  size_t capacity = kLeast, size = 0;
  std::unique_ptr<std::byte, decltype(&std::free)> memory(static_cast<std::byte*>(std::malloc(capacity)), &std::free);
  for (;;) {
    if (size == capacity) {
      capacity *= 2;
      auto* const larger = static_cast<std::byte*>(std::realloc(memory.get(), capacity));
      if (larger == nullptr) return file_error("read", name, ENOMEM);
      (void)memory.release();
      memory.reset(larger);
    }
    const ssize_t got = ::read(fd, memory.get() + size, capacity - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error("read", name, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  const std::span<const std::byte> bytes(memory.get(), size);
  return FileBytes{
      bytes, std::shared_ptr<const void>(memory.release(), [](const void* p) { std::free(const_cast<void*>(p)); })};
}

Result<FileBytes> standard_input() {
  const std::string name = "standard input";
  if (::isatty(STDIN_FILENO) == 1)
    return input_error("-: standard input is a terminal; send a file into it, by < or a pipe");
  struct stat about {};
  if (::fstat(STDIN_FILENO, &about) != 0) return file_error("read", name, errno);
  const bool is_whole = S_ISREG(about.st_mode) && ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
  return is_whole ? map(STDIN_FILENO, static_cast<size_t>(about.st_size), name) : read_all(STDIN_FILENO, name);
}

}  // namespace

Result<FileBytes> file_bytes(const std::string& path) {
  if (path == "-") return standard_input();
  // Without O_NONBLOCK a named pipe that nobody writes to would hold us here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error("open", path, errno);
  struct stat about {};
  if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    const bool is_file = S_ISREG(about.st_mode);
    const Status s = is_file ? file_error("read", path, errno) : input_error(path + " is not a regular file");
    ::close(fd);
    return s;
  }
  Result<FileBytes> mapped = map(fd, static_cast<size_t>(about.st_size), path);
  ::close(fd);
  return mapped;
}

}  // namespace svdserve::cli
