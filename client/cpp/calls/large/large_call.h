// One large factor on its way: DecomposeLarge on the calling thread.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_CALL_H_
#define SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "client/cpp/calls/core.h"
#include "client/cpp/calls/large/large_estimate.h"
#include "client/cpp/calls/large/large_receiver.h"
#include "client/cpp/calls/large/side_work.h"
#include "client/cpp/calls/retry.h"
#include "client/cpp/calls/route.h"
#include "client/cpp/large.h"
#include "client/cpp/wire/large_wire.h"

namespace svdserve::client::internal {

// The calling thread does the network's work. Beside it a chunk is prepared while the one before is on its way, and two
// are copied while the next is received. So a call holds four chunks at most. run() may be called once, cancel() from any
// thread while it runs.
class LargeCall : public Cancellable {
 public:
  // matrix, out, options: the caller's until run() returns; checked against `sizes` already.
  LargeCall(Core& core, const LargeMatrix& matrix, const LargeSizes& sizes, const LargeOutputs& out,
            const LargeOptions& options, const CallOptions& call);

  // Tries again, as the policy says, where the server refused it before it took any of the operand. With several servers
  // also where one went away before the operand was complete. Where a server has given a token, the call goes on with the
  // matrix when the server is back. It tries so until its deadline, without one for RetryPolicy::max_server_delay. It
  // sends the matrix again where the operand was not complete, and to a server that does not know the token.
  Result<LargeReport> run();
  void cancel() override;

 private:
  enum class Event : uintptr_t { kStarted = 1, kWritten, kRead, kFinished };

  bool may_repeat(const Status& status) const;
  // How long to wait after an attempt; nothing: give up.
  std::optional<std::chrono::nanoseconds> pause_after(const Status& status, Route& route);
  Status attempt(grpc::GenericStub& stub);
  Status drive(grpc::ClientContext& context, grpc::CompletionQueue& queue);
  void on_read();
  void write_next();
  int64_t chunk_size(int64_t offset) const;
  grpc::ByteBuffer make_chunk(int64_t offset);
  void prepare_chunk(int64_t offset) noexcept;
  void tell(LargeProgress news);

  Core& core_;
  const LargeMatrix& matrix_;
  const LargeSizes sizes_;
  const LargeOptions& options_;
  const CallOptions& call_options_;
  const Deadline deadline_;
  const Clock::time_point begin_;
  LargeEstimate estimate_;
  LargeReceiver receiver_;

  // State of the attempt under way; used by the calling thread alone.
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> rpc_;
  grpc::ByteBuffer received_;
  LargeReply reply_;
  LargeProgress progress_;
  Status failure_;               // what this side found wrong
  int64_t sent_ = 0;             // bytes of the operand that were handed to gRPC
  grpc::ByteBuffer next_chunk_;  // from byte sent_ on, prepared beside; else empty
  bool writing_ = false;         // a write is under way
  bool committed_ = false;
  bool resuming_ = false;  // it goes on with the matrix of an earlier one

  std::string token_;                        // to go on with the matrix; empty: there is none
  bool survives_ = false;                    // a server has given a token: matrices outlive it
  std::optional<RetrySchedule> resumption_;  // since a server with the matrix went away
  int attempts_ = 0, accepted_ = 0;          // begun; accepted by a server

  std::mutex mutex_;
  std::condition_variable woken_;           // a pause between attempts is over
  bool cancelled_ = false;                  // guarded by mutex_
  grpc::ClientContext* context_ = nullptr;  // guarded by mutex_; of the attempt under way

  SideWork beside_;  // last: its tasks use the others
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_CALL_H_
