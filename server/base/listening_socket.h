// Addresses to listen on, and sockets that listen there: for the gRPC port and for the HTTP port.
#ifndef SVDSERVE_SERVER_BASE_LISTENING_SOCKET_H_
#define SVDSERVE_SERVER_BASE_LISTENING_SOCKET_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "server/base/descriptor.h"

namespace svdserve::server {

// An address of the configuration and what it was resolved to. The addresses that are checked are bound: nothing is
// resolved again.
class ListenAddress {
 public:
  ListenAddress() = default;
  // `text`: HOST:PORT, [IPV6]:PORT or unix:PATH. A host's name may ask the network. Nothing, with *error set, where the
  // name has no address.
  static std::optional<ListenAddress> resolve(const std::string& text, std::string* error);

  // As it was given.
  const std::string& text() const { return text_; }
  bool is_unix() const { return !path_.empty(); }
  // Whether no other machine reaches it: a Unix socket, or a host all of whose addresses are of the loopback interface.
  bool is_loopback() const;

 private:
  friend class ListeningSockets;
  struct SocketAddress {
    sockaddr_storage storage;
    socklen_t size;
  };

  std::string text_;
  std::string path_;                      // of a Unix socket
  std::vector<SocketAddress> addresses_;  // none for a Unix socket
};

// The sockets that listen on one address of the configuration. The destructor closes them, and removes the file of a
// Unix socket. Not thread-safe.
class ListeningSockets {
 public:
  ListeningSockets() = default;
  ListeningSockets(ListeningSockets&&) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  // Port 0: any free one. A name listens on all its addresses. Returns none, with *error set, where that cannot be:
  // above all, where somebody else listens there.
  static ListeningSockets open(const ListenAddress& address, std::string* error);

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
#endif  // SVDSERVE_SERVER_BASE_LISTENING_SOCKET_H_
