// gRPC server reflection. gRPC's own service keeps a thread for each open call, and knows no limit of one peer.
#ifndef SVDSERVE_SERVER_RPC_SMALL_REFLECTION_SERVICE_H_
#define SVDSERVE_SERVER_RPC_SMALL_REFLECTION_SERVICE_H_

#include <grpc/reflection/v1alpha/reflection.grpc.pb.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <vector>

#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"

namespace svdserve::server {

// Thread-safe. Each call has one request and its reply in memory at a time.
class ReflectionService final
    : public grpc::reflection::v1alpha::ServerReflection::WithRawCallbackMethod_ServerReflectionInfo<
          grpc::reflection::v1alpha::ServerReflection::Service> {
 public:
  // `context` outlives the service; `services`: the full names of those that the server has beside this one.
  ReflectionService(const HandlerContext* context, std::vector<std::string> services);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ServerReflectionInfo(
      grpc::CallbackServerContext* call) override;

 private:
  class Call;

  const HandlerContext* const context_;
  std::vector<std::string> services_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_SMALL_REFLECTION_SERVICE_H_
