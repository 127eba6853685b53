// One call of a unary RPC. On the wire it is unary. The server treats it as a stream of one message, since a unary
// handler sees its message only after all of it was received. So the call claims memory first, and the transport's
// window holds the client back until the ledger has room (server/decisions/0102-memory-before-admission.md).
#ifndef SVDSERVE_SERVER_RPC_CALLS_UNARY_CALL_H_
#define SVDSERVE_SERVER_RPC_CALLS_UNARY_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/admission.h"
#include "server/base/mutex.h"
#include "server/rpc/calls/call_log.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/calls/read_turns.h"
#include "server/rpc/codec/announcement.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {

// claim -> turn -> read -> decode -> submit -> answer -> finish. Each step begins where the one before has ended, on whatever
// thread that was. Life: deleted by OnDone(), which gRPC calls last: after Finish(), and after every other reaction has
// returned.
//
// Invariants:
//   1. Finish() is called once: by whoever ends the step that the call is in.
//   2. mu_ is a leaf: nothing is called under it.
class UnaryCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>,
                        private AdmissionWaiter,
                        private ReadWaiter,
                        private OpenCall {
 public:
  // The handler of `rpc`. `reply` belongs to gRPC and lives until the reactor is done.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* handle(Rpc rpc, const HandlerContext* context,
                                                           grpc::CallbackServerContext* call, grpc::ByteBuffer* reply);

  void OnReadDone(bool ok) override;
  // The client is gone, or its deadline has passed.
  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryCall(Rpc rpc, const HandlerContext* context, grpc::CallbackServerContext* call, grpc::ByteBuffer* reply)
      : rpc_(rpc), context_(context), call_(call), reply_(reply) {}

  void start();
  void on_admitted(Reservation reservation) override;
  void on_refused(Error error) override;
  void on_turn() override;
  void cut_off_if_stalled(absl::Time now, absl::Duration timeout) override;
  void close(const grpc::Status&) override {}

  void submit(DecodedRequest decoded);
  void on_answer(const Outcome& outcome);
  void refuse(Error error);
  void log(const Outcome& outcome, absl::Time now);
  void reply(const grpc::Status& status);
  // From now on the client has to do something: to send its message, or to take the reply.
  void await_client(bool waits);

  const Rpc rpc_;
  const HandlerContext* const context_;
  grpc::CallbackServerContext* const call_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer message_;  // written by gRPC between StartRead() and OnReadDone()
  absl::Time arrival_, deadline_;
  Peer peer_;
  bool registered_ = false;
  Announcement announcement_;
  int64_t excess_ = 0;  // bytes that the message may have beyond the claim
  Reservation room_;    // of the message, until it is decoded
  RequestLabels labels_;
  CallIds ids_;
  CallLine line_;                       // of the access log, as far as it is known
  std::shared_ptr<WireMemory> memory_;  // until the reply was sent: the reservation goes with it
  Mutex mu_;
  RequestHandle handle_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time client_due_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;   // the server has cut it off
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // its result is known
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_UNARY_CALL_H_
