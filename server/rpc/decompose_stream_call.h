// One DecomposeStream call, and the list of all that are open.
#ifndef SVDSERVE_SERVER_RPC_DECOMPOSE_STREAM_CALL_H_
#define SVDSERVE_SERVER_RPC_DECOMPOSE_STREAM_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server/mutex.h"
#include "server/respond/result_stream.h"
#include "server/rpc/codec.h"
#include "server/rpc/handler_context.h"

namespace svdserve::server {

class DecomposeStreamCall;

// Thread-safe.
class StreamRegistry {
 public:
  explicit StreamRegistry(int64_t limit) : limit_(limit) {}
  // kFull and kClosed: the stream was not added.
  enum class Added { kYes, kFull, kClosed };
  Added Add(const std::shared_ptr<DecomposeStreamCall>& call);
  void Remove(DecomposeStreamCall* call);
  // Cuts off the streams whose clients have taken nothing for so long, though an answer waits for them.
  void GiveUpStalled(absl::Duration timeout);
  // Closes what is open, and from now on refuses what comes.
  void CloseAll();
  int64_t size() const;

 private:
  std::vector<std::shared_ptr<DecomposeStreamCall>> Calls() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t limit_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<DecomposeStreamCall*, std::weak_ptr<DecomposeStreamCall>> open_ ABSL_GUARDED_BY(mu_);
};

// ResultStream decides, this class acts. Life: shared; gRPC's share is self_, given up in OnDone(); every request in
// flight holds one, and so does every reaction while it runs.
//
// Invariants:
//   1. gRPC is told to read, write or finish under act_mu_ alone, and nothing after finish: answers come from any
//      thread, and one that lost a race against a cancellation must not touch a finished call.
//   2. The pipeline is never called under act_mu_: it may answer before it returns.
class DecomposeStreamCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                  public std::enable_shared_from_this<DecomposeStreamCall> {
 public:
  DecomposeStreamCall(const HandlerContext* context, grpc::CallbackServerContext* call)
      : context_(context), call_(call), stream_(context->max_stream_requests) {}

  // Called by the handler, once. The reactor belongs to gRPC from now on.
  void Start();
  // No more requests are taken; the stream ends with `status` once what is in flight was answered.
  void Close(const grpc::Status& status);
  void GiveUpIfStalled(absl::Duration timeout);

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

  void Act(Stream::Next next);
  void Break();
  void SubmitRequest(DecodedRequest decoded, absl::Time arrival);
  Outgoing Encode(const InFlight& request, const Outcome& outcome) const;

  const HandlerContext* const context_;
  grpc::CallbackServerContext* const call_;  // lives until OnDone()
  Stream stream_;
  grpc::ByteBuffer incoming_;  // written by gRPC between StartRead() and OnReadDone()
  Mutex act_mu_;
  Outgoing outgoing_ ABSL_GUARDED_BY(act_mu_);  // between StartWrite() and OnWriteDone()
  absl::Time writing_since_ ABSL_GUARDED_BY(act_mu_) = absl::InfiniteFuture();
  bool finished_ ABSL_GUARDED_BY(act_mu_) = false;
  bool broken_ ABSL_GUARDED_BY(act_mu_) = false;
  grpc::Status final_status_ ABSL_GUARDED_BY(act_mu_);
  std::shared_ptr<DecomposeStreamCall> self_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_DECOMPOSE_STREAM_CALL_H_
