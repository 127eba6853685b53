// One Decompose call.
#ifndef SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_
#define SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/rpc/codec.h"
#include "server/rpc/handler_context.h"

namespace svdserve::server {

// Life: made by the handler, deleted by OnDone(), which gRPC calls last and not before the handler has returned, the
// reply was sent and OnCancel(), if any, has returned. The pipeline may answer before Start() returns, or on any thread
// later; it answers exactly once, and that one answer finishes the call.
class DecomposeCall final : public grpc::ServerUnaryReactor {
 public:
  // `request` and `reply` belong to gRPC and live until OnDone().
  DecomposeCall(const HandlerContext* context, grpc::ByteBuffer* reply) : context_(context), reply_(reply) {}

  void Start(const grpc::CallbackServerContext& call, grpc::ByteBuffer* request);

  // The client is gone, or its deadline has passed.
  void OnCancel() override { context_->pipeline->Cancel(handle_); }
  void OnDone() override { delete this; }

 private:
  void OnAnswer(const Outcome& outcome);

  const HandlerContext* const context_;
  grpc::ByteBuffer* const reply_;
  absl::Time arrival_;
  RequestLabels labels_;
  std::shared_ptr<WireMemory> memory_;  // until the reply was sent: the reservation goes with it
  RequestHandle handle_;                // written before Start() returns, read by OnCancel() after that
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_
