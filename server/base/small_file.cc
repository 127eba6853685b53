#include "server/base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "server/base/descriptor.h"

namespace svdserve::server {
namespace {

// A name beside `path` on which nobody else writes. A file that a killed process of the same id left there is removed.
Descriptor create_temporary(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Descriptor file(open(path.c_str(), kFlags, 0644));
  if (file || errno != EEXIST || unlink(path.c_str()) != 0) return file;
  return Descriptor(open(path.c_str(), kFlags, 0644));
}

bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string read_small_file(const std::string& path, size_t max_bytes, std::string* text) {
  text->clear();
  // O_NONBLOCK: a pipe that nobody writes to would hold up the start.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return std::strerror(errno);
  struct stat about {};
  if (fstat(file.get(), &about) != 0) return std::strerror(errno);
  if (S_ISDIR(about.st_mode)) return "it is a directory";
  if (!S_ISREG(about.st_mode)) return "it is not a regular file";
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) break;
    text->append(buffer, static_cast<size_t>(n));
    if (text->size() > max_bytes) return "it has more than " + std::to_string(max_bytes) + " bytes";
  }
  return text->empty() ? "it is empty" : "";
}

std::string write_small_file(const std::string& path, const std::string& text) {
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".tmp";
  const Descriptor file = create_temporary(unfinished);
  if (!file) return std::strerror(errno);
  if (write_all(file.get(), text) && std::rename(unfinished.c_str(), path.c_str()) == 0) return "";
  const std::string why = std::strerror(errno);
  unlink(unfinished.c_str());
  return why;
}

}  // namespace svdserve::server
