// A unary call that answers later, retried as the policy says.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_RETRIED_CALL_H_
#define SVDSERVE_CLIENT_CPP_CALLS_RETRIED_CALL_H_

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <mutex>

#include "client/cpp/calls/core.h"
#include "client/cpp/calls/route.h"

namespace svdserve::client::internal {

// Keeps itself alive from start() until `done` has run: once, on a thread of gRPC's, never inside start() or cancel().
// When `done` runs, nothing here refers to the core or its connections any more. gRPC must not lose its last connection
// on a thread of its own.
class RetriedCall : public std::enable_shared_from_this<RetriedCall> {
 public:
  // The reply is set where the status is OK.
  using Done = std::function<void(Status, grpc::ByteBuffer& reply, int attempts)>;

  RetriedCall(Core& core, const char* method, grpc::ByteBuffer request, Deadline deadline, Done done);
  void start() { attempt(); }
  // Ends it with CANCELLED, unless it ends otherwise first. Any time, any thread.
  void cancel();

 private:
  void attempt();
  void on_answer(const grpc::Status& answer);
  void finish(Status status);

  Core& core_;
  const char* const method_;
  grpc::ByteBuffer request_, reply_;
  Route route_;  // used by one callback at a time
  Done done_;

  std::mutex mutex_;                              // held while an attempt is started, so that it ends after that
  bool cancelled_ = false;                        // guarded by mutex_
  std::unique_ptr<grpc::ClientContext> context_;  // guarded by mutex_; of the attempt under way
  std::unique_ptr<grpc::Alarm> alarm_;            // guarded by mutex_; of the wait under way
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_RETRIED_CALL_H_
