// grpc.health.v1.Health. gRPC's own service bounds neither the number of watchers nor the size of a request. Both methods
// are served as streams, so that their messages are read in turn (server/rpc/calls/small_read.h).
#ifndef SVDSERVE_SERVER_RPC_SMALL_HEALTH_SERVICE_H_
#define SVDSERVE_SERVER_RPC_SMALL_HEALTH_SERVICE_H_

#include <grpc/health/v1/health.grpc.pb.h>
#include <grpcpp/support/server_callback.h>

#include <list>
#include <string>
#include <vector>

#include "server/base/mutex.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/small/small_call.h"

namespace svdserve::server {

// Thread-safe. All names that it knows have the same status; it begins as NOT_SERVING.
class HealthService final : public grpc::health::v1::Health::Service {
 public:
  // `context` outlives the service; "" is the server as a whole.
  HealthService(const HandlerContext* context, std::vector<std::string> names);

  void set_serving(bool serving);
  // Ends every watch: the server goes.
  void end_watches();

 private:
  class Watcher;
  grpc::Status check(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* watch(grpc::CallbackServerContext* call);
  bool knows(const std::string& name) const;

  const HandlerContext* const context_;
  const std::vector<std::string> names_;
  const SmallAnswer answer_;  // of Check
  Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_SMALL_HEALTH_SERVICE_H_
