#include "tests/server/hanging_disk.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

struct Disk {
  Mutex mu;
  CondVar changed;
  std::string hangs ABSL_GUARDED_BY(mu);  // in such paths; empty: nowhere
  int inside ABSL_GUARDED_BY(mu) = 0;     // calls that hang, or did
};
Disk& disk() {
  static auto* const the_disk = new Disk();  // threads that are left behind have it
  return *the_disk;
}

std::string path_of(int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t bytes = readlink(link.c_str(), path.data(), path.size());
  return bytes > 0 ? std::string(path.data(), static_cast<size_t>(bytes)) : "";
}

void pass(int fd) {
  Disk& d = disk();
  MutexLock lock(&d.mu);
  if (d.hangs.empty() || path_of(fd).find(d.hangs) == std::string::npos) return;
  ++d.inside;
  d.changed.signal_all();
  while (!d.hangs.empty()) d.changed.wait(&d.mu);
  --d.inside;
  d.changed.signal_all();
}

}  // namespace

HangingDisk::HangingDisk(const std::string& part) {
  MutexLock lock(&disk().mu);
  disk().hangs = part;
}

HangingDisk::~HangingDisk() {
  MutexLock lock(&disk().mu);
  disk().hangs.clear();
  disk().changed.signal_all();
  while (disk().inside > 0) disk().changed.wait(&disk().mu);
}

void HangingDisk::await() {
  MutexLock lock(&disk().mu);
  while (disk().inside == 0) disk().changed.wait(&disk().mu);
}

}  // namespace svdserve::server

// In the place of the C library's.
extern "C" int fsync(int fd) {
  svdserve::server::pass(fd);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int posix_fallocate(int fd, off_t offset, off_t bytes) {
  svdserve::server::pass(fd);
  return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}
