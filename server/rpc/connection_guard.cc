#include "server/rpc/connection_guard.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "server/base/log.h"
#include "server/peer_address.h"

namespace svdserve::server {
namespace {

// Linux's tcp_info as far as it is needed here. The C library's ends earlier, and the kernel's header does not go with it.
struct TcpInfo {
  tcp_info common;
  uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
};
static_assert(offsetof(TcpInfo, bytes_acked) == 120);

struct GprFree {
  void operator()(char* text) const { gpr_free(text); }
};
using GprText = std::unique_ptr<char, GprFree>;

constexpr absl::Duration kBan = absl::Minutes(1);
constexpr size_t kMostBans = 10000;

// The time of a clock that never goes back.
absl::Time steady_now() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Processor time of all threads.
absl::Duration processor_time() {
  timespec used{};
  return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0 ? absl::DurationFromTimespec(used) : absl::ZeroDuration();
}

// Throws away what the kernel still has of a connection that was shut down, so that the transport does not parse it.
// Returns the bytes.
int64_t discard_unread(int fd) {
  constexpr size_t kAtOnce = 1 << 20;
  constexpr int kMost = 256;
  int64_t out = 0;
  for (int i = 0; i < kMost; ++i) {
    const ssize_t n = recv(fd, nullptr, kAtOnce, MSG_DONTWAIT | MSG_TRUNC);  // nothing is copied
    if (n <= 0) break;
    out += n;
  }
  return out;
}

// The string after the next `"key":"` of gRPC's JSON, which has no spaces; *at moves behind it.
std::optional<absl::string_view> next_string(absl::string_view json, absl::string_view key, size_t* at) {
  *at = json.find(key, *at);
  if (*at == absl::string_view::npos) return std::nullopt;
  *at += key.size();
  const size_t end = json.find('"', *at);
  if (end == absl::string_view::npos) return std::nullopt;
  return json.substr(*at, end - *at);
}

}  // namespace

absl::Duration TimeOfLooks::step(absl::Time now, absl::Duration used) {
  const absl::Duration passed = now - std::exchange(now_, now);
  const absl::Duration had = used - std::exchange(used_, used);
  const bool starved = passed > kOnTime && had < passed * kLeastShare;
  return starved ? absl::ZeroDuration() : std::min(passed, kLongest);
}

bool ConnectionAccount::wants_streams(const ConnectionNumbers& numbers, absl::Time now) const {
  if (strays_ > 0) return true;
  const double seconds = std::max(absl::ToDoubleSeconds(now - last_), 0.0);
  const int64_t received = numbers.received - before_.received, messages = numbers.messages - before_.messages;
  return received > messages && static_cast<double>(received - messages) > seconds * kSlackASecond / 2;
}

int64_t ConnectionAccount::take_bytes(const ConnectionNumbers& numbers, absl::Time now) {
  granted_ += std::max(absl::ToDoubleSeconds(now - last_), 0.0) * kSlackASecond;
  last_ = now;
  before_ = numbers;
  const int64_t beside_calls = numbers.received - numbers.acknowledged / kWindowShare - static_cast<int64_t>(granted_);
  const int64_t settled = numbers.messages_before + std::max<int64_t>(numbers.forgiven_before - kLate, 0);
  lowest_ = std::min(lowest_, beside_calls - settled);
  return beside_calls - (numbers.messages + numbers.forgiven) - lowest_;
}

void ConnectionAccount::take_streams(int64_t streams, int64_t handled, absl::Time now) {
  constexpr int kQuarter = 4;
  const double seconds = std::max(absl::ToDoubleSeconds(now - streams_at_), 0.0);
  const auto stray = static_cast<double>((streams - streams_) - kQuarter * (handled - handled_));
  strays_ = std::clamp(strays_ + stray - seconds * kStrayStreams, 0.0, kMostStrays);
  streams_ = streams;
  handled_ = handled;
  streams_at_ = now;
}

bool ConnectionAccount::judge(const ConnectionNumbers& numbers, std::optional<int64_t> streams, absl::Time now,
                              absl::Duration step, absl::Duration patience) {
  const int64_t parsed = take_bytes(numbers, now) - numbers.unread - numbers.due;
  if (streams) take_streams(*streams, numbers.handled, now);
  if (step == absl::ZeroDuration()) return false;
  if (parsed > kSlack || strays_ > kStraySlack) {
    beyond_for_ = beyond_for_ ? *beyond_for_ + step : absl::ZeroDuration();
  } else {
    beyond_for_.reset();
  }
  return parsed > kMuch || (beyond_for_ && *beyond_for_ >= patience);
}

std::optional<ConnectionNumbers> numbers_of(int fd) {
  TcpInfo info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof info) return std::nullopt;
  int unread = 0;
  if (ioctl(fd, FIONREAD, &unread) != 0) unread = 0;
  ConnectionNumbers out;
  out.received = static_cast<int64_t>(info.bytes_received);
  out.acknowledged = static_cast<int64_t>(info.bytes_acked);
  out.unread = unread;
  return out;
}

void StreamCounter::refresh() {
  sockets_.clear();
  constexpr absl::string_view kServer = "\"serverId\":\"", kName = "\"name\":\"chttp2 ", kSocket = "\"socketId\":\"";
  intptr_t server = 0;
  for (;;) {
    const GprText servers(grpc_channelz_get_servers(server + 1));
    size_t at = 0;
    const auto id = servers == nullptr ? std::nullopt : next_string(servers.get(), kServer, &at);
    if (!id || !absl::SimpleAtoi(*id, &server)) return;
    for (intptr_t socket = 0;;) {
      const GprText page(grpc_channelz_get_server_sockets(server, socket, 0));
      if (page == nullptr) break;
      const intptr_t before = socket;
      at = 0;
      while (const auto name = next_string(page.get(), kName, &at)) {
        const auto number = next_string(page.get(), kSocket, &at);
        if (!number || !absl::SimpleAtoi(*number, &socket)) break;
        sockets_[endpoint_of(*name)] = socket;
      }
      if (socket == before || absl::string_view(page.get()).find("\"end\":true") != absl::string_view::npos) break;
      ++socket;
    }
  }
}

std::optional<int64_t> StreamCounter::streams_of(const std::string& endpoint) const {
  const auto found = sockets_.find(endpoint);
  if (found == sockets_.end()) return std::nullopt;
  const GprText socket(grpc_channelz_get_socket(found->second));
  if (socket == nullptr) return std::nullopt;
  size_t at = 0;
  int64_t out = 0;
  const auto started = next_string(socket.get(), "\"streamsStarted\":\"", &at);
  if (started && !absl::SimpleAtoi(*started, &out)) return std::nullopt;
  return out;
}

ino_t socket_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

ConnectionGuard::ConnectionGuard(absl::Duration patience, int64_t window, ConnectionTraffic* traffic,
                                 Recorder* recorder)
    : patience_(patience),
      window_(window),
      traffic_(traffic),
      recorder_(recorder),
      time_(steady_now(), processor_time()),
      thread_([this] { run(); }) {}

ConnectionGuard::~ConnectionGuard() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.signal();
  }
  thread_.join();
}

void ConnectionGuard::watch(int fd, const sockaddr_storage& from, const Peer& peer) {
  if (!numbers_of(fd)) return;
  const std::string endpoint = endpoint_of(from);
  MutexLock lock(&mu_);
  const auto [at, is_new] = connections_.try_emplace(fd);
  if (!is_new) traffic_->remove(at->second.endpoint, at->second.traffic);  // an earlier one, which has gone
  at->second = {socket_of(fd), peer, endpoint, traffic_->add(endpoint), ConnectionAccount(steady_now())};
}

bool ConnectionGuard::is_banned(const Peer& peer) const {
  MutexLock lock(&mu_);
  return is_banned_at(peer, steady_now());
}

bool ConnectionGuard::is_banned_at(const Peer& peer, absl::Time now) const {
  const auto found = banned_.find(peer);
  return found != banned_.end() && now < found->second;
}

void ConnectionGuard::run() {
  auto next = std::chrono::steady_clock::now();
  mu_.lock();
  while (!stopping_) {
    look();
    next = std::max(next + absl::ToChronoMilliseconds(TimeOfLooks::kPeriod), std::chrono::steady_clock::now());
    while (!stopping_ && std::chrono::steady_clock::now() < next) changed_.wait_until(&mu_, next);
  }
  mu_.unlock();
}

void ConnectionGuard::look() {
  const absl::Time now = steady_now();
  const absl::Duration step = time_.step(now, processor_time());
  absl::erase_if(banned_, [now](const auto& entry) { return entry.second <= now; });
  is_fresh_ = false;
  for (auto at = connections_.begin(); at != connections_.end();) {
    if (socket_of(at->first) == at->second.socket) {
      if (!at->second.broken) judge(at->first, step, &at->second);
      ++at;
    } else {
      traffic_->remove(at->second.endpoint, at->second.traffic);
      at = connections_.erase(at);
    }
  }
}

void ConnectionGuard::judge(int fd, absl::Duration step, Connection* connection) {
  const Traffic& traffic = *connection->traffic;
  const int64_t messages_before = traffic.messages.load(std::memory_order_relaxed);
  const int64_t forgiven_before = traffic.forgiven.load(std::memory_order_relaxed);
  std::optional<ConnectionNumbers> numbers = numbers_of(fd);
  if (!numbers) return;
  numbers->messages_before = messages_before;
  numbers->forgiven_before = forgiven_before;
  // A call that ends meanwhile counts twice, not never.
  numbers->due = window_ + traffic.due.load(std::memory_order_acquire);
  numbers->messages = traffic.messages.load(std::memory_order_relaxed);
  numbers->forgiven = traffic.forgiven.load(std::memory_order_relaxed);
  numbers->handled = traffic.handled.load(std::memory_order_relaxed);
  const absl::Time now = steady_now();
  std::optional<int64_t> streams;
  if (connection->account.wants_streams(*numbers, now)) {
    streams = streams_.streams_of(connection->endpoint);
    if (!streams && !std::exchange(is_fresh_, true)) {
      streams_.refresh();
      streams = streams_.streams_of(connection->endpoint);
    }
  }
  // Other connections of an offender wait for the transport, with all that they have sent. Those that have brought no
  // call yet go with the first one.
  const bool banned = is_banned_at(connection->peer, now);
  if (banned) numbers->unread = 0;
  const bool beyond =
      connection->account.judge(*numbers, streams, now, step, banned ? absl::ZeroDuration() : patience_);
  if (beyond || (banned && numbers->messages == 0 && numbers->handled == 0)) break_off(fd, *numbers, connection);
}

void ConnectionGuard::break_off(int fd, const ConnectionNumbers& numbers, Connection* connection) {
  if (socket_of(fd) != connection->socket) return;
  shutdown(fd, SHUT_RDWR);
  const int64_t discarded = discard_unread(fd);
  connection->broken = true;
  if (banned_.size() < kMostBans) banned_[connection->peer] = steady_now() + kBan;
  recorder_->connection_cut_off();
  log_warning("connection_cut_off", {{"peer", connection->peer},
                                     {"received_bytes", numbers.received},
                                     {"bytes_of_messages", numbers.messages},
                                     {"discarded_bytes", discarded},
                                     {"calls", numbers.handled}});
}

}  // namespace svdserve::server
