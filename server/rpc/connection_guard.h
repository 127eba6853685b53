// Finds connections whose client keeps the transport busy without calls. libgrpc 1.51 parses headers without end
// (CVE-2023-33953), and streams that are reset as soon as they begin (CVE-2023-44487), at the price of everybody's time.
//
// Once a second the guard compares two numbers of each connection. One is the kernel's bytes received, beside the bytes
// that calls account for. The other one is the transport's streams begun, beside the calls handled. An open call accounts
// for a message that is on its way, and a call that the client has ended for as much. The balance of bytes never falls
// below zero, so that nobody saves up. While a header block is open no call can begin or end. SECURITY.md says what this
// does not catch.
#ifndef SVDSERVE_SERVER_RPC_CONNECTION_GUARD_H_
#define SVDSERVE_SERVER_RPC_CONNECTION_GUARD_H_

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/metrics/recorder.h"
#include "server/peer.h"
#include "server/rpc/connection_traffic.h"

namespace svdserve::server {

// One connection, since its beginning.
struct ConnectionNumbers {
  int64_t received = 0, unread = 0;                          // bytes, by the kernel; `unread` of them are still with it
  int64_t acknowledged = 0;                                  // bytes that the client has taken
  int64_t messages = 0, forgiven = 0, due = 0, handled = 0;  // see Traffic
};

// The account of one connection.
class ConnectionAccount {
 public:
  static constexpr int64_t kSlack = int64_t{256} << 10;  // bytes beyond what calls account for
  static constexpr int64_t kMuch = int64_t{8} << 20;     // likewise, at which nobody waits
  static constexpr int64_t kSlackASecond = 64 << 10;     // settings, pings and windows
  static constexpr int64_t kWindowShare = 8;             // a client grants windows for what it takes
  static constexpr double kMostStrayStreams = 1000;      // a second, and only where handled ones are a quarter

  // `now` never goes back.
  explicit ConnectionAccount(absl::Time now) : last_(now) {}

  // Whether judge() wants to know the number of streams: more came than messages account for.
  bool wants_streams(const ConnectionNumbers& numbers, absl::Time now) const;
  // Whether the connection has been beyond a bound, at each look, for `patience`, or is far beyond.
  bool judge(const ConnectionNumbers& numbers, std::optional<int64_t> streams, absl::Time now, absl::Duration patience);

 private:
  absl::Time last_;
  ConnectionNumbers before_;
  int64_t excess_ = 0;
  int64_t streams_ = 0, handled_ = 0;  // when streams were last asked for
  absl::Time streams_at_ = last_;
  absl::Time beyond_since_ = absl::InfiniteFuture();
};

// The kernel's numbers of a TCP socket; none for others.
std::optional<ConnectionNumbers> numbers_of(int fd);

// Streams that the transport has begun (gRPC's channelz), of all connections of the process's servers, by endpoint_of().
class StreamCounter {
 public:
  // Finds the connections: to be called before streams_of(), where there are new ones.
  void refresh();
  // None where the connection is not known.
  std::optional<int64_t> streams_of(const std::string& endpoint) const;

 private:
  absl::flat_hash_map<std::string, intptr_t> sockets_;
};

// The number of the socket behind a descriptor, which no other has while it is open; 0 where there is none.
ino_t socket_of(int fd);

// Breaks the connections that are beyond a bound. It has a thread of its own, since an attack may keep any thread busy that
// calls gRPC, the acceptor's too. Thread-safe.
class ConnectionGuard {
 public:
  // `window`: bytes that a client may send before anybody knows of its call. `traffic` and `recorder` outlive the guard.
  ConnectionGuard(absl::Duration patience, int64_t window, ConnectionTraffic* traffic, Recorder* recorder);
  ~ConnectionGuard();

  // Before gRPC gets the connection. It ends when the descriptor is closed.
  void watch(int fd, const sockaddr_storage& from, const Peer& peer);
  // Whether a connection of the peer was broken a moment ago. It would make the next one at once.
  bool is_banned(const Peer& peer) const;

 private:
  struct Connection {
    ino_t socket = 0;
    Peer peer;
    std::string endpoint;
    std::shared_ptr<Traffic> traffic;
    ConnectionAccount account{absl::InfinitePast()};
    bool broken = false;
  };

  void run();
  void look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void judge(int fd, Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void break_off(int fd, const ConnectionNumbers& numbers, Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool is_banned_at(const Peer& peer, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration patience_;
  const int64_t window_;
  ConnectionTraffic* const traffic_;
  Recorder* const recorder_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<int, Connection> connections_ ABSL_GUARDED_BY(mu_);  // by descriptor
  absl::flat_hash_map<Peer, absl::Time> banned_ ABSL_GUARDED_BY(mu_);     // until when
  StreamCounter streams_ ABSL_GUARDED_BY(mu_);
  bool is_fresh_ ABSL_GUARDED_BY(mu_) = false;  // streams_, in this look
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_GUARD_H_
