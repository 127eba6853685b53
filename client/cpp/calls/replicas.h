// The servers that share a client's calls: their connections, and which of them take calls now.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_REPLICAS_H_
#define SVDSERVE_CLIENT_CPP_CALLS_REPLICAS_H_

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/calls/retry.h"
#include "client/cpp/client.h"

namespace svdserve::client::internal {

// The budget of attempts at once: a failure of all servers must not multiply their load. There are 10 tokens. A failure
// takes one, a success gives a tenth; while half are there, such attempts are free. The rule is gRPC's
// (gRFC A6, "Throttling Retry Attempts and Hedged RPCs"). Not thread-safe.
class RetryBudget {
 public:
  void failed() { tokens_ = tokens_ > 1 ? tokens_ - 1 : 0; }
  void succeeded() { tokens_ = tokens_ < kMost - kOfSuccess ? tokens_ + kOfSuccess : kMost; }
  bool allows() const { return tokens_ > kMost / 2; }

 private:
  static constexpr double kMost = 10, kOfSuccess = 0.1;
  double tokens_ = kMost;
};

// Which replicas take calls. A replica that is out of reach or drains is left for a while, 0.1 s at first and 5 s at
// most. It comes back when a health check found it serving. One that rejects a call for load is left for as long as it
// says, 1 s at most. While none takes calls, the one that is due first gets them. No clock of its own: callers tell the
// time. Thread-safe.
class Rotation {
 public:
  // first: the replica that gets the first call.
  explicit Rotation(size_t replicas, size_t first = 0) : replicas_(replicas), turn_(first) {}

  // Where a call goes that failed at those of `tried` (one flag a replica) already.
  size_t next(const std::vector<bool>& tried, Clock::time_point now);
  // The effect of an outcome on the replica.
  enum class Change : uint8_t { kNone, kLeft, kBack };

  // The outcome of a call.
  Change note(size_t replica, const Status& status, Clock::time_point now);
  // A replica whose health is to be checked now, once every 2 s while calls are made; then checked() must follow.
  std::optional<size_t> due(Clock::time_point now);
  Change checked(size_t replica, bool serving, Clock::time_point now);
  // Whether an attempt may follow a failure at once.
  bool may_hurry() const;

 private:
  enum class State : uint8_t { kTakesCalls, kFull, kDown };
  struct Replica {
    State state = State::kTakesCalls;
    Clock::time_point until = {};  // of kFull and kDown
    Clock::time_point next_check = {};
    int failures = 0;  // in a row
    bool is_checked = false;
    bool unhealthy = false;  // by its own word; a call that succeeds all the same does not bring it back
  };
  void take_out(Replica& replica, Clock::time_point now);

  mutable std::mutex mutex_;
  std::vector<Replica> replicas_;  // guarded by mutex_
  size_t turn_ = 0;                // guarded by mutex_
  RetryBudget budget_;             // guarded by mutex_
};

// Thread-safe.
class Replicas {
 public:
  explicit Replicas(const ClientOptions& options);

  size_t size() const { return replicas_.size(); }
  // How many servers a call may find: of a name more than are known here.
  size_t width() const { return width_; }
  const std::string& address(size_t replica) const { return replicas_[replica].address; }
  // The replica's connections take turns.
  grpc::GenericStub& stub(size_t replica);
  // Null where there is one replica alone: it takes all calls.
  Rotation* rotation() { return rotation_.get(); }

 private:
  struct Replica {
    std::string address = {};
    std::vector<std::unique_ptr<grpc::GenericStub>> stubs = {};  // one a connection
    std::atomic<size_t> turn{0};
  };

  std::vector<Replica> replicas_;
  size_t width_ = 1;
  std::unique_ptr<Rotation> rotation_;
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_REPLICAS_H_
