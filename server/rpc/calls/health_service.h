// grpc.health.v1.Health. gRPC's own service bounds neither the number of watchers nor the size of a request.
#ifndef SVDSERVE_SERVER_RPC_CALLS_HEALTH_SERVICE_H_
#define SVDSERVE_SERVER_RPC_CALLS_HEALTH_SERVICE_H_

#include <grpc/health/v1/health.grpc.pb.h>
#include <grpcpp/support/server_callback.h>

#include <list>
#include <string>
#include <vector>

#include "server/base/mutex.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"

namespace svdserve::server {

// Thread-safe. All names that it knows have the same status; it begins as NOT_SERVING.
class HealthService final
    : public grpc::health::v1::Health::WithRawCallbackMethod_Check<
          grpc::health::v1::Health::WithRawCallbackMethod_Watch<grpc::health::v1::Health::Service>> {
 public:
  // `context` outlives the service; "" is the server as a whole.
  HealthService(const HandlerContext* context, std::vector<std::string> names);

  void set_serving(bool serving);
  // Ends every watch: the server goes.
  void end_watches();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* call,
                                                    const grpc::ByteBuffer* request) override;

 private:
  class Watcher;
  bool knows(const std::string& name) const;

  const HandlerContext* const context_;
  const std::vector<std::string> names_;
  Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_HEALTH_SERVICE_H_
