// Takes connections off listening sockets and hands them to gRPC, up to a number.
//
// gRPC has a listener of its own, but that one knows no limit, and when the process has no file descriptor left it
// gives up listening for good, while the server looks healthy to every probe.
#ifndef SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "server/listening_socket.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

class ConnectionAcceptor {
 public:
  // Owns the descriptor from then on. Called on the acceptor's thread.
  using HandOver = std::function<void(int fd)>;

  // Listens until it is destroyed. Beyond `max_connections`, or what the process's limit of descriptors leaves room
  // for, a connection is closed at once: its client sees UNAVAILABLE. `recorder` outlives the acceptor.
  ConnectionAcceptor(ListeningSockets listening, int64_t max_connections, Recorder* recorder, HandOver hand_over);
  ~ConnectionAcceptor();

  const std::string& address() const { return listening_.address(); }
  int64_t max_connections() const { return max_connections_; }

 private:
  void Run();
  // False: there is no descriptor for another one now.
  bool AcceptFrom(int socket);
  void Refused();

  const ListeningSockets listening_;
  Recorder* const recorder_;
  const HandOver hand_over_;
  const Descriptor stop_;  // readable: the thread ends
  int first_free_ = 0;     // the lowest number that a connection's descriptor can have, more or less
  int64_t max_connections_ = 0;
  absl::Time last_warning_ = absl::InfinitePast();  // of the thread alone
  std::thread thread_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CONNECTION_ACCEPTOR_H_
