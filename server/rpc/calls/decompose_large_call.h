// One DecomposeLarge call.
#ifndef SVDSERVE_SERVER_RPC_CALLS_DECOMPOSE_LARGE_CALL_H_
#define SVDSERVE_SERVER_RPC_CALLS_DECOMPOSE_LARGE_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>

#include "server/base/mutex.h"
#include "server/large/large_job.h"
#include "server/large/large_pipeline.h"
#include "server/rpc/calls/call_log.h"
#include "server/rpc/calls/handler_context.h"
#include "server/rpc/calls/open_calls.h"
#include "server/rpc/calls/small_read.h"
#include "server/rpc/codec/large_codec.h"
#include "server/rpc/connection_traffic.h"

namespace svdserve::server {

// LargeJob decides, this class acts. Life: shared; gRPC's share is self_, given up in OnDone(); the job's is what it
// calls this by, given up when it asks to finish.
//
// Events of the wire may come at once: a thread may take the next message while another copies a chunk.
//
// The first message is short, and is read in turn. The call has no place then, so nothing else bounds such calls.
//
// Invariant: gRPC is told to read, write or finish under act_mu_ alone, and nothing after finish. A LargeNext that comes
// later is void, as LargeNext says. `call_` and `context_` may be gone by then, so nothing touches them.
class DecomposeLargeCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                 public std::enable_shared_from_this<DecomposeLargeCall>,
                                 private OpenCall {
 public:
  DecomposeLargeCall(const HandlerContext* context, grpc::CallbackServerContext* call)
      : context_(context), call_(call), first_read_(context->open_reads, context->clock) {}

  // Called by the handler, once. The reactor belongs to gRPC from now on.
  void start();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // The job knows who stalls, and the pipeline ends the jobs that are not accepted yet.
  void cut_off_if_stalled(absl::Time now, absl::Duration) override;
  void close(const grpc::Status&) override {}
  void act(LargeNext next);
  grpc::ByteBuffer encode(const LargeReply& reply);
  void prepare(const LargeResultChunk& upcoming);
  void wait_and_read();
  void on_turn();
  void finish(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(act_mu_);
  void take(DecodedLarge decoded);
  void take_chunk(const DecodedLarge& chunk);
  void tell_reply(const LargeReply& reply, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(act_mu_);
  void log_end(const Error& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(act_mu_);

  const HandlerContext* const context_;
  grpc::CallbackServerContext* const call_;  // lives until OnDone()
  bool registered_ = false;
  std::shared_ptr<LargeJob> job_;  // set by start(), where it is registered
  size_t max_message_bytes_ = 0;   // likewise
  grpc::ByteBuffer incoming_;      // written by gRPC between StartRead() and OnReadDone()
  Mutex act_mu_;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(act_mu_);  // between StartWrite() and OnWriteDone()
  KnownChecksum upcoming_ ABSL_GUARDED_BY(act_mu_);     // of the chunk that is likely to be written next
  bool finished_ ABSL_GUARDED_BY(act_mu_) = false;
  bool logged_ ABSL_GUARDED_BY(act_mu_) = false;              // its end, once
  std::function<void()> delivered_ ABSL_GUARDED_BY(act_mu_);  // LargeNext's, for OnDone()
  SmallRead first_read_;
  bool waits_ ABSL_GUARDED_BY(act_mu_) = false;  // for its turn, or was told of it and has not begun yet
  std::optional<grpc::Status> end_wanted_ ABSL_GUARDED_BY(act_mu_);  // once the turn has come
  Peer peer_;
  CallTraffic traffic_;
  CallIds ids_;
  absl::Time opened_;
  CallLine line_ ABSL_GUARDED_BY(act_mu_);  // of the access log, as far as it is known
  std::shared_ptr<DecomposeLargeCall> self_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_DECOMPOSE_LARGE_CALL_H_
