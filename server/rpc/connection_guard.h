// Finds connections whose client keeps the transport busy without calls. libgrpc 1.51 parses headers without end
// (CVE-2023-33953), and streams that are reset as soon as they begin (CVE-2023-44487), at the price of everybody's time.
//
// Twice a second the guard compares two numbers of each connection. One is the kernel's bytes received, beside the bytes
// that calls account for. The other one is the transport's streams begun, beside the calls handled. An open call
// accounts for a message that is on its way, and a call that ended before its message came accounts for as much. The
// balance of bytes never falls below zero, but for kLate, so that nobody saves up. While a header block is open no call
// can begin or end. SECURITY.md says what this does not catch.
//
// The guard must not judge a client by the server's own slowness. A look of a server without processor time is no
// evidence, see TimeOfLooks. The numbers of a look are read in an order that favours the client, since they change
// meanwhile.
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
  int64_t messages_before = 0, forgiven_before = 0;          // see Traffic; read before `received`
  int64_t received = 0, unread = 0;                          // bytes, by the kernel; `unread` of them are still with it
  int64_t acknowledged = 0;                                  // bytes that the client has taken
  int64_t messages = 0, forgiven = 0, due = 0, handled = 0;  // see Traffic; read after `received`
};

// Tells how long the server was under way between looks. A look is no evidence where it is late, and the process hardly
// had a processor: bytes have come, and no thread could handle them. An attack that does harm takes more of it.
class TimeOfLooks {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(500);
  static constexpr absl::Duration kOnTime = absl::Milliseconds(600);  // after the last one
  static constexpr absl::Duration kLongest = absl::Seconds(1);        // more has passed: the process stood still
  static constexpr double kLeastShare = 0.05;                         // of one processor

  // `used`: processor time of the process. Neither ever goes back.
  TimeOfLooks(absl::Time now, absl::Duration used) : now_(now), used_(used) {}
  // The time since the last look, at most kLongest. Zero: the look is no evidence.
  absl::Duration step(absl::Time now, absl::Duration used);

 private:
  absl::Time now_;
  absl::Duration used_;
};

// The account of one connection.
class ConnectionAccount {
 public:
  static constexpr int64_t kSlack = int64_t{256} << 10;  // bytes beyond what calls account for
  static constexpr int64_t kMuch = int64_t{8} << 20;     // likewise, at which nobody waits
  static constexpr int64_t kSlackASecond = 64 << 10;     // settings, pings and windows
  static constexpr int64_t kLate = int64_t{64} << 20;    // of forgiven bytes may come when their call has long ended
  static constexpr int64_t kWindowShare = 8;             // a client grants windows for what it takes
  static constexpr double kStrayStreams = 1000;          // a second, and only where handled ones are a quarter
  static constexpr double kStraySlack = 500;             // streams beyond that
  static constexpr double kMostStrays = 1500;            // that are remembered: a burst is forgotten in a second

  // `now` never goes back.
  explicit ConnectionAccount(absl::Time now) : last_(now) {}

  // Whether judge() wants to know the number of streams: more came than messages account for, of late.
  bool wants_streams(const ConnectionNumbers& numbers, absl::Time now) const;
  // Whether the connection has been beyond a bound, at each look, for `patience`, or is far beyond. `step`: since the
  // last look, from TimeOfLooks. Without one the numbers are taken and the answer is no.
  bool judge(const ConnectionNumbers& numbers, std::optional<int64_t> streams, absl::Time now, absl::Duration step,
             absl::Duration patience);

 private:
  // Bytes that nothing accounts for.
  int64_t take_bytes(const ConnectionNumbers& numbers, absl::Time now);
  void take_streams(int64_t streams, int64_t handled, absl::Time now);

  absl::Time last_;
  ConnectionNumbers before_;
  double granted_ = 0;                 // bytes, kSlackASecond
  int64_t lowest_ = 0;                 // balance of bytes so far
  double strays_ = 0;                  // streams beyond the bound, of late
  int64_t streams_ = 0, handled_ = 0;  // when streams were last asked for
  absl::Time streams_at_ = last_;
  std::optional<absl::Duration> beyond_for_;
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
  void judge(int fd, absl::Duration step, Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  TimeOfLooks time_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_GUARD_H_
