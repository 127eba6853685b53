// The read of a small message. gRPC receives a message whole before it shows anything of it, so even a call that needs a
// few bytes may bring the message limit. These reads therefore go in turn, few of a peer at a time
// (server/rpc/calls/read_turns.h), and a client has little time for each.
#ifndef SVDSERVE_SERVER_RPC_CALLS_SMALL_READ_H_
#define SVDSERVE_SERVER_RPC_CALLS_SMALL_READ_H_

#include <functional>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/error.h"
#include "server/peer.h"
#include "server/rpc/calls/read_turns.h"

namespace svdserve::server {

// Turn -> read -> end. Thread-safe, but for begin() and destruction: the owner calls end() or leave() before.
class SmallRead final : private ReadWaiter {
 public:
  // A message has this long to come, and less where another call of the peer waits for its turn.
  static constexpr absl::Duration kPatience = absl::Seconds(5), kPatienceIfAwaited = absl::Milliseconds(250);
  // A call waits for its turn for no longer.
  static constexpr absl::Duration kLongestWait = absl::Seconds(5);

  SmallRead(ReadTurns* turns, Clock* clock) : turns_(turns), clock_(clock) {}

  // Calls start_read() now, or in its turn on any thread; or returns why there is none, and the read has ended.
  Error begin(const Peer& peer, std::function<void()> start_read);
  // The message is there, or will not come. Nothing happens the second time.
  void end();
  // True: the read waited for its turn, and will not begin. False: it began, begins in a moment, or has ended.
  bool leave();

  enum class Lateness { kNone, kWaits, kSends, kInTheWay };
  // kWaits: the turn has not come in time, so leave() is due. kSends: the client has not sent the message in time.
  // kInTheWay: nor has it, and another call waits.
  Lateness lateness(absl::Time now) const;

 private:
  enum class State { kWaits, kReads, kEnded };
  void on_turn() override;

  ReadTurns* const turns_;
  Clock* const clock_;
  Peer peer_;
  std::function<void()> start_read_;
  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kEnded;
  absl::Time since_ ABSL_GUARDED_BY(mu_);
};

// Why a call ends whose read was late.
Error no_turn_error();
Error late_message_error();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_SMALL_READ_H_
