// Calls about the server itself.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_SERVER_CALLS_H_
#define SVDSERVE_CLIENT_CPP_CALLS_SERVER_CALLS_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "client/cpp/calls/core.h"
#include "client/cpp/types.h"

namespace svdserve::client::internal {

// A message without fields.
grpc::ByteBuffer empty_message();

// A question of the health service and its answer.
grpc::ByteBuffer health_request(const std::string& service);
Result<bool> is_serving(grpc::ByteBuffer& reply);

// Takes the limits from the answer to GetServerInfo and remembers them in the core. A server without that method gets
// the client's own limits.
Status read_limits(Core& core, Status status, grpc::ByteBuffer& reply);

// Asks for the limits unless they are known.
Status fetch_limits(Core& core, const CallOptions& options, Deadline deadline);

Result<ServerInfo> server_info(Core& core, const CallOptions& options);
Result<CapacityPlan> plan_capacity(Core& core, const Batch& batch, const ComputeOptions& compute, const Demand& demand,
                                   const CallOptions& options);
Result<bool> healthy(Core& core, const std::string& service, const CallOptions& options);
Result<std::chrono::nanoseconds> ping(Core& core, const CallOptions& options);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_SERVER_CALLS_H_
