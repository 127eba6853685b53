// A disk that hangs, as far as fsync() and posix_fallocate() of this program are concerned.
#ifndef SVDSERVE_TESTS_SERVER_HANGING_DISK_H_
#define SVDSERVE_TESTS_SERVER_HANGING_DISK_H_

#include <string>

namespace svdserve::server {

// While it lives, these calls do not return for files with `part` in their paths. At most one at a time.
class HangingDisk {
 public:
  explicit HangingDisk(const std::string& part);
  // They go on, and have returned.
  ~HangingDisk();
  HangingDisk(const HangingDisk&) = delete;
  HangingDisk& operator=(const HangingDisk&) = delete;

  // Blocks until some call hangs.
  static void await();
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_HANGING_DISK_H_
