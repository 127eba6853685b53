// Takes connections off listening sockets and hands them to gRPC, up to a number.
//
// gRPC has a listener of its own, but that one knows no limit, and when the process has no file descriptor left it
// gives up listening for good, while the server looks healthy to every probe.
#ifndef SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/time/time.h"
#include "server/listening_socket.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

class ConnectionAcceptor {
 public:
  // Owns the descriptor from then on. Called on the acceptor's thread.
  using HandOver = std::function<void(int fd)>;

  // Listens until Stop(). Beyond `max_connections`, or what the process's limit of descriptors leaves room
  // for, a connection is closed at once: its client sees UNAVAILABLE. `recorder` outlives the acceptor.
  ConnectionAcceptor(ListeningSockets listening, int64_t max_connections, Recorder* recorder, HandOver hand_over);
  ~ConnectionAcceptor();

  // Nothing is accepted any more. Once; the destructor does it otherwise.
  void Stop();
  // After Stop(): breaks the connections that are still there, so that gRPC gets rid of what it has for a client that
  // takes nothing. It would wait for that one, whatever is cancelled.
  void BreakConnections() const;

  const std::string& address() const { return address_; }
  int64_t max_connections() const { return max_connections_; }

 private:
  void Run();
  // False: there is no descriptor for another one now.
  bool AcceptFrom(int socket);
  void Refused();

  std::optional<ListeningSockets> listening_;  // until Stop()
  const std::string address_;
  Recorder* const recorder_;
  const HandOver hand_over_;
  const Descriptor stop_;  // readable: the thread ends
  int first_free_ = 0;     // the lowest number that a connection's descriptor can have, more or less
  int64_t max_connections_ = 0;
  std::unordered_map<int, ino_t> sockets_;          // that were handed over, by descriptor; of the thread alone
  absl::Time last_warning_ = absl::InfinitePast();  // of the thread alone
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
