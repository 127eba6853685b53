// Calls of Health from the process to its own gRPC server.
#ifndef SVDSERVE_SERVER_RPC_CALLS_HEALTH_CALL_H_
#define SVDSERVE_SERVER_RPC_CALLS_HEALTH_CALL_H_

#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace svdserve::server {

// Asks for the server's health over a socket pair, so that neither TLS nor the limit of connections matters. The
// connection is kept; after a call that was not answered the next one makes another. Not thread-safe.
class HealthCall {
 public:
  // `acceptor` takes connections in plain text and outlives this.
  explicit HealthCall(grpc::experimental::ExternalConnectionAcceptor* acceptor);
  // Gives up a call that is on its way, and waits for its end. The server is still there: the last channel of a process
  // must not go on one of gRPC's threads.
  ~HealthCall();

  // Calls done(answered), once, on one of gRPC's threads; any status that comes from the server is an answer. The call
  // before has ended.
  void start(absl::Duration limit, std::function<void(bool answered)> done);

 private:
  struct Connection;
  struct Call;
  grpc::experimental::ExternalConnectionAcceptor* const acceptor_;
  std::unique_ptr<Connection> connection_;
  std::shared_ptr<Call> call_;  // the last one
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_HEALTH_CALL_H_
