// The attempts of one message: when, and at which replica.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_ROUTE_H_
#define SVDSERVE_CLIENT_CPP_CALLS_ROUTE_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/calls/core.h"
#include "client/cpp/calls/retry.h"

namespace svdserve::client::internal {

// A message that one replica rejects, or that it is out of reach for, goes to the next at once. When all have failed it
// waits as RetrySchedule says, for the shortest of their delays. So it does where the client's budget is spent. Attempts
// at once do not count for RetryPolicy::max_attempts. Not thread-safe.
class Route {
 public:
  Route(Core& core, Deadline deadline) : core_(core), schedule_(core.options().retry, deadline) {}

  // Where the next attempt goes.
  grpc::GenericStub& next();
  // After that attempt ended with `status`: how long to wait before next(), zero for not at all; nothing: give up, or it
  // has succeeded.
  std::optional<std::chrono::nanoseconds> after(const Status& status);

  int attempts() const { return schedule_.attempts() + hurried_; }
  Deadline deadline() const { return schedule_.deadline(); }

 private:
  const std::string& address() const;  // of the attempt under way
  void log_change(Rotation::Change change, const Status& status) const;
  // The wait that the schedule has after `round`, with a line of the log about the attempt that ended with `status`.
  std::optional<std::chrono::nanoseconds> wait_for(const Status& round, const Status& status, Clock::time_point now);

  Core& core_;
  RetrySchedule schedule_;
  size_t replica_ = 0;                                // of the attempt under way
  int hurried_ = 0;                                   // attempts at once
  std::vector<bool> tried_;                           // in this round, one flag a replica
  size_t failed_ = 0;                                 // attempts in this round
  std::optional<std::chrono::nanoseconds> shortest_;  // of the delays that this round's replicas named
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_ROUTE_H_
