// Takes connections off listening sockets and hands them to gRPC, up to a number.
//
// gRPC has a listener of its own, but that one knows no limit. When the process has no file descriptor left it gives up
// listening for good, while the server looks healthy to every probe.
#ifndef SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/base/listening_socket.h"
#include "server/metrics/recorder.h"
#include "server/peer_address.h"
#include "server/rpc/connection_guard.h"

namespace svdserve::server {

struct ConnectionLimits {
  int64_t connections = 0;
  int peer_percent = 100;  // of them, for one peer that is no trusted proxy; at least one
};

class ConnectionAcceptor {
 public:
  // Owns the descriptor from then on. Called on the acceptor's thread.
  using HandOver = std::function<void(int fd)>;

  // Listens until stop(). Beyond the limits, or what the process's limit of descriptors leaves room for, a connection
  // is closed at once: its client sees UNAVAILABLE. `proxies`, `guard` and `recorder` outlive the acceptor. `guard` watches
  // connections of TCP that are no trusted proxy's; null: nobody does.
  ConnectionAcceptor(ListeningSockets listening, const ConnectionLimits& limits, const TrustedProxies& proxies,
                     ConnectionGuard* guard, Recorder* recorder, HandOver hand_over);
  ~ConnectionAcceptor();

  // Nothing is accepted any more. Once; the destructor does it otherwise.
  void stop();
  // After stop(): breaks the connections that are still there, so that gRPC gets rid of what it has for a client that
  // takes nothing. It would wait for that one, whatever is cancelled.
  void break_connections() const;

  const std::string& address() const { return address_; }
  int64_t max_connections() const { return max_connections_; }

 private:
  void run();
  // False: there is no descriptor for another one now.
  bool accept_from(int socket);
  void refused(const Peer& peer, const char* reason);
  // Whether one more connection is too many: of all, by the descriptor that it got, and of the peer. gRPC does not say
  // when it closes one, so the acceptor looks when it must.
  bool is_full(int descriptor);
  bool is_beyond_share(const Peer& peer);
  void forget_closed();

  // A connection that was handed over.
  struct Connection {
    ino_t socket;
    Peer peer;
  };

  std::optional<ListeningSockets> listening_;  // until stop()
  const std::string address_;
  const TrustedProxies& proxies_;
  ConnectionGuard* const guard_;
  Recorder* const recorder_;
  const HandOver hand_over_;
  const Descriptor stop_;  // readable: the thread ends
  int first_free_ = 0;     // the lowest number that a connection's descriptor can have, more or less
  int64_t max_connections_ = 0;
  int64_t max_of_peer_ = 0;
  std::unordered_map<int, Connection> sockets_;     // by descriptor; of the thread alone
  absl::flat_hash_map<Peer, int64_t> peers_;        // how many of sockets_ are theirs; of the thread alone
  absl::Time last_warning_ = absl::InfinitePast();  // of the thread alone
  absl::Time last_count_ = absl::InfinitePast();    // when a full server last looked; of the thread alone
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
