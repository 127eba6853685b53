// The unary RPCs without matrices, whose messages are small. Each is a function from request to reply; small_methods.cc
// has them and their table, which the service registers.
#ifndef SVDSERVE_SERVER_RPC_SMALL_SMALL_METHODS_H_
#define SVDSERVE_SERVER_RPC_SMALL_SMALL_METHODS_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/types/span.h"
#include "server/error.h"
#include "server/rpc/calls/handler_context.h"

namespace svdserve::server {

struct SmallMethod {
  const char* name;  // its name in the service
  // Answers on the calling thread, without waiting. Sets *reply where there is no error. Thread-safe.
  Error (*answer)(const HandlerContext& context, const grpc::ByteBuffer& request, grpc::ByteBuffer* reply);
};

absl::Span<const SmallMethod> small_methods();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_SMALL_SMALL_METHODS_H_
