#include "server/metrics/http_exposer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/listening_socket.h"
#include "server/metrics/http_reply.h"

namespace svdserve::server {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxRequestBytes = 8192;
constexpr milliseconds kRequestLimit(2000);  // from the connection to the end of its request
constexpr milliseconds kReplyLimit(5000);    // from there until the peer has taken the reply
constexpr milliseconds kLingerLimit(1000);   // and until it has closed its side
constexpr milliseconds kAcceptPause(100);    // without a free descriptor

// One request and its reply. Then it reads on until the peer closes: to close first, with bytes unread, would take back
// what the peer has not read yet.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)), until_(Steady::now() + kRequestLimit) {}

  int fd() const { return socket_.get(); }
  Steady::time_point until() const { return until_; }
  short events() const { return stage_ == Stage::kWriting ? POLLOUT : POLLIN; }

  // Goes as far as it can without waiting. False: it is over.
  bool go(const HttpHandlers& handlers) {
    if (stage_ == Stage::kReading && !read(handlers)) return false;
    if (stage_ == Stage::kWriting && !write()) return false;
    return stage_ != Stage::kLingering || linger();
  }

 private:
  enum class Stage : uint8_t { kReading, kWriting, kLingering };

  bool read(const HttpHandlers& handlers) {
    char buffer[4096];
    for (;;) {
      const ssize_t n = recv(fd(), buffer, sizeof buffer, 0);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (n == 0) return false;
      bytes_.append(buffer, static_cast<size_t>(n));
      if (bytes_.find("\r\n\r\n") != std::string::npos) {
        start_reply(http_reply(bytes_, handlers));
        return true;
      }
      if (bytes_.size() > kMaxRequestBytes) {
        start_reply(http_reply_too_long());
        return true;
      }
    }
  }

  void start_reply(std::string text) {
    bytes_ = std::move(text);
    stage_ = Stage::kWriting;
    until_ = Steady::now() + kReplyLimit;
  }

  bool write() {
    while (sent_ < bytes_.size()) {
      const ssize_t n = send(fd(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      sent_ += static_cast<size_t>(n);
    }
    shutdown(fd(), SHUT_WR);
    stage_ = Stage::kLingering;
    until_ = Steady::now() + kLingerLimit;
    return true;
  }

  bool linger() {
    char ignored[4096];
    // A bound for those who never stop sending: the deadline ends them.
    for (int i = 0; i < 16; ++i) {
      const ssize_t n = recv(fd(), ignored, sizeof ignored, 0);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (n == 0) return false;
    }
    return true;
  }

  Descriptor socket_;
  Steady::time_point until_;
  Stage stage_ = Stage::kReading;
  std::string bytes_;  // of the request, then of the reply
  size_t sent_ = 0;
};

}  // namespace

struct HttpExposer::Impl {
  explicit Impl(ListeningSockets s) : listening(std::move(s)), stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~Impl() {
    const uint64_t one = 1;
    if (thread.joinable() && write(stop.get(), &one, sizeof one) == sizeof one) thread.join();
  }

  void run() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.assign(1, {stop.get(), POLLIN, 0});
      Steady::time_point wake = Steady::now() + std::chrono::hours(1);
      const bool accepting = Steady::now() >= accept_again;
      if (!accepting) wake = accept_again;
      for (const Descriptor& socket : listening.sockets()) {
        polled.push_back({socket.get(), static_cast<short>(accepting ? POLLIN : 0), 0});
      }
      for (const Connection& connection : connections) {
        polled.push_back({connection.fd(), connection.events(), 0});
        wake = std::min(wake, connection.until());
      }
      const auto wait = std::chrono::ceil<milliseconds>(wake - Steady::now()).count();
      poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(wait, 0)));
      if (polled[0].revents != 0) return;
      // Before new ones are accepted: `polled` speaks of those that were there.
      const size_t first = 1 + listening.sockets().size();
      const Steady::time_point now = Steady::now();
      std::vector<Connection> going_on;
      for (size_t i = 0; i < connections.size(); ++i) {
        const bool goes_on = polled[first + i].revents == 0 || connections[i].go(handlers);
        if (goes_on && connections[i].until() > now) going_on.push_back(std::move(connections[i]));
      }
      connections = std::move(going_on);
      for (size_t s = 0; s < listening.sockets().size(); ++s) {
        if (polled[1 + s].revents != 0) accept(listening.sockets()[s].get());
      }
    }
  }

  void accept(int socket) {
    // A client that floods the port takes turns with the others.
    for (size_t i = 0; i < kMaxConnections; ++i) {
      Descriptor accepted(accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!accepted) {
        const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (!exhausted) return;
        if (connections.empty()) {
          accept_again = Steady::now() + kAcceptPause;
          return;
        }
        connections.erase(connections.begin());
        continue;
      }
      Connection connection(std::move(accepted));
      // The request is often there already: then nobody else's place is needed.
      if (!connection.go(handlers)) continue;
      if (connections.size() == kMaxConnections) connections.erase(connections.begin());
      connections.push_back(std::move(connection));
    }
  }

  const ListeningSockets listening;
  const Descriptor stop;  // readable: the thread ends
  HttpHandlers handlers;
  std::vector<Connection> connections;  // from the oldest to the youngest
  Steady::time_point accept_again;
  std::thread thread;
};

std::function<std::string()> reuse_text(std::function<std::string()> render, absl::Duration max_age, Clock* clock) {
  return [render = std::move(render), max_age, clock, text = std::string(), rendered = absl::InfinitePast()]() mutable {
    const absl::Time now = clock->now();
    if (now - rendered >= max_age) {
      text = render();
      rendered = now;
    }
    return text;
  };
}

HttpExposer::~HttpExposer() = default;

const std::string& HttpExposer::address() const { return impl_->listening.address(); }

std::unique_ptr<HttpExposer> HttpExposer::listen(const ListenAddress& address, HttpHandlers handlers,
                                                 std::string* error) {
  ListeningSockets listening = ListeningSockets::open(address, error);
  if (listening.empty()) return nullptr;
  std::unique_ptr<HttpExposer> exposer(new HttpExposer);
  exposer->impl_ = std::make_unique<Impl>(std::move(listening));
  Impl& impl = *exposer->impl_;
  if (!impl.stop) {
    *error = std::string("cannot create an eventfd for the HTTP port: ") + std::strerror(errno);
    return nullptr;
  }
  impl.handlers = std::move(handlers);
  impl.thread = std::thread([&impl] { impl.run(); });
  return exposer;
}

}  // namespace svdserve::server
