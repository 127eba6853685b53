// One batch or several: cut into pieces, or packed together, in messages that travel side by side, and joined again.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_BATCH_CALL_H_
#define SVDSERVE_CLIENT_CPP_CALLS_BATCH_CALL_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "client/cpp/calls/core.h"
#include "client/cpp/calls/retried_call.h"
#include "client/cpp/wire/split.h"

namespace svdserve::client::internal {

// Joins the reports of the pieces of one batch. Not thread-safe.
class ReportJoiner {
 public:
  ReportJoiner(int64_t count, int64_t values_per_matrix);
  void add(int64_t first, Report piece, int64_t attempts);
  Report take();

 private:
  Report report_;
  std::set<std::string> devices_;
};

// Checks a batch and the memory for its results against each other.
Result<MatrixSizes> check(const Batch& batch, const Outputs& out, const ComputeOptions& compute);

// Thread-safe. Invariants: at most pieces_in_flight messages are in flight at each replica. `done` runs once, after the last of them has
// its reply, so that nothing writes the outputs any more.
class BatchCall : public Cancellable, public std::enable_shared_from_this<BatchCall> {
 public:
  using Done = std::function<void(Result<std::vector<Report>>)>;  // a report for each batch

  BatchCall(Core& core, std::span<const Group> groups, const ComputeOptions& compute, const CallOptions& call,
            Done done);
  // Asks for the limits where they are not known, packs the batches and sends them. Batches that cannot be sent are
  // answered here and now, on the calling thread.
  void start();
  void cancel() override;

 private:
  // Checks that all groups with matrices have starting vectors, or none has: it is an option of the request.
  Status check_starting_vectors() const;
  void ask_limits();
  void cut();
  size_t window() const;  // of pieces in flight
  void send_more();
  void launch(int64_t i, std::shared_ptr<RetriedCall> call);
  grpc::ByteBuffer request_of(const Message& message);
  void on_reply(int64_t i, Status status, grpc::ByteBuffer& reply, int attempts);
  Outputs outputs_of(const Part& part) const;
  void fail(Status status);
  void finish();

  Core& core_;  // lives until this call has left it
  const std::vector<Group> groups_;
  const ComputeOptions compute_;
  const std::stop_token stop_;
  const Deadline deadline_;
  Done done_;
  std::vector<MatrixSizes> sizes_;  // of each group
  std::vector<Message> messages_;   // set before the first of them is sent
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;

  std::mutex mutex_;
  Status failure_;                                        // guarded by mutex_; the first one
  int64_t ready_ = 0;                                     // guarded by mutex_; messages to be sent in all
  int64_t next_ = 0;                                      // guarded by mutex_; the first that is not sent yet
  bool finished_ = false;                                 // guarded by mutex_; somebody runs finish()
  std::map<int64_t, std::shared_ptr<RetriedCall>> live_;  // guarded by mutex_; by message, -1: the limits
  std::vector<ReportJoiner> joiners_;                     // guarded by mutex_; of each group
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_BATCH_CALL_H_
