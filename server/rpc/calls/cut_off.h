// The end of a call whose client takes nothing.
#ifndef SVDSERVE_SERVER_RPC_CALLS_CUT_OFF_H_
#define SVDSERVE_SERVER_RPC_CALLS_CUT_OFF_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "server/error.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {

// A status of Finish() would wait behind the message that the client does not take. A code and a text overtake
// it, but details cannot, so the text names the reason. TryCancel() does the same, but always says CANCELLED.
// OnCancel() follows.
// `call_id`: so does the text; may be empty.
inline void cut_off(grpc::CallbackServerContext* call, const Error& error, std::string_view call_id = {}) {
  const grpc::Status status = to_status(error);
  std::string text = absl::StrCat(name(error.reason), ": ", error.message);
  if (!call_id.empty()) text.append(" (request ").append(call_id).append(")");
  grpc_call_cancel_with_status(call->c_call(), static_cast<grpc_status_code>(status.error_code()), text.c_str(),
                               nullptr);
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_CUT_OFF_H_
