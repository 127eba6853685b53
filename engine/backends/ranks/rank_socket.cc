#include "engine/backends/ranks/rank_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::ranks {
namespace {

struct Header {
  int32_t kind = 0;
  int32_t unused = 0;
  uint64_t bytes = 0;
};

// Room for one descriptor beside a message.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

void receive_all(int socket, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw SocketClosed();
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

void RankSocket::send(int32_t kind, const Values& values, int descriptor) {
  Header header{kind, 0, values.bytes_.size()};
  iovec parts[2] = {{&header, sizeof(header)}, {const_cast<char*>(values.bytes_.data()), values.bytes_.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  Control control{};
  if (descriptor >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof(control);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(&control.header), &descriptor, sizeof(int));
  }
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = sendmsg(end_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw SocketClosed();
    message.msg_control = nullptr;  // it went with the first byte
    message.msg_controllen = 0;
    auto rest = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t of_part = std::min(rest, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + of_part;
      part.iov_len -= of_part;
      rest -= of_part;
    }
  }
}

Message RankSocket::receive() {
  Header header;
  iovec part{&header, sizeof(header)};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(end_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) throw SocketClosed();
  Message result;
  if (const cmsghdr* const c = CMSG_FIRSTHDR(&message); c != nullptr && c->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof(int));
    result.descriptor = Descriptor(fd);
  }
  receive_all(end_.get(), reinterpret_cast<char*>(&header) + got, sizeof(header) - static_cast<size_t>(got));
  result.kind = header.kind;
  result.values.bytes_.resize(header.bytes);
  receive_all(end_.get(), result.values.bytes_.data(), header.bytes);
  return result;
}

bool RankSocket::has_news_within(std::chrono::milliseconds time) const {
  pollfd end{end_.get(), POLLIN | POLLRDHUP, 0};
  int ready = 0;
  do {
    ready = poll(&end, 1, static_cast<int>(time.count()));
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

bool RankSocket::is_quiet() const { return !has_news_within(std::chrono::milliseconds(0)); }

std::pair<Descriptor, Descriptor> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw large::LargeStop{LargeStatus::kFault, std::string("no socket for a rank: ") + std::strerror(errno)};
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace svdserve::ranks
