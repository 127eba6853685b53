#include "server/base/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

constexpr int kBacklog = 1024;
constexpr char kUnix[] = "unix:";

// A stream socket that listens on `to`; or none, with errno set.
Descriptor listening(const sockaddr* to, socklen_t size) {
  Descriptor socket(::socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  const int on = 1;
  // A restart does not wait for the connections of its predecessor to be forgotten.
  if (to->sa_family != AF_UNIX) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), to, size) != 0 || listen(socket.get(), kBacklog) != 0) {
    const int why = errno;
    socket = Descriptor();
    errno = why;
    return {};
  }
  return socket;
}

int bound_port(int socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) != 0) return 0;
  return at.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(&at)->sin6_port)
                                  : ntohs(reinterpret_cast<const sockaddr_in*>(&at)->sin_port);
}

void set_port(sockaddr* at, int port) {
  if (at->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(at)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(at)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// Whether the file is a socket that nobody listens on any more: what a killed server leaves behind.
bool is_left_over(const sockaddr_un& at) {
  struct stat about {};
  if (lstat(at.sun_path, &about) != 0 || !S_ISSOCK(about.st_mode)) return false;
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe && connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 && errno == ECONNREFUSED;
}

Descriptor listening_on_path(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path) {
    errno = ENAMETOOLONG;
    return {};
  }
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  if (is_left_over(at)) unlink(path.c_str());
  return listening(reinterpret_cast<const sockaddr*>(&at), sizeof at);
}

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

std::string cannot_listen(const std::string& address, const char* why) {
  return absl::StrCat("cannot listen on ", address, ": ", why);
}

bool is_loopback_v4(const in_addr& address) { return ntohl(address.s_addr) >> 24 == 127; }

}  // namespace

ListeningSockets::~ListeningSockets() {
  if (!sockets_.empty() && !path_.empty()) unlink(path_.c_str());
}

std::optional<ListenAddress> ListenAddress::resolve(const std::string& text, std::string* error) {
  ListenAddress out;
  out.text_ = text;
  if (absl::StartsWith(text, kUnix)) {
    out.path_ = text.substr(sizeof kUnix - 1);
    return out;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string host = host_of(text), port = text.substr(text.rfind(':') + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[';
  if (bracketed) hints.ai_flags |= AI_NUMERICHOST;  // asks no network for a misspelt address
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  if (const int code = getaddrinfo(name.c_str(), port.c_str(), &hints, &found); code != 0) {
    *error = cannot_listen(text, gai_strerror(code));
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = out.addresses_.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
  }
  return out;
}

bool ListenAddress::is_loopback() const {
  return std::all_of(addresses_.begin(), addresses_.end(), [](const SocketAddress& at) {
    if (at.storage.ss_family == AF_INET) {
      return is_loopback_v4(reinterpret_cast<const sockaddr_in&>(at.storage).sin_addr);
    }
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(at.storage).sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&v6)) return static_cast<bool>(IN6_IS_ADDR_LOOPBACK(&v6));
    in_addr v4{};
    std::memcpy(&v4, v6.s6_addr + 12, sizeof v4);
    return is_loopback_v4(v4);
  });
}

ListeningSockets ListeningSockets::open(const ListenAddress& address, std::string* error) {
  ListeningSockets out;
  out.address_ = address.text();
  const auto failed = [&](int why) {
    *error = cannot_listen(address.text(), std::strerror(why));
    return ListeningSockets();
  };
  if (!address.path_.empty()) {
    Descriptor socket = listening_on_path(address.path_);
    if (!socket) return failed(errno);
    out.path_ = address.path_;
    out.sockets_.push_back(std::move(socket));
    return out;
  }
  int bound = 0, why_not = EADDRNOTAVAIL;
  for (ListenAddress::SocketAddress at : address.addresses_) {
    auto* const to = reinterpret_cast<sockaddr*>(&at.storage);
    if (bound != 0) set_port(to, bound);  // port 0: the others take what the first was given
    Descriptor socket = listening(to, at.size);
    if (socket) {
      bound = bound_port(socket.get());
      out.sockets_.push_back(std::move(socket));
      continue;
    }
    why_not = errno;
    // A name may have an IPv6 address on a machine without IPv6. Anything else is a reason not to start.
    if (why_not != EADDRNOTAVAIL && why_not != EAFNOSUPPORT) return failed(why_not);
  }
  if (out.sockets_.empty()) return failed(why_not);
  out.address_ = absl::StrCat(host_of(address.text()), ":", bound);
  return out;
}

}  // namespace svdserve::server
