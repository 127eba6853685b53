// One call of a streaming RPC: requests and replies with ids.
#ifndef SVDSERVE_SERVER_RPC_CALLS_STREAM_CALL_H_
#define SVDSERVE_SERVER_RPC_CALLS_STREAM_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>

#include "server/admission.h"
#include "server/base/mutex.h"
#include "server/respond/result_stream.h"
#include "server/rpc/calls/call_log.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/codec/announcement.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {

// ResultStream decides, this class acts. Before it reads a message it claims memory for it, as a unary call does. A
// stream may be open for long without a message, so a claim that brings none soon goes back. Without an announcement it
// claims nothing while the ledger is at most half full.
//
// Life: shared. gRPC's share is self_, given up in OnDone(). Every request in flight holds a share, and so do a claim
// that waits and every reaction while it runs.
//
// Invariants:
//   1. gRPC is told to read, write or finish under act_mu_ alone, and nothing after finish: answers come from any
//      thread, and one that lost a race against a cancellation must not touch a finished call.
//   2. The pipeline is never called under act_mu_: it may answer before it returns.
class StreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public std::enable_shared_from_this<StreamCall>,
                         private AdmissionWaiter,
                         private OpenCall {
 public:
  StreamCall(Rpc rpc, const HandlerContext* context, grpc::CallbackServerContext* call)
      : rpc_(rpc), context_(context), call_(call), stream_(context->max_stream_requests) {}

  // Called by the handler, once. The reactor belongs to gRPC from now on.
  void start();
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // An answer on its way out, with what must live until it was written.
  struct Outgoing {
    grpc::ByteBuffer message;
    std::shared_ptr<WireMemory> memory;
    absl::Time arrival;
    absl::Time ready;
    bool ok = false;
  };
  using Stream = ResultStream<Outgoing, RequestHandle>;
  struct InFlight;  // what an answer needs of its request

  void close(const grpc::Status& status) override;
  void cut_off_if_stalled(absl::Time now, absl::Duration timeout) override;

  void on_admitted(Reservation reservation) override;
  void on_refused(Error error) override;

  void act(Stream::Next next);
  void write_or_finish(Stream::Next next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(act_mu_);
  void claim_and_read();
  void read(Reservation room);
  // The claim leaves the queue, if it is there: the stream will not read any more.
  void leave_queue();
  void break_off();
  // `bytes`: of its message.
  void submit_request(DecodedRequest decoded, int64_t bytes, absl::Time arrival, Reservation room);
  Outgoing encode(const InFlight& request, const Outcome& outcome) const;

  void log_end();

  const Rpc rpc_;
  const HandlerContext* const context_;
  grpc::CallbackServerContext* const call_;  // lives until OnDone()
  Stream stream_;
  Announcement announcement_;
  grpc::ByteBuffer incoming_;  // written by gRPC between StartRead() and OnReadDone()
  Mutex act_mu_;
  std::shared_ptr<StreamCall> waiting_ ABSL_GUARDED_BY(act_mu_);  // itself, while its claim is in the queue
  Reservation room_ ABSL_GUARDED_BY(act_mu_);                     // of the message that is being read
  absl::Time reading_since_ ABSL_GUARDED_BY(act_mu_) = absl::InfiniteFuture();
  Outgoing outgoing_ ABSL_GUARDED_BY(act_mu_);  // between StartWrite() and OnWriteDone()
  absl::Time writing_since_ ABSL_GUARDED_BY(act_mu_) = absl::InfiniteFuture();
  absl::Time heard_ ABSL_GUARDED_BY(act_mu_) = absl::InfiniteFuture();  // the last request, or the last answer taken
  bool finished_ ABSL_GUARDED_BY(act_mu_) = false;
  bool broken_ ABSL_GUARDED_BY(act_mu_) = false;
  bool stalled_ ABSL_GUARDED_BY(act_mu_) = false;  // so the server has cut it off
  grpc::Status final_status_ ABSL_GUARDED_BY(act_mu_);
  Peer peer_;
  CallIds ids_;
  absl::Time opened_;
  bool registered_ = false;
  std::shared_ptr<StreamCall> self_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_STREAM_CALL_H_
