#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/log.h"

namespace svdserve::server {
namespace {

// Descriptors for everything that is no gRPC connection: the HTTP port's, files, gRPC's own.
constexpr int64_t kReservedDescriptors = 128;
constexpr int kPauseMilliseconds = 100;                  // without a free descriptor
constexpr unsigned kUnacknowledgedMilliseconds = 20000;  // then a peer is gone: as gRPC's listener sets it
constexpr absl::Duration kBetweenWarnings = absl::Seconds(10);
constexpr absl::Duration kBetweenCounts = absl::Milliseconds(100);

int64_t descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(INT32_MAX)) return INT32_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(ListeningSockets listening, const ConnectionLimits& limits,
                                       const TrustedProxies& proxies, ConnectionGuard* guard, Recorder* recorder,
                                       HandOver hand_over)
    : listening_(std::move(listening)),
      address_(listening_->address()),
      proxies_(proxies),
      guard_(guard),
      recorder_(recorder),
      hand_over_(std::move(hand_over)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const Descriptor probe(fcntl(stop_.get(), F_DUPFD_CLOEXEC, 0));
  first_free_ = std::max(probe.get(), 0);
  const int64_t free = std::max<int64_t>(descriptor_limit() - first_free_, 2);
  max_connections_ = std::min(limits.connections, free - std::min(kReservedDescriptors, free / 2));
  if (max_connections_ < limits.connections) {
    log_warning("fewer_connections", {{"max_connections", max_connections_}, {"descriptor_limit", descriptor_limit()}});
  }
  const double share = static_cast<double>(max_connections_) * limits.peer_percent / 100;
  max_of_peer_ = std::max<int64_t>(1, static_cast<int64_t>(share));
  thread_ = std::thread([this] { run(); });
}

ConnectionAcceptor::~ConnectionAcceptor() { stop(); }

void ConnectionAcceptor::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // Cannot fail: the counter of an eventfd that was never written to has room.
  static_cast<void>(!write(stop_.get(), &one, sizeof one));
  thread_.join();
  listening_.reset();
}

void ConnectionAcceptor::break_connections() const {
  for (const auto& [fd, connection] : sockets_) {
    if (socket_of(fd) == connection.socket) shutdown(fd, SHUT_RDWR);
  }
}

void ConnectionAcceptor::run() {
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
      if (polled[i].revents != 0 && !accept_from(polled[i].fd)) paused = true;
    }
  }
}

bool ConnectionAcceptor::accept_from(int socket) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    Descriptor accepted(accept4(socket, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    const std::optional<IpAddress> ip = ip_of(from);
    const Peer peer = ip ? peer_of(*ip) : peer_of_unix_socket(accepted.get());
    const bool is_proxy = ip && proxies_.contains(*ip);
    ConnectionGuard* const guard = ip && !is_proxy ? guard_ : nullptr;
    const bool is_banned = guard != nullptr && guard->is_banned(peer);
    if (is_banned || is_full(accepted.get()) || (!is_proxy && is_beyond_share(peer))) {
      refused(peer, is_banned ? "--connection-guard cut off this peer" : "--max-connections");
      continue;
    }
    // As gRPC's listener does; both fail on a Unix socket, which needs neither.
    const int on = 1;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMilliseconds,
               sizeof kUnacknowledgedMilliseconds);
    const auto [at, is_new] = sockets_.try_emplace(accepted.get());
    if (!is_new && --peers_[at->second.peer] == 0) peers_.erase(at->second.peer);  // an earlier one, which has gone
    at->second = {socket_of(accepted.get()), peer};
    ++peers_[peer];
    if (guard != nullptr) guard->watch(accepted.get(), from, peer);
    hand_over_(accepted.release());
  }
}

bool ConnectionAcceptor::is_full(int descriptor) {
  // A new descriptor has the lowest number that is free. A small one means that few are open, which costs nothing to
  // find out; a large one may be due to files that are no connections.
  if (descriptor - first_free_ < max_connections_) return false;
  const absl::Time now = absl::Now();
  if (now - last_count_ >= kBetweenCounts) {
    last_count_ = now;
    forget_closed();
  }
  return static_cast<int64_t>(sockets_.size()) >= max_connections_;
}

bool ConnectionAcceptor::is_beyond_share(const Peer& peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || found->second < max_of_peer_) return false;
  forget_closed();
  const auto now = peers_.find(peer);
  return now != peers_.end() && now->second >= max_of_peer_;
}

void ConnectionAcceptor::forget_closed() {
  peers_.clear();
  for (auto at = sockets_.begin(); at != sockets_.end();) {
    if (socket_of(at->first) == at->second.socket) {
      ++peers_[at->second.peer];
      ++at;
    } else {
      at = sockets_.erase(at);
    }
  }
}

void ConnectionAcceptor::refused(const Peer& peer, const char* reason) {
  recorder_->connection_refused();
  const absl::Time now = absl::Now();
  if (now - last_warning_ < kBetweenWarnings) return;
  last_warning_ = now;
  log_warning(
      "connection_refused",
      {{"max_connections", max_connections_}, {"max_of_peer", max_of_peer_}, {"peer", peer}, {"reason", reason}});
}

}  // namespace svdserve::server
