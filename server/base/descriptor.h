// A file descriptor that is closed with its owner.
#ifndef SVDSERVE_SERVER_BASE_DESCRIPTOR_H_
#define SVDSERVE_SERVER_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace svdserve::server {

// Owns a file descriptor; -1: none. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_DESCRIPTOR_H_
