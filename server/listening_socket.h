// Sockets that listen: for the gRPC port and for the HTTP port.
#ifndef SVDSERVE_SERVER_LISTENING_SOCKET_H_
#define SVDSERVE_SERVER_LISTENING_SOCKET_H_

#include <string>
#include <utility>
#include <vector>

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
  ~Descriptor();

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// What listens on one address of the configuration; closed, and a Unix socket's file removed, by the destructor.
// Not thread-safe.
class ListeningSockets {
 public:
  ListeningSockets() = default;
  ListeningSockets(ListeningSockets&&) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  // `address`: HOST:PORT, [IPV6]:PORT or unix:PATH. Port 0: any free one. A name listens on all its addresses. Returns
  // none, with *error set, where that cannot be: above all, where somebody else listens there.
  static ListeningSockets Open(const std::string& address, std::string* error);

  bool empty() const { return sockets_.empty(); }
  const std::vector<Descriptor>& sockets() const { return sockets_; }  // non-blocking
  // As it was given, with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  std::vector<Descriptor> sockets_;
  std::string address_;
  std::string path_;  // of a Unix socket
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LISTENING_SOCKET_H_
