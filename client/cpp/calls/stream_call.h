// The pipeline behind Stream: one DecomposeStream or EigendecomposeStream call.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_STREAM_CALL_H_
#define SVDSERVE_CLIENT_CPP_CALLS_STREAM_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>

#include "client/cpp/calls/core.h"
#include "client/cpp/stream.h"
#include "client/cpp/wire/wire.h"

namespace svdserve::v1 {
class DecomposeResponse;
class DecomposeStreamResponse;
}  // namespace svdserve::v1

namespace svdserve::client::internal {

// Thread-safe; every member below is guarded by mutex_ unless it says otherwise.
// Invariants:
//   - A request is in either pending_ (unanswered) or answered_ (not taken yet). Both together are in_flight_.
//   - An unanswered request is in outbox_, is being written, awaits its answer, or awaits its retry alarm.
//   - gRPC holds one hold of ours from open() until `closed_`. Nothing is written or half-closed after it.
//   - The object keeps itself alive until OnDone. From then on nothing here refers to the core or its connections.
class StreamCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                   public std::enable_shared_from_this<StreamCall> {
 public:
  static std::shared_ptr<StreamCall> open(Core& core, const StreamOptions& options);

  // See Stream. wait: whether to wait for room.
  Result<std::optional<uint64_t>> submit(const Batch& batch, const ComputeOptions& compute,
                                         std::optional<std::chrono::nanoseconds> timeout, bool wait);
  std::optional<StreamReply> next();
  void finish();
  void cancel();
  Status status() const;
  // Returns when gRPC has let go of the call.
  void wait_done();

 private:
  struct Request {
    Batch shape;  // without operands and their owners: those are in the payloads
    ComputeOptions compute;
    Payloads payloads;
    RetrySchedule schedule;
    std::shared_ptr<grpc::Alarm> alarm = nullptr;  // set while it waits to be sent again
    bool is_sent = false;                          // it was handed to gRPC, and its answer may come
  };

  StreamCall(Core& core, const StreamOptions& options);
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // With mutex_ held.
  void write_next();
  bool all_answered() const { return in_flight_ == static_cast<int>(answered_.size()); }
  bool close();  // true: the caller, without the lock, must RemoveHold()
  // Fails where the answer belongs to no request that waits for one.
  Status take_answer(const v1::DecomposeStreamResponse& response);
  bool retry_later(uint64_t id, Request& request, const Status& status);
  using Planes = std::array<std::vector<std::byte>, kPlanes>;
  void answer(uint64_t id, Status status, Report report, Planes planes);
  // Reads the planes and the report that the request asked for. Fails if the response does not fit the request.
  static Result<Report> read_planes(const v1::DecomposeResponse& response, const Request& request, Planes* planes);

  void send_again(uint64_t id);

  Core& core_;                                                        // lives until wait_done() has returned
  const StreamOptions options_;                                       // set once
  const Deadline deadline_;                                           // set once
  grpc::ByteBuffer writing_, reading_;                                // gRPC's while an operation runs
  std::shared_ptr<StreamCall> self_;                                  // until OnDone
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // set by open(), reset by wait_done()

  mutable std::mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_;  // until OnDone
  std::condition_variable changed_;
  std::map<uint64_t, Request> pending_;
  std::map<uint64_t, StreamReply> answered_;
  std::deque<uint64_t> arrivals_;  // ids in answered_ in the order they came
  std::deque<uint64_t> outbox_;
  uint64_t last_id_ = 0;
  uint64_t next_id_ = 1;  // that next() gives, where the order counts
  int in_flight_ = 0;
  bool is_writing_ = false;
  bool finishing_ = false;  // finish() was called
  bool cancelled_ = false;
  bool half_close_ = false;  // once the write that is under way has ended
  bool closed_ = false;      // half-closed or broken
  bool done_ = false;
  Status status_;
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_STREAM_CALL_H_
