// One Decompose call.
#ifndef SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_
#define SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>

#include "server/rpc/codec.h"
#include "server/rpc/handler_context.h"

namespace svdserve::server {

// The pipeline answers exactly once, before Submit() returns or on any thread later, and that one answer finishes the
// call. Life: where the answer is there before the handler returns, gRPC's own reactor sends it, whose end needs no
// other thread, and the call is deleted at once. Else it is the reactor, deleted by OnDone(), which gRPC calls last and
// not before the reply was sent and OnCancel(), if any, has returned.
class DecomposeCall final : public grpc::ServerUnaryReactor {
 public:
  // The handler. `request` and `reply` belong to gRPC and live until the reactor is done.
  static grpc::ServerUnaryReactor* Handle(const HandlerContext* context, grpc::CallbackServerContext* call,
                                          grpc::ByteBuffer* request, grpc::ByteBuffer* reply);

  // The client is gone, or its deadline has passed.
  void OnCancel() override { context_->pipeline->Cancel(handle_); }
  void OnDone() override { delete this; }

 private:
  enum class Stage : uint8_t { kInHandler, kAnswered, kReturned };

  DecomposeCall(const HandlerContext* context, grpc::ByteBuffer* reply) : context_(context), reply_(reply) {}
  void Start(const grpc::CallbackServerContext& call, grpc::ByteBuffer* request);
  void OnAnswer(const Outcome& outcome);

  const HandlerContext* const context_;
  grpc::ByteBuffer* const reply_;
  absl::Time arrival_;
  RequestLabels labels_;
  std::shared_ptr<WireMemory> memory_;  // until the reply was sent: the reservation goes with it
  RequestHandle handle_;                // written before Start() returns, read by OnCancel() after that
  grpc::Status status_;                 // of the answer, from kAnswered on
  std::atomic<Stage> stage_{Stage::kInHandler};
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_DECOMPOSE_CALL_H_
