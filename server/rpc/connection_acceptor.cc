#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/log.h"

namespace svdserve::server {
namespace {

// Descriptors for everything that is no gRPC connection: the HTTP port's, files, gRPC's own.
constexpr int64_t kReservedDescriptors = 128;
constexpr int kPauseMilliseconds = 100;                  // without a free descriptor
constexpr unsigned kUnacknowledgedMilliseconds = 20000;  // then a peer is gone: as gRPC's listener sets it
constexpr absl::Duration kBetweenWarnings = absl::Seconds(10);

int64_t descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(INT32_MAX)) return INT32_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

// The number of the socket behind a descriptor, which no other has while it is open; 0 where there is none.
ino_t socket_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(ListeningSockets listening, int64_t max_connections, Recorder* recorder,
                                       HandOver hand_over)
    : listening_(std::move(listening)),
      address_(listening_->address()),
      recorder_(recorder),
      hand_over_(std::move(hand_over)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const Descriptor probe(fcntl(stop_.get(), F_DUPFD_CLOEXEC, 0));
  first_free_ = std::max(probe.get(), 0);
  const int64_t free = std::max<int64_t>(descriptor_limit() - first_free_, 2);
  max_connections_ = std::min(max_connections, free - std::min(kReservedDescriptors, free / 2));
  if (max_connections_ < max_connections) {
    log_warning("fewer_connections", {{"max_connections", max_connections_}, {"descriptor_limit", descriptor_limit()}});
  }
  thread_ = std::thread([this] { Run(); });
}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // Cannot fail: the counter of an eventfd that was never written to has room.
  static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.join();
  listening_.reset();
}

void ConnectionAcceptor::BreakConnections() const {
  for (const auto& [fd, socket] : sockets_) {
    if (socket_of(fd) == socket) shutdown(fd, SHUT_RDWR);
  }
}

void ConnectionAcceptor::Run() {
  std::vector<pollfd> polled;
  bool paused = false;
  for (;;) {
    polled.assign(1, {stop_.get(), POLLIN, 0});
    for (const Descriptor& socket : listening_->sockets()) {
      polled.push_back({socket.get(), static_cast<short>(paused ? 0 : POLLIN), 0});
    }
    poll(polled.data(), polled.size(), paused ? kPauseMilliseconds : -1);
    if (polled[0].revents != 0) return;
    paused = false;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptFrom(polled[i].fd)) paused = true;
    }
  }
}

bool ConnectionAcceptor::AcceptFrom(int socket) {
  for (;;) {
    Descriptor accepted(accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    // A new descriptor has the lowest number that is free: with so large a number, so many are open. gRPC does not say
    // when it closes one, the numbers do.
    if (accepted.get() - first_free_ >= max_connections_) {
      Refused();
      continue;
    }
    // As gRPC's listener does; both fail on a Unix socket, which needs neither.
    const int on = 1;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMilliseconds,
               sizeof kUnacknowledgedMilliseconds);
    sockets_[accepted.get()] = socket_of(accepted.get());
    hand_over_(accepted.release());
  }
}

void ConnectionAcceptor::Refused() {
  recorder_->ConnectionRefused();
  const absl::Time now = absl::Now();
  if (now - last_warning_ < kBetweenWarnings) return;
  last_warning_ = now;
  log_warning("connection_refused", {{"max_connections", max_connections_}});
}

}  // namespace svdserve::server
