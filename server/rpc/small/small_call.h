// One call of a unary RPC whose messages are small. As in UnaryCall, the server treats it as a stream of one message.
#ifndef SVDSERVE_SERVER_RPC_SMALL_SMALL_CALL_H_
#define SVDSERVE_SERVER_RPC_SMALL_SMALL_CALL_H_

#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>

#include "server/base/mutex.h"
#include "server/rpc/calls/call_log.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/calls/small_read.h"
#include "server/rpc/connection_traffic.h"

namespace svdserve::server {

// Answers on the calling thread, without waiting. Sets *reply where the status is OK. Thread-safe.
using SmallAnswer = std::function<grpc::Status(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply)>;

// read -> answer -> finish. Life: deleted by OnDone(), which gRPC calls last.
//
// Invariants:
//   1. Finish() is called once: by whoever ends the step that the call is in.
//   2. mu_ is a leaf: nothing is called under it.
class SmallCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>, private OpenCall {
 public:
  // For Service::MarkMethodStreamed() and, a second time, MarkMethodRawCallback(). Both arguments outlive the handler.
  // `method` names its calls in the access log; null: they are not in it.
  static grpc::internal::MethodHandler* make_handler(const HandlerContext* context, const char* method,
                                                     const SmallAnswer* answer);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SmallCall(const HandlerContext* context, const char* method, grpc::CallbackServerContext* call,
            const SmallAnswer* answer, grpc::ByteBuffer* reply);
  void start();
  void finish(const grpc::Status& status);
  void log_end(const grpc::Status& status, absl::Time now);
  void cut_off_if_stalled(absl::Time now, absl::Duration timeout) override;
  void close(const grpc::Status&) override {}

  const HandlerContext* const context_;
  const char* const method_;
  grpc::CallbackServerContext* const call_;
  const SmallAnswer* const answer_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer message_;  // written by gRPC between StartRead() and OnReadDone()
  SmallRead read_;
  bool registered_ = false;
  Peer peer_;
  CallTraffic traffic_;
  CallIds ids_;
  absl::Time arrival_;
  Mutex mu_;
  absl::Time finished_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_SMALL_SMALL_CALL_H_
